"""The table: every code once, every line with a code, a handler and a pool that exists."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.parts import Parts
from aerobee.broker.pools.pools import make_pools
from aerobee.broker.routes import broker_routes, namesrv_routes
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.routes import Route, resolve
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header
from aerobee.store.files.disk import Disk
from tests.broker.desk import broker_config
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def routes(tmp_path: Path) -> tuple[Route, ...]:
    """What a broker with an embedded name server answers."""
    to = Parts(broker_config(tmp_path), disk=Disk(), clock=HandClock()).processors
    return (*broker_routes(to), *namesrv_routes(to.route))


def test_every_line_has_a_code_a_handler_and_a_pool(routes: tuple[Route, ...]) -> None:
    table = resolve(routes, make_pools(RemotingConfig()))
    assert len(table) == len(routes), "no code twice, the name server's included"
    for route in routes:
        assert issubclass(route.header, Header)
        assert isinstance(code_of(route), RequestCode), route
        assert len(inspect.signature(route.handler).parameters) == 3, route


POOLS = {
    "send": {
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_BATCH_MESSAGE",
        "RECALL_MESSAGE",
        "CONSUMER_SEND_MSG_BACK",
    },
    "pull": {"PULL_MESSAGE", "POP_MESSAGE", "PEEK_MESSAGE", "NOTIFICATION", "POLLING_INFO"},
    "ack": {"ACK_MESSAGE", "BATCH_ACK_MESSAGE", "CHANGE_MESSAGE_INVISIBLETIME"},
    "load_balance": {"QUERY_ASSIGNMENT", "SET_MESSAGE_REQUEST_MODE"},
    "lite_pull": {"LITE_PULL_MESSAGE"},
    "transaction": {"END_TRANSACTION"},
    "reply": {"SEND_REPLY_MESSAGE", "SEND_REPLY_MESSAGE_V2"},
    "query": {"QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID"},
    "heartbeat": {"HEART_BEAT"},
    "client_manager": {"UNREGISTER_CLIENT", "CHECK_CLIENT_CONFIG"},
    "consumer_manager": {
        "QUERY_CONSUMER_OFFSET",
        "UPDATE_CONSUMER_OFFSET",
        "GET_CONSUMER_LIST_BY_GROUP",
    },
}


def test_a_busy_family_does_not_starve_the_others(routes: tuple[Route, ...]) -> None:
    for pool, codes in POOLS.items():
        assert {code_of(route).name for route in routes if route.pool == pool} == codes
    others = {route.pool for route in routes} - set(POOLS)
    assert others == {"admin"}


def code_of(route: Route) -> Any:
    header: Any = route.header
    return header.code
