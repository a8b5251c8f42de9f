"""One budget for half-received frames: who is read on, who stalls, who is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aerobee.remoting.server.connection import LEFT_FRAME_BYTES
from aerobee.remoting.server.inbound import IDLE_SWEEPS, LEAD_S
from aerobee.remoting.server.poller import READ
from aerobee.remoting.server.selector import RECEIVE_BYTES, SCARCE_SHARES
from tests.remoting.server.stage import LIMITS, Interest, Stage, TrickleSocket, bodies
from tests.remoting.server.test_selector import frame

if TYPE_CHECKING:
    from aerobee.remoting.server.connection import Connection

BUDGET = 10_000


def stage() -> Stage:
    return Stage(limits=LIMITS._replace(inbound_bytes=BUDGET, high_water_bytes=1 << 20))


def sends(stage: Stage, sock: TrickleSocket, data: bytes) -> None:
    sock.incoming += data
    while stage.round(sock):
        pass


def half(stage: Stage, size: int) -> tuple[Connection, TrickleSocket, bytes]:
    """A peer that has sent `size` bytes of a longer frame, and the rest of it."""
    connection, sock = stage.connect()
    whole = frame(1, bytes(20_000))
    sends(stage, sock, whole[:size])
    return connection, sock, whole[size:]


def test_within_the_budget_everybody_is_read() -> None:
    desk = stage()
    peers = [half(desk, 3_000) for _ in range(3)]
    assert desk.reactor.shared.inbound.total == 9_000
    assert all(desk.interest(sock).read for _, sock, _ in peers)
    for connection, sock, rest in peers:
        sends(desk, sock, rest)
        assert len(bodies(sock)) == 1
        assert connection.inbound == 0
    assert (desk.reactor.shared.inbound.total, desk.reactor.shared.inbound.held) == (0, {})


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


def test_who_leads_for_too_long_is_closed_with_the_oldest_until_half_is_free() -> None:
    desk = stage()
    peers = [half(desk, 4_000) for _ in range(4)]
    budget = desk.reactor.shared.inbound
    now = desk.selector.context.now
    budget.sweep(now + LEAD_S - 1)
    assert not any(connection.closed for connection, _, _ in peers)
    budget.sweep(now + LEAD_S + 1)
    assert [connection.closed for connection, _, _ in peers] == [True, True, True, False]
    assert (budget.total, budget.leader) == (4_000, None)
    last, sock, rest = peers[-1]
    assert not last.starved
    sends(desk, sock, rest)
    assert len(bodies(sock)) == 1


def test_a_leader_that_brings_nothing_makes_room_at_once() -> None:
    desk = stage()
    leader, sock, rest = half(desk, 4_500)
    peers = [half(desk, 4_000) for _ in range(3)]
    budget = desk.reactor.shared.inbound
    now = desk.selector.context.now
    for second in range(3):
        sends(desk, sock, rest[second : second + 1])
        budget.sweep(now + second)
    assert not leader.closed
    for second in range(IDLE_SWEEPS):
        assert not leader.closed
        budget.sweep(now + 3 + second)
    assert leader.closed
    assert [connection.closed for connection, _, _ in peers] == [True, True, False]


def test_who_begins_a_new_frame_is_not_old() -> None:
    desk = stage()
    first, sock, rest = half(desk, 4_000)
    other, _, _ = half(desk, 4_000)
    sends(desk, sock, rest + frame(2, bytes(20_000))[:4_000])
    assert first.inbound == 4_000
    assert list(desk.reactor.shared.inbound.held) == [other, first]


def test_whole_frames_that_wait_count_until_they_are_served() -> None:
    desk = Stage(limits=LIMITS._replace(inbound_bytes=BUDGET))
    budget = desk.reactor.shared.inbound
    connection, sock = desk.connect(takes=[0, 0])
    sock.incoming += frame(1, bytes(3_000)) + b"".join(frame(n, bytes(100)) for n in range(2, 7))
    desk.rounds([(sock.fd, READ)])
    assert (connection.paused, len(connection.left)) == (True, 5)
    assert budget.total == connection.inbound > 5 * (LEFT_FRAME_BYTES + 100)
    while desk.round(sock):
        pass
    assert len(bodies(sock)) == 6
    assert (budget.total, budget.held) == (0, {})


def test_while_too_much_waits_nobody_brings_more_than_a_turn_can_serve() -> None:
    desk = stage()
    for _ in range(3):
        half(desk, 4_000)
    _, sock = desk.connect()
    sock.incoming += bytes(RECEIVE_BYTES)
    desk.rounds([(sock.fd, READ)])
    assert len(sock.incoming) == RECEIVE_BYTES - RECEIVE_BYTES // SCARCE_SHARES


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
            assert desk.reactor.shared.inbound.total <= BUDGET + 6 * 32_000
    assert [len(bodies(sock)) for _, sock in peers] == [2] * 6
    assert desk.reactor.shared.inbound.total == 0
    assert not any(connection.starved for connection, _ in peers)
