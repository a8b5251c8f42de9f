"""Connections that have shown nothing: who goes first, who is late, who has shown enough."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aerobee.remoting.server.boss import ConnectionLimits
from aerobee.remoting.server.states import Event
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, HandTime, Stage, TrickleSocket, frame_of

if TYPE_CHECKING:
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.newcomers import Newcomers

TIMEOUT_S = 30.0
ALONE = LIMITS._replace(idle_s=10_000, first_request_s=TIMEOUT_S)


def connect(stage: Stage, address: str) -> tuple[Connection, TrickleSocket]:
    """A peer from there."""
    fd = 20_000 + stage.reactor.stats.connections_opened
    sock: Any = TrickleSocket(fd)
    return stage.selector.adopt(sock, (address, 50_000), "test", stage.worker), sock


def limits_of(stage: Stage, places: int) -> ConnectionLimits:
    return ConnectionLimits(stage.reactor.shared, places, None, lambda: stage.reactor.connections)


class Coming:
    """A socket that was accepted and has no place yet."""

    def fileno(self) -> int:
        return 5


def come(limits: ConnectionLimits, address: str) -> str | None:
    """Whether one more peer of this address finds a place; the reason if not."""
    return limits.closed_for(Coming(), (address, 50_001))  # type: ignore[arg-type]  # a fake


def asks(stage: Stage, sock: TrickleSocket) -> None:
    sock.incoming += frame_of(1, b"")
    assert stage.round(sock)


def late(stage: Stage, now: float) -> None:
    """A sweep."""
    list(limits_of(stage, 0).close_late(now))


def test_the_oldest_of_the_address_that_has_most_is_the_first_to_go() -> None:
    stage = Stage()
    few, _ = connect(stage, "10.0.0.1")
    first, _ = connect(stage, "10.0.0.2")
    second, _ = connect(stage, "10.0.0.2")
    newcomers = stage.reactor.shared.newcomers
    assert newcomers.first_to_go() is first
    assert newcomers.first_to_go(few.host[:4]) is few
    first.close("test")
    few.close("test")
    assert newcomers.first_to_go() is second
    second.close("test")
    assert newcomers.first_to_go() is None
    assert newcomers.by_address == {}


@pytest.mark.parametrize("sent", [b"", frame_of(1, b"a body")[:-1]], ids=["silent", "trickles"])
def test_without_a_whole_request_a_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=ALONE)
    connection, sock = connect(stage, "127.0.0.1")
    began = time.now
    for byte in sent:
        sock.incoming.append(byte)
        stage.round(sock)
        time.now += TIMEOUT_S / (2 * len(sent))
    late(stage, began + TIMEOUT_S)
    assert not connection.closed
    with capture_logs() as logged:
        late(stage, began + TIMEOUT_S + 0.1)
    assert connection.closed
    assert stage.reactor.stats.connections_late == 1
    assert [line["event"] for line in logged if "late" in line["event"]] == ["connection.late"]


def test_with_one_whole_request_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=ALONE)
    connection, sock = connect(stage, "127.0.0.1")
    asks(stage, sock)
    late(stage, time.now + 10 * TIMEOUT_S)
    assert not connection.closed
    assert not stage.reactor.shared.newcomers.by_address


def test_answers_that_nobody_asked_for_are_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=ALONE)
    connection, sock = connect(stage, "127.0.0.1")
    sock.incoming += request_frame(int(RequestCode.GET_MAX_OFFSET), 1, {}, b"", flag=1)
    stage.round(sock)
    late(stage, time.now + TIMEOUT_S + 1)
    assert connection.closed


def test_where_requests_need_an_account_those_without_one_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that sends one refused request after the other is never idle."""
    time = HandTime(monkeypatch)
    stage = Stage(limits=ALONE, gate=lambda *_: Answer(1, remark="nobody has signed this"))
    connection, sock = connect(stage, "127.0.0.1")
    for _ in range(5):
        asks(stage, sock)
    late(stage, time.now + TIMEOUT_S + 1)
    assert connection.closed


def test_whoever_waits_for_us_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=ALONE)
    connection, _ = connect(stage, "127.0.0.1")
    connection.on(Event.POSTPONED)
    late(stage, time.now + TIMEOUT_S + 1)
    assert not connection.closed
    connection.on(Event.RESUMED)
    connection.on(Event.ENDED)
    late(stage, time.now + TIMEOUT_S + 1)
    assert connection.closed


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.9"], ids=["its own", "another"])
def test_silent_connections_of_one_address_shut_nobody_out(address: str) -> None:
    """Behind a NAT, or in a cluster, everybody may have the address of the silent ones."""
    stage = Stage()
    limits = limits_of(stage, 10)
    silent = [connect(stage, "127.0.0.1")[0] for _ in range(10)]
    with capture_logs() as logged:
        for _ in range(3):
            assert come(limits, address) is None
            _, sock = connect(stage, address)
            asks(stage, sock)
    assert [connection.closed for connection in silent] == [True] * 3 + [False] * 7
    assert stage.reactor.stats.connections_displaced == 3
    assert stage.reactor.stats.connections == 10
    displaced = [line for line in logged if line["event"] == "connection.displaced"]
    assert [line["reason"] for line in displaced] == ["maxConnections is 10"]


def test_who_takes_the_place_of_another_takes_no_descriptor_in_reserve() -> None:
    limits = limits_of(Stage(), 0)
    with socket.socket() as displaced, socket.socket() as accepted:
        low = displaced.fileno()
        limits.first_reserved = accepted.fileno()
        displaced.close()
        with limits.lowered(accepted) as lowered:
            assert accepted.fileno() == -1
            assert lowered.fileno() == low
            assert limits.lowered(lowered) is lowered, "there is nothing to do"


def test_who_has_shown_itself_is_not_displaced_for_its_own_address() -> None:
    stage = Stage()
    limits = limits_of(stage, 4)
    for _ in range(4):
        asks(stage, connect(stage, "127.0.0.1")[1])
    assert come(limits, "127.0.0.1") == "maxConnections is 4"
    assert stage.reactor.stats.connections == 4


def test_one_address_keeps_half_of_the_places_where_others_want_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = HandTime(monkeypatch)
    stage = Stage()
    limits = limits_of(stage, 6)
    crowd = []
    for _ in range(6):
        connection, sock = connect(stage, "10.0.0.1")
        asks(stage, sock)
        crowd.append(connection)
        time.now += 1
    for _ in range(3):
        assert come(limits, "10.0.0.2") is None
        asks(stage, connect(stage, "10.0.0.2")[1])
    assert [one.closed for one in crowd] == [True] * 3 + [False] * 3, "the most silent first"
    assert come(limits, "10.0.0.3") == "maxConnections is 6", "none has more than its half"


def test_the_limit_of_an_address_is_for_those_who_show_something() -> None:
    stage = Stage(limits=LIMITS._replace(connections_of_address=2))
    limits = limits_of(stage, 0)
    first, sock = connect(stage, "10.0.0.1")
    asks(stage, sock)
    silent, _ = connect(stage, "10.0.0.1")
    assert come(limits, "10.0.0.1") is None
    assert (silent.closed, first.closed) == (True, False)
    asks(stage, connect(stage, "10.0.0.1")[1])
    assert come(limits, "10.0.0.1") == "maxConnectionsOfAddress is 2"


def test_a_new_time_counts_for_those_that_are_there() -> None:
    stage = Stage()
    stage.reactor.allow(LIMITS._replace(first_request_s=5))
    newcomers: Newcomers = stage.reactor.shared.newcomers
    assert newcomers.timeout_s == 5
