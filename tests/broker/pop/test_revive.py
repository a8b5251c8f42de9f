"""Check points meet acknowledgements: over starts, kills, full disks; nothing is lost of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.errors import MessageUnreadable, Refusal
from aerobee.broker.pop.pop_records import CHECK_POINT_TAG, Ack, CheckPoint
from aerobee.broker.pop.revive import AGAIN_S, Timing
from aerobee.broker.pop.revive_queue import AHEAD_MAX, ReviveQueue
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import REVIVE_GROUP
from aerobee.store.results import PutStatus
from tests.broker.desk import spoil
from tests.broker.pop.test_pop import REVIVE_LOG
from tests.broker.pops import open_pops
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.quick_disk import WornDisk
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import PutResult
    from tests.broker.pops import Pops

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def point(start: int = 0, *, diffs: tuple[int, ...] = (0,), pop_time: int = 1_000) -> CheckPoint:
    return CheckPoint(
        start_offset=start,
        pop_time=pop_time,
        invisible_time=5_000,
        count=len(diffs),
        queue_id=0,
        topic="t",
        group="g",
        diffs=list(diffs),
        broker="desk",
    )


def done_with(pops: Pops) -> list[int]:
    """How far each revive queue is done with."""
    offsets = pops.desk.offsets
    return [max(0, offsets.query(REVIVE_GROUP, REVIVE_LOG, queue_id)) for queue_id in range(8)]


def put_in_front(pops: Pops, *, start: int) -> None:
    """Put a check point into the revive log that is open for 30 s; others stay behind."""
    front = point(start, pop_time=pops.desk.now_ms() + 25_000)
    pops.desk.puts.put(
        MessageDraft(REVIVE_LOG, 0, front.to_bytes(), b"", HOST, HOST),
        {"TAGS": CHECK_POINT_TAG, "UNIQ_KEY": "front"},
        accepted=True,
    )


# ── One queue ──


def test_a_queue_is_done_with_up_to_its_oldest_open_check_point() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 10)
    assert queue.done_with() == 10
    first, second = point(0, diffs=(0, 1)), point(2)
    queue.add(first, 10)
    queue.add(second, 11)
    queue.position = 13
    assert queue.done_with() == 10
    assert queue.acknowledge(Ack.of(second.key, [2]))
    assert queue.done_with() == 10
    assert queue.acknowledge(Ack.of(first.key, [0]))
    assert queue.acknowledge(Ack.of(first.key, [1]))
    assert queue.done_with() == 13
    assert not queue.acknowledge(Ack.of(first.key, [1])), "it is closed"


def test_what_is_due_comes_in_the_order_of_its_time() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    queue.add(point(0, pop_time=3_000), 0)
    queue.add(point(1, pop_time=1_000), 1)
    assert queue.due(6_000) is None
    entry = queue.due(6_001)
    assert entry is not None
    assert entry.point.start_offset == 1
    queue.close(entry)
    assert queue.due(8_000) is None
    assert queue.due(9_000) is not None


def test_a_check_point_that_the_timers_delivered_twice_counts_once() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    queue.add(point(), 0)
    queue.add(point(), 1)
    queue.position = 2
    queue.acknowledge(Ack.of(point().key, [0]))
    assert queue.done_with() == 2


def test_an_acknowledgement_may_come_in_front_of_its_check_point() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    first, second = point(0, diffs=(0, 1)), point(10)
    assert not queue.acknowledge(Ack.of(first.key, [1]))
    assert not queue.acknowledge(Ack.of(second.key, [10]))
    queue.add(first, 0)
    queue.add(second, 1)
    assert [list(entry.left) for entry in queue.open.values()] == [[0]]


def test_acknowledgements_without_a_check_point_are_remembered_up_to_a_limit() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    pops = [point(start) for start in range(AHEAD_MAX + 2)]
    for pop in pops:
        queue.acknowledge(Ack.of(pop.key, [pop.start_offset]))
    many = point(5, pop_time=2_000)
    queue.acknowledge(Ack.of(many.key, list(range(5, 5 + 3 * AHEAD_MAX))))
    for number, pop in enumerate([*pops, many]):
        queue.add(pop, number)
    assert len(queue.open) == len(pops) + 1, "those of one pop take no more than the limit"
    queue.acknowledge(Ack.of(point(5, pop_time=3_000).key, [5]))
    queue.add(point(5, pop_time=3_000), 0)
    assert len(queue.open) == len(pops) + 1


def test_a_check_point_of_an_old_writer_has_no_distances() -> None:
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    old = point()
    old.diffs, old.count = [], 2
    queue.add(old, 0)
    queue.acknowledge(Ack.of(old.key, [0, 1]))
    assert not queue.open


# ── When it may be decided ──


class Wheel:
    """Timers by hand."""

    def __init__(self) -> None:
        self.end = self.read = self.delivered = 0
        self.now = 9_000


@pytest.mark.trio
async def test_time_is_what_is_delivered_and_can_be_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        store: MessageStore = pops.desk.store
        wheel = Wheel()
        timing = Timing(
            store,
            waiting_end=lambda: wheel.end,
            read_to=lambda: wheel.read,
            delivered_ms=lambda: wheel.delivered,
            now_ms=lambda: wheel.now,
        )
        wheel.delivered = 5_000
        assert timing.until() == 5_000
        wheel.end, wheel.delivered = 3, 6_000
        assert timing.until() == 5_000, "something waits that has no slot yet"
        wheel.read, wheel.delivered = 3, 4_000
        assert timing.until() == 5_000, "it was late: the time was set back for it"
        wheel.delivered = 7_000
        assert timing.until() == 7_000
        host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
        store.put(MessageDraft("t", 0, b"", b"", host, host))
        wheel.delivered = 8_000
        assert timing.until() == 7_000, "what was delivered cannot be read yet"
        store.dispatch()
        assert timing.until() == 8_000
        wheel.now = 6_000
        assert timing.until() == 6_000, "the clock went back, and what is due then is not over"
        wheel.now, wheel.end = 6_500, 4
        assert timing.until() == 6_000


@pytest.mark.trio
@pytest.mark.parametrize("back_s", [3_600, 9 * 366 * 86_400])
async def test_after_a_clock_was_ahead_what_is_acknowledged_in_time_does_not_return(
    tmp_path: Path, mock_clock: MockClock, back_s: int
) -> None:
    wall = TrioClock()
    async with open_pops(tmp_path, wall=wall) as pops:
        await pops.desk.pass_s(3)
        wall.start_ms += back_s * 1_000
        await pops.desk.pass_s(6)
        wall.start_ms -= back_s * 1_000
        await pops.desk.pass_s(2)
        await pops.send(b"a", b"b")
        messages = await pops.pop(invisible_time=5_000)
        assert len(messages) == 2
        await pops.desk.pass_s(1.5)
        assert (await pops.ack(messages[0])).code == 0
        await pops.desk.pass_s(3)
        assert await pops.bodies() == [], "it is hidden for as long as was asked for"
        await pops.desk.pass_s(7)
        assert await pops.bodies(invisible_time=600_000) == [b"b"]
        await pops.desk.pass_s(30)
        assert await pops.bodies() == []


@pytest.mark.trio
@pytest.mark.parametrize("back_s", [3_600, 20 * 86_400])
async def test_a_check_point_of_a_clock_that_was_ahead_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock, back_s: int
) -> None:
    wall = TrioClock()
    async with open_pops(tmp_path / "data", wall=wall) as pops:
        wall.start_ms += back_s * 1_000
        await pops.desk.pass_s(3)
        await pops.send(b"ahead", b"acknowledged", b"acknowledged ahead")
        messages = {one.body: one for one in await pops.pop(invisible_time=6_000)}
        assert (await pops.ack(messages[b"acknowledged ahead"])).code == 0
        while not pops.open_check_points():
            await pops.desk.pass_s(0.5)
        wall.start_ms -= back_s * 1_000
        await pops.desk.pass_s(3)
        assert pops.open_check_points() == 0
        revive_log = pops.desk.revive.queues
        ends = [pops.desk.store.max_offset(REVIVE_LOG, queue.queue_id) for queue in revive_log]
        assert done_with(pops)[: len(ends)] == ends
        assert (await pops.ack(messages[b"acknowledged"])).code == 0
        await pops.send(b"later")
        assert await pops.bodies(invisible_time=6_000) == [b"later"]
        await pops.desk.pass_s(12)
        assert await pops.bodies(invisible_time=40 * 86_400_000) == [b"later"]
        await pops.stop()
    async with open_pops(tmp_path / "data", wall=wall) as pops:
        await pops.desk.pass_s(5)
        assert await pops.bodies() == []
        wall.start_ms += back_s * 1_000
        await pops.desk.pass_s(10)
        assert await pops.bodies(invisible_time=60_000) == [b"ahead"]


# ── Over starts ──


@pytest.mark.trio
async def test_what_is_out_over_a_stop_comes_again_and_what_is_done_does_not(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        first, *_ = await pops.pop(invisible_time=20_000)
        await pops.ack(first)
        await pops.desk.pass_s(3)
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, wall=wall) as pops:
        assert await pops.bodies() == []
        await pops.desk.pass_s(25)
        assert await pops.bodies() == [b"b", b"c"]


@pytest.mark.trio
async def test_what_was_put_again_before_a_stop_is_not_put_again_after_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(10)
        assert sum(done_with(pops)) == 1
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, wall=wall) as pops:
        await pops.desk.pass_s(10)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a"]
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_what_was_put_back_behind_an_open_check_point_is_not_put_back_again_after_a_stop(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The offset that is saved is that of the one in front, which is open for longer."""
    async with open_pops(tmp_path, revive_queue_num=1) as pops:
        await pops.send(b"a", b"b", b"c")
        put_in_front(pops, start=2)
        assert len(await pops.pop(max_msg_nums=2, invisible_time=50)) == 2
        await pops.desk.pass_s(5)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a", b"b"]
        assert done_with(pops)[0] == 0
        wall = pops.desk.clock
        await pops.stop()
    async with open_pops(tmp_path, wall=wall, revive_queue_num=1) as pops:
        await pops.desk.pass_s(40)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a", b"b", b"c"]
        assert pops.open_check_points() == 0
        assert done_with(pops)[0] >= 2


@pytest.mark.trio
async def test_a_stop_in_the_middle_of_a_pop_puts_the_rest_back_and_nothing_twice(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        assert len(await pops.pop(invisible_time=5_000)) == 3
        put_again, puts = pops.desk.puts.put_again, pops.desk.puts

        def once(draft: MessageDraft) -> PutResult:
            result = put_again(draft)
            pops.desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
            return result

        puts.put_again = once  # type: ignore[method-assign]  # the disk is full after the first
        await pops.desk.pass_s(10)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a"]
        pops.desk.store.flags.clear(Flag.DISK_FULL)
        wall = pops.desk.clock
        await pops.stop()
    async with open_pops(tmp_path, wall=wall) as pops:
        await pops.desk.pass_s(10)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a", b"b", b"c"]


@pytest.mark.trio
async def test_a_stop_goes_on_when_what_was_put_back_cannot_be_noted(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, revive_queue_num=1) as pops:
        await pops.send(b"a", b"b")
        put_in_front(pops, start=1)
        assert len(await pops.pop(max_msg_nums=1, invisible_time=50)) == 1
        await pops.desk.pass_s(5)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a"]

        def refuse(*_: object) -> None:
            raise Refusal(ResponseCode.NO_PERMISSION, "not now")

        pops.desk.puts.hooks = [*pops.desk.puts.hooks, refuse]
        wall = pops.desk.clock
        await pops.stop()
    async with open_pops(tmp_path, wall=wall, revive_queue_num=1) as pops:
        await pops.desk.pass_s(40)
        assert set(pops.desk.bodies("%RETRY%g_t")) == {b"a", b"b"}


class History:
    """What a consumer did over several lives of a broker."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        self.settled: set[bytes] = set()
        """Acknowledged, and nothing of it was out any more."""
        self.again: list[bytes] = []

    async def consume(self, pops: Pops, share: float) -> None:
        """Pop some, acknowledge a share of it."""
        for one in await pops.pop(invisible_time=5_000):
            if one.body in self.settled:
                self.again.append(one.body)
            if self.chance.random() < share:
                assert (await pops.ack(one)).code == 0
                self.done.add(one.body)

    async def live(self, pops: Pops, life: int) -> None:
        """Send and consume; now and then so that nothing is out in the end."""
        for _ in range(self.chance.randrange(2, 10)):
            count = self.chance.randrange(6)
            bodies = [b"%d-%d" % (life, len(self.sent) + number) for number in range(count)]
            await pops.send(*bodies)
            self.sent.update(bodies)
            await self.consume(pops, 0.7)
            await pops.desk.pass_s(self.chance.random() * 3)
        if self.chance.random() < 0.5:
            await self.settle(pops)

    async def settle(self, pops: Pops) -> None:
        """Consume until nothing is out, and wait until all files have heard of it."""
        for _ in range(4):
            await pops.desk.pass_s(9, 1)
            await self.consume(pops, 1)
        await pops.desk.pass_s(15, 1)
        self.settled |= self.done


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.trio
async def test_power_cuts_lose_nothing_and_bring_back_nothing_that_was_settled(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    history = History(seed)
    sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    wall = TrioClock()
    root = tmp_path / "0"
    root.mkdir()
    for life in range(3):
        disk = FaultyDisk(root, granule=512)
        try:
            async with open_pops(root, disk, wall=wall, **sync) as pops:
                fault = Fault(number=disk.changes + history.chance.randrange(400), cut=True)
                disk.faults.append(fault)
                await history.live(pops, life)
                raise PowerCut
        except (PowerCut, BaseExceptionGroup) as end:
            rest = end if isinstance(end, PowerCut) else end.split(PowerCut)[1]
            assert rest is None or isinstance(rest, PowerCut), rest
        root = disk.power_cut(tmp_path / str(life + 1), history.chance)
    async with open_pops(root, wall=wall) as pops:
        await history.settle(pops)
        await history.settle(pops)
        assert history.sent <= history.done
        assert not history.again
        assert pops.open_check_points() == 0


@pytest.mark.parametrize("first_hidden_ms", [5_000, 6_000])
@pytest.mark.trio
async def test_pops_of_one_moment_that_a_reset_begins_at_one_place_lose_nothing(
    tmp_path: Path, mock_clock: MockClock, first_hidden_ms: int
) -> None:
    async with open_pops(tmp_path, revive_queue_num=1) as pops:
        await pops.send(b"a")
        (first,) = await pops.pop(invisible_time=first_hidden_ms)
        await pops.send(b"b", b"c")
        pops.desk.offsets.reset("g", "t", 0, 0, pops.desk.now_ms())
        second = await pops.pop(invisible_time=5_000)
        assert second[0].receipt._replace(invisible_time=first_hidden_ms) == first.receipt
        assert (await pops.ack(second[1])).code == 0
        await pops.desk.pass_s(10)
        assert sorted(set(await pops.bodies())) == [b"a", b"c"]
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_queues_that_the_revive_log_gets_later_are_read_as_well(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, revive_queue_num=1) as pops:
        pops.desk.topic(REVIVE_LOG, read_queue_nums=2, write_queue_nums=2)
        await pops.send(b"a", b"b")
        popped = [await pops.pop(max_msg_nums=1, invisible_time=5_000) for _ in range(2)]
        assert {message.receipt.revive_qid for (message,) in popped} == {0, 1}
        await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a", b"b"]


# ── Trouble ──


@pytest.mark.trio
async def test_a_later_check_point_of_a_message_is_not_lost_beside_one_that_is_stuck(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path, revive_queue_num=1) as pops:
        desk = pops.desk
        await pops.send(b"a", b"b")
        await pops.pop(invisible_time=5_000)
        desk.topics.max_topics = 0
        later = desk.revive_log.check_point
        full: list[CheckPoint] = []

        def check_point(point: CheckPoint, *of: Any, **how: Any) -> PutStatus:
            if full:
                return PutStatus.SERVICE_NOT_AVAILABLE
            full.append(point)
            return later(point, *of, **how)

        # As on a disk that is full from the second message on.
        monkeypatch.setattr(desk.revive_log, "check_point", check_point)
        await desk.pass_s(AGAIN_S[0] + 10)
        assert [len(entry.left) for entry in desk.revive.queues[0].open.values()] == [2]
        del full[:]
        monkeypatch.undo()
        desk.topics.max_topics = 10_000
        await desk.pass_s(2)
        assert await pops.bodies() == [b"a", b"b"]


@pytest.mark.trio
async def test_while_nothing_can_be_put_check_points_stay_open_and_go_on_by_themselves(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(6)
        pops.desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
        await pops.desk.pass_s(20)
        assert pops.open_check_points() == 1
        assert sum(done_with(pops)) == 0
        pops.desk.store.flags.clear(Flag.DISK_FULL)
        await pops.desk.pass_s(2)
        assert await pops.bodies() == [b"a", b"b"]


@pytest.mark.trio
async def test_a_message_whose_retry_topic_cannot_be_made_gets_a_later_check_point(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        pops.desk.topics.max_topics = 0
        await pops.desk.pass_s(10)
        assert pops.open_check_points() == 0, "it does not stand in the way of others"
        (later,) = [
            CheckPoint.from_bytes(one.body) for one in pops.desk.records("rmq_sys_wheel_timer")[1:]
        ]
        assert later.revive_times == "1"
        assert AGAIN_S[0] * 1_000 <= later.due_ms - pops.desk.now_ms() + 10_000 <= 20_000
        pops.desk.topics.max_topics = 10_000
        await pops.desk.pass_s(15)
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_a_message_that_the_disk_cannot_read_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"a", b"worn", b"c")
        assert len(await pops.pop(invisible_time=20_000)) == 3
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"worn"
        await pops.desk.pass_s(25)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a", b"c"]
        disk.bad = b""
        await pops.desk.pass_s(AGAIN_S[0] + 5)
        assert pops.desk.bodies("%RETRY%g_t") == [b"a", b"c", b"worn"]
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_messages_in_front_of_one_that_the_disk_cannot_read_are_popped(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"a", b"b", b"worn", b"c")
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"worn"
        assert await pops.bodies() == [b"a", b"b"]
        disk.bad = b""
        assert await pops.bodies() == [b"c", b"worn"]


@pytest.mark.trio
async def test_a_message_that_the_disk_cannot_read_is_popped_when_it_can(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"worn", b"c")
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"worn"
        assert [(await pops.bodies()), (await pops.bodies())] == [[], [b"c"]]
        await pops.desk.pass_s(70)
        assert pops.desk.bodies("%RETRY%g_t") == [b"c"]
        assert pops.desk.store.stats.unreadable == {"pop": 1}, "once for both"
        disk.bad = b""
        await pops.desk.pass_s(AGAIN_S[0] + AGAIN_S[1])
        assert pops.desk.bodies("%RETRY%g_t") == [b"c", b"worn"]
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_a_message_whose_body_the_disk_altered_is_not_copied_for_its_retry(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"spoilt", b"c")
        assert len(await pops.bodies() + await pops.bodies()) == 2
        spoil(tmp_path, b"spoilt")
        await pops.desk.pass_s(70)
        assert pops.desk.bodies("%RETRY%g_t") == [b"c"]
        assert pops.desk.store.stats.set_aside == {"revive": 1}
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_an_orderly_pop_stands_in_front_of_a_message_that_the_disk_cannot_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"worn", b"c")
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"worn"
        with pytest.raises(MessageUnreadable, match="--queue desk:0 --to offset:1"):
            await pops.pop(order=True, queue_id=0)
        disk.bad = b""
        assert await pops.bodies(order=True, queue_id=0) == [b"c", b"worn"]


@pytest.mark.trio
async def test_what_is_no_check_point_is_passed_over(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
        for tag in (b"ck", b"ack", b"bAck", b"other"):
            for body in (b"", b"{}", b"no json", b'{"so":"x"}'):
                draft = MessageDraft(REVIVE_LOG, 3, body, b"TAGS\x01%b\x02" % tag, host, host)
                assert pops.desk.puts.put_as_is(draft).size
        pops.desk.after_round()
        await pops.desk.pass_s(1)
        assert done_with(pops)[3] == 16


@pytest.mark.trio
async def test_a_topic_made_anew_gives_back_nothing_that_was_not_popped(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        assert await pops.bodies(invisible_time=5_000) == [b"a", b"b"]
        await pops.desk.pass_s(3)
        assert (await pops.desk.ask(DeleteTopicInBroker(topic="t"))).code == 0
        pops.desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        await pops.send(b"c", b"d", b"e")
        assert await pops.bodies(max_msg_nums=1, invisible_time=20_000) == [b"c"]
        await pops.desk.pass_s(10)
        assert pops.open_check_points() == 0
        assert pops.desk.store.max_offset("%RETRY%g_t", 0) == 0
        assert await pops.bodies(invisible_time=600_000) == [b"d", b"e"]
        await pops.desk.pass_s(20)
        assert await pops.bodies() == [b"c"]


@pytest.mark.trio
async def test_a_topic_that_is_being_deleted_gets_no_retry_topic(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        assert await pops.bodies(invisible_time=5_000) == [b"a"]
        # Its queue is still there: what was in it has to leave dispatch first.
        desk = pops.desk
        assert desk.topics.delete("t", desk.now_ms(), desk.store.commit_log.max_offset)
        await desk.pass_s(12)
        assert pops.open_check_points() == 0
        assert not desk.topics.is_known("%RETRY%g_t")


@pytest.mark.trio
async def test_a_message_that_is_gone_is_not_waited_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        lost = point(7, pop_time=pops.desk.now_ms())
        pops.desk.revive_log.check_point(lost, lost.offsets(), 2)
        other = point(0, pop_time=pops.desk.now_ms())
        other.topic = "gone"
        pops.desk.revive_log.check_point(other, other.offsets(), 2)
        pops.desk.after_round()
        await pops.desk.pass_s(10)
        assert pops.open_check_points() == 0
        assert pops.desk.records("%RETRY%g_t") == []


@pytest.mark.trio
async def test_a_message_comes_back_as_it_was_from_us(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", tag="X")
        (sent,) = pops.desk.records("t")
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(10)
        (back,) = pops.desk.records("%RETRY%g_t")
        assert back.body == sent.body
        assert back.born_timestamp == sent.born_timestamp
        assert back.born_host == back.store_host == pops.desk.store_host
        assert back.properties.startswith(sent.properties)
        popped = await pops.pop(exp_type="TAG", exp="X")
        assert [one.body for one in popped] == [b"a"], "its tag is still its tag"


@pytest.mark.trio
async def test_a_message_whose_properties_leave_no_room_comes_back_as_it_was(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        own = "UNIQ_KEY\x01U\x02big\x01{}\x02"
        await pops.desk.send(body=b"small", properties=own.format("x"))
        (small,) = pops.desk.records("t")
        big = "x" * (32_767 - len(small.properties) + 1)
        await pops.desk.send(body=b"full", properties=own.format(big))
        (_, full) = pops.desk.records("t")
        assert len(full.properties) == 32_767
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(12)
        (back,) = [one for one in pops.desk.records("%RETRY%g_t") if one.body == b"full"]
        assert bytes(back.properties) == bytes(full.properties)
        assert back.reconsume_times == 1


@pytest.mark.trio
async def test_a_message_that_was_tried_as_often_as_can_be_said_comes_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        answer = await pops.desk.send(body=b"often", reconsume_times=2**31 - 1)
        assert answer.code == 0
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(12)
        [again] = await pops.pop()
        assert (again.body, again.record.reconsume_times) == (b"often", 2**31 - 1)


@pytest.mark.trio
async def test_a_message_that_no_topic_can_take_is_set_aside(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        named = point(0, pop_time=pops.desk.now_ms())
        named.group = "../g"
        pops.desk.revive_log.check_point(named, named.offsets(), 2)
        pops.desk.after_round()
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(12)
        assert pops.open_check_points() == 0
        assert await pops.bodies() == [b"a", b"b"]
        assert pops.desk.store.stats.set_aside == {"revive": 1}


@pytest.mark.trio
async def test_lowered_limits_of_timers_hold_up_no_revival(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        await pops.stop()
    async with open_pops(tmp_path, timer_max_delay_s=1) as pops:
        pops.desk.topics.max_topics = 0
        await pops.desk.pass_s(10)
        assert pops.open_check_points() == 0, "a new one was put, further away than the limit"
        pops.desk.topics.max_topics = 10_000
        await pops.desk.pass_s(20)
        assert await pops.bodies(invisible_time=1_000) == [b"a"]


@pytest.mark.trio
async def test_what_was_out_in_another_cluster_comes_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        await pops.stop()
    async with open_pops(tmp_path, broker_cluster_name="Renamed") as pops:
        await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a"]
