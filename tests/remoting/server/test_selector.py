"""Rounds: what is read, served and sent, in which order, and when a socket is left alone."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from remoting.server import boss
from remoting.server.selector import RECEIVE_BYTES
from remoting.wire.codes import RequestCode
from remoting.wire.frame import FrameDecoder
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, Interest, Stage, TrickleSocket

MAX_OFFSET = int(RequestCode.GET_MAX_OFFSET)
MAX_ROUNDS = 5_000


def frame(number: int, body: bytes = b"") -> bytes:
    return request_frame(MAX_OFFSET, number, {"topic": "t", "queueId": number}, body)


def bodies(sock: TrickleSocket) -> list[bytes]:
    return [bytes(body) for _, _, body in FrameDecoder().feed(bytes(sock.taken))]


def run(stage: Stage, sock: TrickleSocket) -> int:
    """Rounds until the poller would wait."""
    for number in range(MAX_ROUNDS):
        if not stage.round(sock):
            return number
    raise AssertionError("the selector spins")


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=25),
    st.lists(st.integers(0, 3_000), max_size=30),
)
def test_any_peer_gets_all_answers_in_order_and_is_then_only_read(
    sizes: list[int], takes: list[int]
) -> None:
    sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    stage = Stage(limits=LIMITS._replace(high_water_bytes=600, low_water_bytes=200))
    connection, sock = stage.connect(takes)
    sock.incoming += b"".join(frame(number + 1, body) for number, body in enumerate(sent))
    run(stage, sock)
    assert bodies(sock) == sent
    assert stage.interest(sock) == Interest(read=True, write=False)
    assert (connection.unsent, len(connection.backlog), connection.paused) == (0, 0, False)


def test_a_peer_that_caught_up_wakes_the_selector_no_more() -> None:
    stage = Stage()
    _, sock = stage.connect([0])
    sock.incoming += b"".join(frame(n + 1, b"x" * 900) for n in range(4))
    assert run(stage, sock) < 20
    assert len(bodies(sock)) == 4


def test_a_peer_that_takes_nothing_is_not_read_and_what_it_asked_waits() -> None:
    stage = Stage()
    connection, sock = stage.connect([0] * 100)
    sock.incoming += b"".join(frame(n + 1, b"x" * 900) for n in range(20))
    stage.round(sock)
    assert stage.interest(sock) == Interest(read=False, write=True)
    assert LIMITS.high_water_bytes < connection.unsent < 2 * LIMITS.high_water_bytes
    assert len(connection.backlog) == 17
    for _ in range(20):
        stage.round(sock)
    assert connection.unsent < 2 * LIMITS.high_water_bytes, "nothing is served meanwhile"


def test_answers_of_one_round_leave_in_one_send() -> None:
    stage = Stage()
    _, sock = stage.connect()
    sock.incoming += b"".join(frame(n + 1) for n in range(10))
    stage.round(sock)
    assert sock.sends == 1
    assert len(bodies(sock)) == 10


def test_more_than_one_receive_takes_more_than_one_round() -> None:
    stage = Stage(limits=LIMITS._replace(high_water_bytes=1 << 24))
    _, sock = stage.connect()
    body = b"y" * (RECEIVE_BYTES // 2)
    sock.incoming += b"".join(frame(n + 1, body) for n in range(4))
    assert run(stage, sock) >= 3
    assert bodies(sock) == [body] * 4


def test_whole_frames_before_a_bad_one_are_answered_before_the_close() -> None:
    stage = Stage()
    connection, sock = stage.connect()
    sock.incoming += frame(1, b"good") + b"GET / HTTP/1.1\r\n\r\n"
    stage.round(sock)
    assert bodies(sock) == [b"good"]
    assert connection.closed
    assert sock.closed
    assert stage.reactor.stats.frames_rejected == 1


@pytest.mark.parametrize("error", [errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT])
def test_a_send_that_fails_closes_its_connection_only(error: int) -> None:
    stage = Stage()
    reasons: list[str] = []
    broken, broken_sock = stage.connect()
    broken.on_close.append(lambda connection, reason: reasons.append(reason))
    _, good_sock = stage.connect()
    broken_sock.failure = OSError(error, "gone")
    for sock in (broken_sock, good_sock):
        sock.incoming += frame(1, b"x")
        stage.round(sock)
    assert broken.closed
    assert reasons == ["send failed: gone"]
    assert bodies(good_sock) == [b"x"]
    assert [c.closed for c in stage.selector.connections.values()] == [False]


def test_a_socket_that_cannot_be_watched_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.poller.full = True
    sock: Any = BareSocket(77)
    boss._adopt(sock, ("127.0.0.1", 1), "test", stage.worker, stage.selector)
    assert sock.closed
    assert stage.selector.connections == {}
    stage.selector.sweep()


class BareSocket(TrickleSocket):
    """As the listener gives it."""

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def setsockopt(self, *option: int) -> None: ...


def test_a_sweep_closes_who_is_idle_and_who_does_not_read() -> None:
    stage = Stage(limits=LIMITS._replace(idle_s=10, stall_s=5))
    reasons: dict[int, str] = {}

    def closed(connection: Any, reason: str) -> None:
        reasons[connection.id] = reason

    idle, _ = stage.connect()
    deaf, deaf_sock = stage.connect([0] * 9)
    alive, _ = stage.connect()
    waiting, _ = stage.connect()
    waiting.held = 1
    for connection in (idle, deaf, alive, waiting):
        connection.on_close.append(closed)
    deaf_sock.incoming += frame(1, b"x")
    stage.round(deaf_sock)
    stage.selector.sweep()
    assert reasons == {}
    assert deaf.stalled_since is not None
    deaf.stalled_since -= 5.1
    idle.last_active -= 10.1
    waiting.last_active -= 300
    stage.selector.sweep()
    assert reasons == {idle.id: "idle", deaf.id: "peer does not read"}
    assert not alive.closed
    assert not waiting.closed, "it waits for our answer"


def test_a_flood_of_what_is_no_frame_writes_a_few_lines() -> None:
    stage = Stage()
    with capture_logs() as lines:
        for _ in range(100):
            _, sock = stage.connect()
            sock.incoming += b"GET / HTTP/1.1\r\n\r\n"
            stage.round(sock)
    assert len([line for line in lines if line["event"] == "frame.rejected"]) == 20
    assert stage.reactor.stats.frames_rejected == 100
