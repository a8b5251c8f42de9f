"""One budget for half-received frames: who is read on, who stalls, who is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from remoting.server.inbound import LEAD_S
from tests.remoting.server.stage import LIMITS, Interest, Stage, TrickleSocket
from tests.remoting.server.test_selector import bodies, frame

if TYPE_CHECKING:
    from remoting.server.connection import Connection

BUDGET = 10_000


def stage() -> Stage:
    return Stage(limits=LIMITS._replace(inbound_bytes=BUDGET, high_water_bytes=1 << 20))


def sends(stage: Stage, sock: TrickleSocket, data: bytes) -> None:
    sock.incoming += data
    stage.round(sock)


def half(stage: Stage, size: int) -> tuple[Connection, TrickleSocket, bytes]:
    """A peer that has sent `size` bytes of a longer frame, and the rest of it."""
    connection, sock = stage.connect()
    whole = frame(1, bytes(20_000))
    sends(stage, sock, whole[:size])
    return connection, sock, whole[size:]


def test_within_the_budget_everybody_is_read() -> None:
    desk = stage()
    peers = [half(desk, 3_000) for _ in range(3)]
    assert desk.reactor.inbound.total == 9_000
    assert all(desk.interest(sock).read for _, sock, _ in peers)
    for connection, sock, rest in peers:
        sends(desk, sock, rest)
        assert len(bodies(sock)) == 1
        assert connection.inbound == 0
    assert (desk.reactor.inbound.total, desk.reactor.inbound.held) == (0, {})


def test_beyond_the_budget_only_the_largest_is_read_until_there_is_room() -> None:
    desk = stage()
    small, small_sock, _ = half(desk, 3_000)
    _, large_sock, rest = half(desk, 6_000)
    with capture_logs() as lines:
        last, last_sock, _ = half(desk, 2_000)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "connection.starved"
    ]
    assert (small.starved, last.starved) == (True, True)
    assert [desk.interest(sock).read for sock in (small_sock, large_sock, last_sock)] == [
        False,
        True,
        False,
    ]
    sends(desk, large_sock, rest)
    assert len(bodies(large_sock)) == 1
    assert desk.interest(small_sock) == desk.interest(last_sock) == Interest(read=True, write=False)


def test_whole_frames_go_on_while_others_starve() -> None:
    desk = stage()
    half(desk, 6_000)
    half(desk, 5_000)
    _, sock = desk.connect()
    sends(desk, sock, frame(1, b"x" * 100) + frame(2, b"y"))
    assert len(bodies(sock)) == 2
    assert desk.interest(sock).read


def test_who_leads_for_too_long_is_closed_and_the_next_one_leads() -> None:
    desk = stage()
    peers = [half(desk, 6_000) for _ in range(3)]
    budget = desk.reactor.inbound
    now = desk.selector.now
    budget.sweep(now + LEAD_S - 1)
    assert not any(connection.closed for connection, _, _ in peers)
    budget.sweep(now + LEAD_S + 1)
    assert sum(connection.closed for connection, _, _ in peers) == 1
    assert budget.leader is not None
    assert budget.total == 12_000
    budget.sweep(desk.selector.now + LEAD_S + 1)
    assert budget.total == 6_000
    assert budget.leader is None
    assert [c.starved for c, _, _ in peers if not c.closed] == [False]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9_000)), max_size=60))
def test_everything_sent_is_answered_in_the_end_however_it_is_cut(
    cuts: list[tuple[int, int]],
) -> None:
    desk = stage()
    peers = [desk.connect() for _ in range(6)]
    left = [frame(1, bytes(8_000)) * 2 for _ in peers]
    order = [*cuts, *((number, 32_000) for _ in range(2) for number in range(6))]
    for number, size in order:
        peers[number][1].incoming += left[number][:size]
        left[number] = left[number][size:]
        while any(desk.round(sock) for _, sock in peers):
            assert desk.reactor.inbound.total <= BUDGET + 6 * 32_000
    assert [len(bodies(sock)) for _, sock in peers] == [2] * 6
    assert desk.reactor.inbound.total == 0
    assert not any(connection.starved for connection, _ in peers)
