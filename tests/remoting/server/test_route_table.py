"""Routes become a table by code; faults of the table show at the start."""

from __future__ import annotations

import pytest

from aerobee.remoting.server.pools import Pool
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers.offset import GetMaxOffset, GetMinOffset
from tests.remoting.server.stage import echo

POOLS = {"admin": Pool("admin", width=1, capacity=1, max_wait_ms=None)}


def test_a_code_finds_its_header_handler_and_pool() -> None:
    routes = [Route(GetMaxOffset, echo, "admin"), Route(GetMinOffset, echo, "admin")]
    table = resolve(routes, POOLS)
    assert set(table) == {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET}
    assert table[int(RequestCode.GET_MAX_OFFSET)] == (
        GetMaxOffset,
        echo,
        POOLS["admin"],
        None,
    )
    # A member of the enumeration would hash slower than the int that a frame carries.
    assert {type(code) for code in table} == {int}


def test_a_code_listed_twice_is_a_fault_of_the_table() -> None:
    with pytest.raises(AssertionError, match="routed twice"):
        resolve([Route(GetMaxOffset, echo, "admin")] * 2, POOLS)


def test_an_unknown_pool_is_a_fault_of_the_table() -> None:
    with pytest.raises(KeyError, match="swimming"):
        resolve([Route(GetMaxOffset, echo, "swimming")], POOLS)
