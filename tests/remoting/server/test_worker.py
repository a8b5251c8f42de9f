"""Admission: who is refused, who waits, who has waited too long, and who is never told."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.remoting.errors import FrameError
from aerobee.remoting.latency import BOUNDS_MS, LatencyKey
from aerobee.remoting.server import handlers as handlers_module
from aerobee.remoting.server import selector as selector_module
from aerobee.remoting.server import shared
from aerobee.remoting.server.arrivals import SlowRound
from aerobee.remoting.server.left_bytes import Piece
from aerobee.remoting.server.pools import OVERLOAD_REMARK, Pool, Stall
from aerobee.remoting.server.reactor import NO_HOOKS
from aerobee.remoting.server.routes import HELD, PendingAnswer
from aerobee.remoting.server.selector import Hooks
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import ONEWAY, decode
from aerobee.remoting.wire.frame import FrameDecoder
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, HandTime, Stage, TrickleSocket
from tests.remoting.server.test_selector import MAX_OFFSET

if TYPE_CHECKING:
    from aerobee.remoting.wire.command import Command

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> HandTime:
    """No request is refused because the machine was slow."""
    return HandTime(monkeypatch)


def frame(number: int, *, oneway: bool = False) -> bytes:
    fields = {"topic": "t", "queueId": number}
    return request_frame(MAX_OFFSET, number, fields, b"", flag=ONEWAY * oneway)


def answers(sock: TrickleSocket) -> list[Command]:
    return [decode(*one).detached() for one in FrameDecoder().feed(bytes(sock.taken))]


class Slow:
    """A handler that waits for the test; it remembers who began."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.began: list[int] = []

    async def __call__(self, header: Any, command: Any, connection: Any) -> Answer:
        self.began.append(command.opaque)
        await self.go.wait()
        return Answer(0, remark=str(command.opaque))


async def test_a_request_that_waited_too_long_in_the_queue_is_refused_and_never_begun(
    nursery: trio.Nursery, time: HandTime
) -> None:
    slow = Slow()
    pool = Pool("admin", width=1, capacity=100, max_wait_ms=200)
    stage = Stage(slow, pool=pool, nursery=nursery)
    _, sock = stage.connect()
    sock.incoming += frame(1) + frame(2) + frame(3, oneway=True)
    stage.round(sock)
    await wait_all_tasks_blocked()
    time.now += 0.150
    sock.incoming += frame(4)
    stage.round(sock)
    time.now += 0.100
    slow.go.set()
    await wait_all_tasks_blocked()
    assert slow.began == [1, 4], "two and three are 250 ms old"
    assert [(a.opaque, a.code) for a in answers(sock)] == [(1, 0), (2, 2), (4, 0)]
    remark = str(answers(sock)[1].remark)
    assert remark.startswith("[TIMEOUT_CLEAN_QUEUE]")
    assert "period in queue: 250ms, size of queue: 2" in remark
    assert (pool.timed_out, pool.depth, pool.running, pool.queued) == (2, 0, 0, 0)
    assert stage.reactor.stats.requests_refused == 2


async def test_what_has_happened_is_answered_however_long_that_takes(
    nursery: trio.Nursery, time: HandTime
) -> None:
    slow = Slow()
    pool = Pool("admin", width=1, capacity=100, max_wait_ms=200)
    stage = Stage(lambda *request: PendingAnswer(slow(*request)), pool=pool, nursery=nursery)
    _, sock = stage.connect()
    sock.incoming += frame(1) + frame(2)
    stage.round(sock)
    await wait_all_tasks_blocked()
    assert sorted(slow.began) == [1, 2], "neither takes the place of the other"
    assert (pool.depth, pool.running) == (2, 0)
    time.now += 5
    slow.go.set()
    await wait_all_tasks_blocked()
    assert sorted((a.opaque, a.code) for a in answers(sock)) == [(1, 0), (2, 0)]
    assert (pool.timed_out, pool.depth, pool.running) == (0, 0, 0)


async def test_a_round_that_takes_too_long_sheds_what_is_old_instead_of_serving_it(
    time: HandTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector_module, "unread_bytes", lambda sock: len(sock.incoming))
    served: list[int] = []

    def handler(header: Any, command: Any, connection: Any) -> Answer:
        served.append(command.opaque)
        return Answer(0)

    pool = Pool("admin", width=1, capacity=100, max_wait_ms=200)
    stage = Stage(handler, pool=pool)
    _, first = stage.connect()
    _, second = stage.connect()
    _, third = stage.connect()
    first.incoming += frame(1)
    second.incoming += frame(2)
    third.incoming += frame(3, oneway=True)
    time.per_look = 0.090
    stage.rounds([(sock.fd, 1) for sock in (first, second, third)])
    assert served == [1]
    assert [a.code for a in answers(first)] == [0]
    assert answers(third) == []
    (shed,) = answers(second)
    assert (shed.opaque, shed.code) == (2, ResponseCode.SYSTEM_BUSY)
    assert str(shed.remark).startswith("[TIMEOUT_CLEAN_QUEUE]")
    assert pool.timed_out == 2


PERIOD = re.compile(r"period in queue: \d+ms")

ODD: dict[str, bytes] = {
    "one-way": frame(7, oneway=True),
    "an unknown code": request_frame(9_999, 7, {}),
    "another serialization": struct.pack(">II", 4 + 21, 1 << 24 | 21)
    + struct.pack(">hBhiiii", MAX_OFFSET, 0, 479, 7, 0, 0, 0),
    "an opaque beyond 32 bits": request_frame(MAX_OFFSET, 1 << 40, {}),
    "a name for a code": struct.pack(">II", 4 + 12, 12) + b'{"code":"x"}',
    "young ones from here on": b"",
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("count", [3, 40])
async def test_late_requests_refused_together_hear_what_each_alone_would(
    odd: str, count: int, time: HandTime
) -> None:
    """R23: the first frames of a read are refused as one, with the codes that `serve` gives; only
    the time that they are told is that of the last of them. 40 are enough to be taken for alike.
    """
    stages = [Stage(pool=Pool("admin", width=1, capacity=9, max_wait_ms=200)) for _ in range(2)]
    sent = b"".join(frame(number) for number in range(10, 10 + count)) + ODD[odd] + frame(50)
    taken = []
    for together, stage in enumerate(stages):
        connection, sock = stage.connect()
        sock.incoming += frame(100)
        stage.round(sock)
        connection.context.now = time.now
        begun = time.now - 0.7
        until = time.now - 0.69
        if odd.startswith("young"):
            # What came 200 ms ago or later begins in the last frame but two.
            until = begun + 0.5 * (count + 1) / (count - 1.5)
        frames = FrameDecoder().feed(sent)
        piece = Piece(sent, begun, until)
        if together:
            piece.at = stage.worker.refuse_late(connection, piece)
            frames = FrameDecoder().feed(sent[piece.at :])
            assert len(frames) == 2
        with suppress(FrameError):
            for one in frames:
                stage.worker.serve(connection, [one], piece.came(piece.at), 0.0)
                piece.at += 8 + len(one[1]) + len(one[2])
        connection.write()
        taken.append(
            [(one.opaque, one.code, PERIOD.sub("", str(one.remark))) for one in answers(sock)]
        )
    assert taken[0] == taken[1]
    for name in ("requests", "requests_refused"):
        one, other = (getattr(stage.reactor.stats, name) for stage in stages)
        assert one == other, name
    assert stages[0].pool.timed_out == stages[1].pool.timed_out > 0


async def test_a_pool_that_is_full_refuses_in_its_own_words(time: HandTime) -> None:
    stage = Stage(pool=Pool("admin", width=1, capacity=0, max_wait_ms=200))
    connection, _ = stage.connect()
    connection.requests = 1
    piece = Piece(frame(1), time.now - 9, time.now - 9)
    assert stage.worker.refuse_late(connection, piece) == 0


async def test_without_a_limit_nothing_is_shed_for_age(time: HandTime) -> None:
    stage = Stage(pool=Pool("admin", width=1, capacity=100, max_wait_ms=None))
    _, sock = stage.connect()
    time.per_look = 1_000
    sock.incoming += frame(1)
    stage.round(sock)
    assert [a.code for a in answers(sock)] == [0]


async def test_a_full_pool_refuses_and_a_one_way_request_is_not_told() -> None:
    pool = Pool("admin", width=1, capacity=2, max_wait_ms=5_000)
    held: list[tuple[Any, Any]] = []

    def park(header: Any, command: Any, connection: Any) -> Any:
        held.append((command, connection))
        return HELD

    stage = Stage(park, pool=pool)
    _, sock = stage.connect()
    sock.incoming += b"".join(frame(n) for n in (1, 2, 3)) + frame(4, oneway=True)
    stage.round(sock)
    assert [(a.opaque, a.code, a.remark) for a in answers(sock)] == [(3, 2, OVERLOAD_REMARK)]
    assert (pool.refused, pool.depth, len(held)) == (2, 2, 2)
    for command, connection in held:
        connection.answer(command, Answer(0))
    sock.incoming += frame(5)
    stage.round(sock)
    assert (pool.depth, len(held)) == (1, 3), "there is room again"


async def test_a_held_request_counts_nowhere() -> None:
    pool = Pool("admin", width=1, capacity=1, max_wait_ms=5_000)
    stage = Stage(lambda header, command, connection: None, pool=pool)
    _, sock = stage.connect()
    sock.incoming += b"".join(frame(n + 1) for n in range(10))
    stage.round(sock)
    assert (pool.depth, pool.served, sock.sends) == (0, 10, 0)


async def test_bodies_of_requests_that_wait_are_bounded_together(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers_module, "KEPT_BYTES_MAX", 1_000)
    slow = Slow()
    pool = Pool("admin", width=1, capacity=100, max_wait_ms=None)
    stage = Stage(slow, pool=pool, nursery=nursery)
    _, sock = stage.connect()
    fields = {"topic": "t", "queueId": 1}
    for number, size in ((1, 600), (2, 600), (3, 400), (4, 0)):
        sock.incoming += request_frame(MAX_OFFSET, number, fields, b"x" * size)
    stage.round(sock)
    (refused,) = answers(sock)
    assert (refused.opaque, refused.code, refused.remark) == (
        2,
        ResponseCode.SYSTEM_BUSY,
        OVERLOAD_REMARK,
    )
    assert pool.kept_bytes == 1_000
    slow.go.set()
    await wait_all_tasks_blocked()
    assert sorted(slow.began) == [1, 3, 4]
    assert (pool.kept_bytes, pool.depth) == (0, 0)


async def test_a_place_comes_back_from_a_peer_that_left(nursery: trio.Nursery) -> None:
    slow = Slow()
    pool = Pool("admin", width=1, capacity=10, max_wait_ms=5_000)
    stage = Stage(slow, pool=pool, nursery=nursery)
    connection, sock = stage.connect()
    sock.incoming += frame(1) + frame(2)
    stage.round(sock)
    connection.close("test")
    slow.go.set()
    await wait_all_tasks_blocked()
    assert (pool.depth, pool.running) == (0, 0)


class Read:
    """A handler that answers with 900 bytes after a turn of the others."""

    def __init__(self) -> None:
        self.began = 0

    async def __call__(self, header: Any, command: Any, connection: Any) -> Answer:
        self.began += 1
        await trio.lowlevel.checkpoint()
        return Answer(0, remark=str(command.opaque), body=bytes(900))


async def test_answers_that_come_later_stay_below_the_mark_too_until_the_peer_reads(
    nursery: trio.Nursery,
) -> None:
    """R10: whoever asks and does not read is served no more, and others are."""
    read = Read()
    pool = Pool("admin", width=2, capacity=100, max_wait_ms=5_000)
    stage = Stage(read, pool=pool, nursery=nursery)
    connection, sock = stage.connect([0] * 100)
    _, other = stage.connect()
    sock.incoming += b"".join(frame(n) for n in range(1, 21))
    stage.round(sock)
    other.incoming += frame(77)
    stage.round(other)
    await wait_all_tasks_blocked()
    assert LIMITS.high_water_bytes < connection.unsent <= LIMITS.high_water_bytes + 1_100
    assert len(connection.queued) == 20 - read.began + 1
    assert [answer.remark for answer in answers(other)] == ["77"]
    assert (pool.depth, pool.running, connection.working) == (0, 0, 0), "it takes no place"
    sock.takes = [2_600, 0, 0]
    while stage.round(sock):
        await wait_all_tasks_blocked()
    assert sorted(answer.opaque for answer in answers(sock)) == list(range(1, 21))
    assert (pool.depth, pool.running, connection.unsent) == (0, 0, 0)


async def test_what_waits_for_a_peer_that_reads_nothing_is_bounded_and_ends_with_it(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers_module, "QUEUED_MAX", 5)
    HandTime(monkeypatch)  # All are served in one turn, however slow the machine is.
    read = Read()
    pool = Pool("admin", width=2, capacity=100, max_wait_ms=5_000)
    stage = Stage(read, pool=pool, nursery=nursery)
    connection, sock = stage.connect([0] * 100)
    sock.incoming += b"".join(frame(n) for n in range(1, 21))
    stage.round(sock)
    await wait_all_tasks_blocked()
    assert len(connection.queued) == 5
    assert (pool.refused, pool.depth) == (20 - read.began - 5, 0)
    began = read.began
    connection.close("test")
    await wait_all_tasks_blocked()
    assert (read.began, len(connection.queued)) == (began, 0)


async def test_a_handler_that_fails_after_waiting_is_answered_and_frees_its_place(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    HandTime(monkeypatch)  # Both are served in one turn, however slow the machine is.

    async def fail(header: Any, command: Any, connection: Any) -> Answer:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError("a fault of ours")

    pool = Pool("admin", width=1, capacity=10, max_wait_ms=5_000)
    stage = Stage(fail, pool=pool, nursery=nursery)
    _, sock = stage.connect()
    sock.incoming += frame(1) + frame(2)
    stage.round(sock)
    await wait_all_tasks_blocked()
    assert [a.remark for a in answers(sock)] == ["ZeroDivisionError: a fault of ours"] * 2
    assert (pool.depth, pool.running, stage.reactor.stats.requests_failed) == (0, 0, 2)


async def test_what_a_waiting_handler_sees_is_not_overwritten_by_the_next_receive(
    nursery: trio.Nursery,
) -> None:
    go = trio.Event()
    seen: list[bytes] = []

    async def keep(header: Any, command: Any, connection: Any) -> Answer:
        await go.wait()
        seen.append(bytes(command.body))
        return Answer(0)

    stage = Stage(keep, nursery=nursery)
    _, sock = stage.connect()
    for body in (b"first", b"OTHER"):
        sock.incoming += request_frame(MAX_OFFSET, 1, {"topic": "t", "queueId": 0}, body)
        stage.round(sock)
    go.set()
    await wait_all_tasks_blocked()
    assert sorted(seen) == [b"OTHER", b"first"]


# ── How long a request waited where nobody saw it ──


def at_once(header: Any, command: Any, connection: Any) -> Answer:
    return Answer(0)


class Rounds:
    """Peers of a broker that is always late; `busy(...)` is who of them was refused."""

    def __init__(
        self, time: HandTime, *, max_wait_ms: int | None = 200, hooks: Hooks = NO_HOOKS
    ) -> None:
        self.time = time
        self.pool = Pool("admin", width=1, capacity=1_000, max_wait_ms=max_wait_ms)
        self.stage = Stage(at_once, pool=self.pool, hooks=hooks)
        self.stage.poller.waited = False
        # The first round of all begins now.
        self.stage.selector.round([])

    def busy(self, sock: TrickleSocket, count: int) -> list[int]:
        """Numbers of those that were refused, of `count` requests read in one round."""
        del sock.taken[:]
        for number in range(1, count + 1):
            sock.incoming += frame(number)
        self.stage.round(sock)
        return [answer.opaque for answer in answers(sock) if answer.code == 2]


async def test_what_came_while_the_loop_was_busy_has_waited_since_then(time: HandTime) -> None:
    rounds = Rounds(time)
    _, sock = rounds.stage.connect()
    time.now += 0.300
    assert rounds.busy(sock, 4) == [1, 2], "300, 225, 150 and 75 ms old, as far as one can tell"
    assert rounds.pool.timed_out == 2


async def test_what_came_while_the_loop_slept_is_new(time: HandTime) -> None:
    rounds = Rounds(time)
    _, sock = rounds.stage.connect()
    time.now += 300
    rounds.stage.poller.waited = True
    assert rounds.busy(sock, 4) == []
    time.now += 300
    assert rounds.busy(sock, 4) == []


async def test_what_came_while_another_selector_held_up_the_loop_has_waited_since_then(
    time: HandTime,
) -> None:
    rounds = Rounds(time)
    _, sock = rounds.stage.connect()
    rounds.stage.poller.waited = True
    time.now += 300
    rounds.stage.reactor.shared.slow_round = SlowRound(time.now - 0.300, time.now)
    time.now += 0.001
    assert rounds.busy(sock, 4) == [1, 2]
    time.now += 0.010
    assert rounds.busy(sock, 4) == [], "the loop has slept meanwhile"


async def test_a_socket_that_was_read_in_the_last_round_held_nothing_after_that(
    time: HandTime,
) -> None:
    rounds = Rounds(time)
    _, sock = rounds.stage.connect()
    time.per_look = 0.150
    assert rounds.busy(sock, 1) == [1], "the round itself is late"
    time.per_look = 0.0
    # The end of the round was looked at as well.
    time.now += 0.190 - 0.150
    assert rounds.busy(sock, 2) == []


@pytest.mark.parametrize(("came_during_it", "busy"), [(True, [1]), (False, [])])
async def test_who_was_answered_after_a_slow_round_asks_anew(
    time: HandTime, monkeypatch: pytest.MonkeyPatch, came_during_it: bool, busy: list[int]
) -> None:
    """A client that waits for its answer sends nothing while its request is served."""
    rounds = Rounds(time)
    _, sock = rounds.stage.connect()
    poller = rounds.stage.selector.poller
    monkeypatch.setattr(poller, "holding", lambda: {sock.fileno()} if came_during_it else set())
    time.per_look = 0.150
    rounds.busy(sock, 1)
    time.per_look = 0.0
    time.now += 0.100
    assert rounds.busy(sock, 1) == busy


@pytest.mark.parametrize(("told", "busy"), [(True, []), (False, [1])])
async def test_who_was_answered_after_a_stall_at_the_end_of_a_round_asks_anew(
    time: HandTime, monkeypatch: pytest.MonkeyPatch, told: bool, busy: list[int]
) -> None:
    """As by a sync in the event loop, which ends before the answers that waited for it leave."""

    def sync() -> None:
        if took_s:
            time.now += took_s
            if told:
                rounds.stage.reactor.stalled(time.now - took_s, time.now)

    took_s = 0.0
    rounds = Rounds(time, hooks=Hooks(after_round=sync))
    _, sock = rounds.stage.connect()
    monkeypatch.setattr(rounds.stage.selector.poller, "holding", set)
    took_s = 0.300
    assert rounds.busy(sock, 1) == []
    took_s = 0.0
    assert rounds.busy(sock, 1) == busy


async def test_what_did_not_fit_into_one_receive_is_as_old_as_its_place(
    time: HandTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector_module, "RECEIVE_BYTES", len(frame(1)))
    monkeypatch.setattr(selector_module, "LATE_S", 9.0)
    rounds = Rounds(time)
    connection, sock = rounds.stage.connect()
    monkeypatch.setattr(selector_module, "unread_bytes", lambda sock: len(sock.incoming))
    time.now += 0.380
    assert rounds.busy(sock, 4) == [1]
    assert connection.reading.until == pytest.approx(time.now - 0.285)
    del sock.taken[:]
    rounds.stage.round(sock)
    rounds.stage.round(sock)
    rounds.stage.round(sock)
    assert [answer.code for answer in answers(sock)] == [2, 0, 0]


# ── Behind a stall of the disk ──


@pytest.mark.parametrize("max_wait_ms", [200, None])
async def test_what_came_during_a_stall_is_refused_as_it_would_have_been_then(
    time: HandTime, max_wait_ms: int | None
) -> None:
    """Begun at 100.0, known from 100.15 on, over at 100.4; four requests came in that time."""
    rounds = Rounds(time, max_wait_ms=max_wait_ms)
    _, sock = rounds.stage.connect()
    time.now += 0.400
    rounds.pool.stall = Stall(known=100.15, end=100.4)
    waited = [1, 2] if max_wait_ms else []
    assert rounds.busy(sock, 4) == [*waited, 3, 4]
    remarks = {a.opaque: str(a.remark) for a in answers(sock)}
    assert all(remarks[n].startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start ") for n in waited)
    assert remarks[3] == remarks[4] == "[REJECTREQUEST]system busy, start flow control for a while"
    time.now += 0.100
    assert rounds.busy(sock, 2) == [], "what came after it is served"


async def test_a_round_is_told_to_be_slow_before_its_end_and_only_then(time: HandTime) -> None:
    told: list[SlowRound] = []
    rounds = Rounds(time, hooks=Hooks(slow_round=told.append))
    _, sock = rounds.stage.connect()
    rounds.busy(sock, 1)
    assert told == []
    time.per_look = 0.030
    rounds.busy(sock, 1)
    (slow,) = told
    assert list(slow) == pytest.approx([100.06, 100.12])


async def test_an_answer_that_comes_before_its_request_is_held_frees_its_place(
    nursery: trio.Nursery,
) -> None:
    def at_once(header: Any, command: Any, connection: Any) -> Any:
        connection.answer(command, Answer(0))
        return HELD

    async def later(header: Any, command: Any, connection: Any) -> Any:
        return at_once(header, command, connection)

    for handler in (at_once, later, lambda *request: PendingAnswer(later(*request))):
        pool = Pool("admin", width=1, capacity=3, max_wait_ms=200)
        stage = Stage(handler, pool=pool, nursery=nursery)
        _, sock = stage.connect()
        for number in range(10):
            sock.incoming += frame(number) + frame(100 + number, oneway=True)
            stage.round(sock)
            await wait_all_tasks_blocked()
        assert [a.code for a in answers(sock)] == [0] * 10
        assert (pool.depth, pool.running) == (0, 0)


async def test_an_async_handler_that_parks_is_counted_until_it_is_answered(
    nursery: trio.Nursery,
) -> None:
    asked: list[Any] = []

    async def park(header: Any, command: Any, connection: Any) -> Any:
        asked.append((connection, command))
        return HELD

    pool = Pool("admin", width=1, capacity=3, max_wait_ms=200)
    stage = Stage(park, pool=pool, nursery=nursery)
    _, sock = stage.connect()
    sock.incoming += frame(1) + frame(2, oneway=True)
    stage.round(sock)
    await wait_all_tasks_blocked()
    assert (pool.depth, pool.running) == (2, 0)
    for connection, command in asked:
        connection.answer(command, Answer(0))
    assert pool.depth == 0


async def test_an_async_handler_with_nothing_to_say_frees_its_place(
    nursery: trio.Nursery,
) -> None:
    async def nothing(header: Any, command: Any, connection: Any) -> None:
        return None

    pool = Pool("admin", width=1, capacity=3, max_wait_ms=200)
    stage = Stage(nothing, pool=pool, nursery=nursery)
    _, sock = stage.connect()
    for number in range(10):
        sock.incoming += frame(number)
        stage.round(sock)
        await wait_all_tasks_blocked()
    assert (pool.depth, pool.running) == (0, 0)


async def test_a_request_is_timed_from_its_arrival_until_the_round_sends_its_answer(
    nursery: trio.Nursery, time: HandTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "monotonic", time)
    slow = Slow()

    def handler(header: Any, command: Any, connection: Any) -> Any:
        return slow(header, command, connection) if command.opaque > 3 else Answer(command.opaque)

    stage = Stage(handler, nursery=nursery)
    connection, sock = stage.connect()
    sock.incoming += frame(0) + frame(1) + frame(2, oneway=True)
    sock.incoming += request_frame(9_999, 3, {}, b"") + frame(4) + frame(5, oneway=True)
    stage.round(sock)
    await wait_all_tasks_blocked()
    time.now += 0.050
    slow.go.set()
    await wait_all_tasks_blocked()
    kinds = stage.reactor.stats.latencies.kinds
    seen = {(kind[0], kind[1], kind[3]): sum(one.counts) for kind, one in kinds.items()}
    assert seen == {
        (MAX_OFFSET, 0, "success"): 2,
        (MAX_OFFSET, 1, "success"): 1,
        (MAX_OFFSET, 2, "oneway"): 1,
        (9_999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "success"): 1,
        (MAX_OFFSET, 0, "oneway"): 1,
    }
    waited = kinds[LatencyKey(MAX_OFFSET, 0, False, "success")]
    assert waited.total_s == pytest.approx(0.050, abs=0.001)
    assert waited.counts[:1] == [1]
    assert waited.counts[BOUNDS_MS.index(100)] == 1
    connection.close("test")
    connection.answer(decode(0, b'{"code":30}', b""), Answer(0), held=True)
    stage.reactor.flush()
    assert sum(kinds[LatencyKey(MAX_OFFSET, 0, True, "write_channel_failed")].counts) == 1
