"""Delivery from the delay levels: when, in which order, what happens to what cannot go on."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import trio

from aerobee.broker.broker import Broker
from aerobee.broker.delay.delay_offsets import LEFT_MAX
from aerobee.broker.delay.schedule import AGAIN_S, PACE_S, SLICE
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.offset import GetAllDelayOffset
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.unit import UNIT
from aerobee.store.results import PutResult, PutStatus
from aerobee.store.tools.verify import verify
from tests.broker.desk import BORN_MS, Desk, body_of, broker_config, said, spoil
from tests.kit.cold_disk import ColdDisk
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.logged import Logged, events
from tests.kit.quick_disk import QuickDisk, WornDisk
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.store.files.disk import Disk

pytestmark = pytest.mark.trio
UNREADABLE = "message.unreadable"
HOST = bytes([127, 0, 0, 1, 0, 0, 195, 80])


@asynccontextmanager
async def still_desk(root: Path, disk: Disk | None = None, **changes: Any) -> AsyncIterator[Desk]:
    """A desk where nothing runs by itself: the test moves the time and ticks."""
    desk = Desk(Broker(broker_config(root, **changes), disk=disk or QuickDisk(), clock=TrioClock()))
    desk.load()
    try:
        desk.topic()
        yield desk
    finally:
        await desk.store.close()


async def save(desk: Desk) -> None:
    """Save all tables, which waits until the log is on disk."""
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.store.run)
        assert await desk.saver.save_all()
        nursery.cancel_scope.cancel()


def text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


async def park(
    desk: Desk, level: int, body: bytes = b"hello", topic: str = "t", **more: str
) -> None:
    answer = await desk.send(topic, body, properties=text(DELAY=str(level), **more))
    assert answer.code == Code.SUCCESS, answer.remark


def put(desk: Desk, topic: str, **properties: str) -> None:
    """A message right into a level, as no client can."""
    draft = MessageDraft(topic, 0, b"odd", text(**properties).encode(), HOST, HOST, tags_code=1)
    assert desk.puts.put_as_is(draft).status is PutStatus.PUT_OK
    desk.after_round()


def later(desk: Desk, ms: int) -> None:
    """Set the wall clock; the loop's time stays."""
    clock = desk.clock
    assert isinstance(clock, TrioClock)
    clock.start_ms += ms


def offsets(desk: Desk) -> dict[int, int]:
    return desk.delays.offsets


LEVELS_S = [
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
]


@pytest.mark.parametrize(("level", "delay_s"), [*enumerate(LEVELS_S, 1), (19, 7_200)])
async def test_each_level_delivers_when_it_is_due_and_not_before(
    tmp_path: Path, autojump_clock: MockClock, level: int, delay_s: int
) -> None:
    async with still_desk(tmp_path) as desk:
        await park(desk, level)
        autojump_clock.jump(delay_s - 0.001)
        await desk.schedule.tick()
        assert desk.bodies() == []
        autojump_clock.jump(0.001)
        await desk.schedule.tick()
        assert desk.bodies() == [b"hello"]
        await desk.schedule.tick()
        assert desk.bodies() == [b"hello"]
        assert offsets(desk) == {min(level, 18): 1}


async def test_it_delivers_by_itself_at_most_100_ms_late(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk, trio.open_nursery() as nursery:
        await nursery.start(desk.schedule.run)
        await trio.sleep(1)
        for wait_ms in (0, 13, 50, 77):
            await trio.sleep(wait_ms / 1000)
            await park(desk, 1)
        await trio.sleep(1.3)
        records = desk.records()
        parked = desk.records(SCHEDULE_TOPIC)
        assert len(records) == 4
        for before, after in zip(parked, records, strict=True):
            assert 0 <= after.store_timestamp - before.store_timestamp - 1_000 <= 100
        nursery.cancel_scope.cancel()


async def test_what_arrives_is_the_message_as_it_was_sent_and_the_string_of_its_wait(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        answer = await desk.send(
            queue_id=3,
            flag=7,
            properties=text(DELAY="1", TAGS="red", UNIQ_KEY="u"),
            reconsume_times=2,
        )
        assert answer.code == Code.SUCCESS
        assert said(answer)["queueId"] == "3", "not that of the level"
        (parked,) = desk.records(SCHEDULE_TOPIC)
        autojump_clock.jump(1)
        await desk.schedule.tick()
        (record,) = desk.records("t", 3)
        same = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host")
        for name in (*same, "reconsume_times", "properties"):
            assert getattr(record, name) == getattr(parked, name), name
        found = decode(record.properties)
        expected = {"DELAY": "1", "REAL_TOPIC": "t", "REAL_QID": "3", "TAGS": "red"}
        assert found.items() >= expected.items()
        assert (record.flag, record.reconsume_times, record.born_timestamp) == (7, 2, BORN_MS)
        for tag, count in (("red", 1), ("blue", 0)):
            pulled = await desk.pull(subscription=tag, queue_id=3)
            assert body_of(pulled).count(b"hello") == count


async def test_tags_are_not_compared_with_the_times_in_a_level(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        await park(desk, 3, TAGS="red")
        pulled = await desk.pull(SCHEDULE_TOPIC, subscription="blue", queue_id=2)
        assert body_of(pulled).count(b"hello") == 1


async def test_a_level_keeps_its_order_and_many_messages_go_in_slices(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        sent = [b"%d" % number for number in range(2 * SLICE + 5)]
        for body in sent:
            await park(desk, 1, body)
        await park(desk, 2, b"other")
        autojump_clock.jump(5)
        began = trio.current_time()
        await desk.schedule.tick()
        got = desk.bodies()
        assert [body for body in got if body != b"other"] == sent
        assert got.index(b"other") < 2 * SLICE, "the levels take turns"
        assert trio.current_time() - began >= 3 * PACE_S, "others get their turn in between"
        assert desk.delays.version.counter == (len(sent) + 1) // 200


async def test_a_level_with_much_to_deliver_keeps_no_other_waiting(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        for _ in range(40 * SLICE):
            await park(desk, 2)
        autojump_clock.jump(4.03)
        await park(desk, 1, b"due while the others are on their way")
        autojump_clock.jump(0.97)
        await desk.schedule.tick()
        assert desk.store.max_offset("t", 0) == 40 * SLICE + 1
        [parked] = desk.records(SCHEDULE_TOPIC, 0)
        [quick] = [record for record in desk.records() if record.body == parked.body]
        assert 0 <= quick.store_timestamp - parked.store_timestamp - 1_000 <= 100


YEARS_MS = 9 * 366 * 86_400_000


@pytest.mark.parametrize("back_ms", [3_000, 60_000, YEARS_MS])
async def test_a_clock_that_went_back_changes_nothing_of_how_long_a_message_waits(
    tmp_path: Path, autojump_clock: MockClock, back_ms: int
) -> None:
    async with still_desk(tmp_path) as desk:
        await park(desk, 3, b"while it was ahead")
        await desk.schedule.tick()
        later(desk, -back_ms)
        autojump_clock.jump(4)
        await park(desk, 3, b"and behind that, with its store timestamp")
        await desk.schedule.tick()
        autojump_clock.jump(5.9)
        await desk.schedule.tick()
        assert desk.bodies() == [], "retries would be used up in a second"
        autojump_clock.jump(0.1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"while it was ahead"]
        autojump_clock.jump(3.9)
        await desk.schedule.tick()
        assert len(desk.bodies()) == 1
        autojump_clock.jump(0.2)
        await desk.schedule.tick()
        assert len(desk.bodies()) == 2


async def test_after_a_start_it_waits_for_one_delay_at_most(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        later(desk, YEARS_MS)
        await park(desk, 3, b"far ahead")
    async with still_desk(tmp_path) as desk:
        await desk.schedule.tick()
        autojump_clock.jump(9.9)
        await desk.schedule.tick()
        assert desk.bodies() == []
        autojump_clock.jump(0.1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"far ahead"]


async def test_a_changed_table_of_levels_reaches_what_was_parked_before(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        for level in (1, 2, 3):
            await park(desk, level, b"%d" % level)
    async with still_desk(tmp_path, message_delay_level="1s 2s") as desk:
        await desk.schedule.tick()
        autojump_clock.jump(1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"1"]
        autojump_clock.jump(1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"1", b"2"], "its level has 2 s now, from the start on"
        autojump_clock.jump(7.9)
        await desk.schedule.tick()
        assert desk.bodies() == [b"1", b"2"], "a level that is gone keeps its times"
        autojump_clock.jump(0.2)
        await desk.schedule.tick()
        assert desk.bodies() == [b"1", b"2", b"3"]


async def test_what_can_go_nowhere_is_passed_over_and_said(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    async with still_desk(tmp_path) as desk:
        put(desk, SCHEDULE_TOPIC, REAL_TOPIC="RMQ_SYS_TRANS_HALF_TOPIC", REAL_QID="0")
        put(desk, SCHEDULE_TOPIC, REAL_TOPIC="t")
        await park(desk, 1)
        autojump_clock.jump(1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"hello"]
        assert desk.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 0
        assert events(logged).count("message.set_aside") == 2
        assert offsets(desk) == {1: 3}


async def test_a_message_that_no_topic_takes_holds_up_nothing(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    async with still_desk(tmp_path) as desk:
        put(desk, SCHEDULE_TOPIC, REAL_TOPIC="x" * 300, REAL_QID="0")
        await park(desk, 1, b"behind it")
        await park(desk, 2, b"beside it")
        autojump_clock.jump(5)
        for _ in range(3):
            await desk.schedule.tick()
        assert sorted(desk.bodies()) == [b"behind it", b"beside it"]
        assert offsets(desk) == {1: 2, 2: 1}
        (aside,) = [line for line in logged if line["event"] == "message.set_aside"]
        assert (aside["reason"], aside["queue_offset"]) == ("MESSAGE_ILLEGAL", 0)


async def test_on_a_full_disk_everything_waits_and_goes_on_once(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    async with still_desk(tmp_path) as desk:
        for level in (1, 2):
            await park(desk, level, b"%d" % level)
        autojump_clock.jump(5)
        desk.store.flags.set(Flag.DISK_FULL, "full")
        await desk.schedule.tick()
        assert desk.bodies() == []
        assert desk.schedule.blocked.keys() == {1, 2}
        desk.store.flags.clear(Flag.DISK_FULL)
        await desk.schedule.tick()
        assert desk.bodies() == [b"1", b"2"]
        assert not desk.schedule.blocked
        assert events(logged).count("schedule.unblocked") == 2


async def test_a_message_that_the_disk_cannot_read_holds_up_no_other(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    """It is told once, and tried again every minute, after starts as well."""
    disk = WornDisk()
    async with still_desk(tmp_path, disk) as desk:
        for body in (b"a", b"worn", b"c", b"d"):
            await park(desk, 1, body)
        await save(desk)
    async with still_desk(tmp_path, disk) as desk:
        disk.bad = b"worn"
        later(desk, 5_000)
        for _ in range(3):
            await desk.schedule.tick()
            autojump_clock.jump(AGAIN_S)
        assert desk.bodies() == [b"a", b"c", b"d"]
        assert not desk.schedule.blocked
        assert [line["queue_offset"] for line in logged if line["event"] == UNREADABLE] == [1]
        assert desk.store.stats.unreadable == {"schedule": 1}
        await save(desk)
    disk.bad = b""
    async with still_desk(tmp_path, disk) as desk:
        later(desk, 500_000)
        await desk.schedule.tick()
        assert desk.bodies() == [b"a", b"c", b"d", b"worn"]
        autojump_clock.jump(AGAIN_S)
        await desk.schedule.tick()
        assert len(desk.bodies()) == 4
        assert desk.delays.document()["offsetTable"] == {1: 4}
        assert desk.delays.left == {}


async def test_a_level_of_which_the_disk_reads_nothing_keeps_its_place(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = WornDisk()
    async with still_desk(tmp_path, disk) as desk:
        for _ in range(3):
            await park(desk, 1, b"worn")
        await save(desk)
    async with still_desk(tmp_path, disk) as desk:
        disk.bad = b"worn"
        later(desk, 5_000)
        desk.delays.left[1] = {*range(-LEFT_MAX + 1, 0)}
        await desk.schedule.tick()
        assert offsets(desk) == {1: 1}
        assert "cannot be read" in desk.schedule.blocked[1]


async def test_a_slice_for_several_topics_goes_on_where_the_store_refused(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with still_desk(tmp_path) as desk:
        desk.topic("other")
        for number in range(60):
            await park(desk, 1, b"%d" % number, "other" if number % 7 < 3 else "t")
        put(desk, SCHEDULE_TOPIC, DELAY="1", REAL_TOPIC="t")
        await park(desk, 1, b"last")
        autojump_clock.jump(1)
        writer = desk.store.writer
        put_copies, calls = writer.put_copies, iter(range(1_000))

        def put_some(topic: str, queue_id: int, copies: list[Any]) -> PutResult:
            if next(calls) % 3:
                return put_copies(topic, queue_id, copies)
            some = put_copies(topic, queue_id, copies[: len(copies) // 2])
            return PutResult(PutStatus.SEGMENT_LATE, count=some.count, size=some.size)

        monkeypatch.setattr(desk.store, "writer", Mock(wraps=writer, put_copies=put_some))
        for _ in range(20):
            await desk.schedule.tick()
        sent = [(number, b"%d" % number) for number in range(60)]
        assert desk.bodies("other") == [body for number, body in sent if number % 7 < 3]
        assert desk.bodies() == [body for number, body in sent if number % 7 >= 3] + [b"last"]
        assert offsets(desk) == {1: 62}
        assert desk.store.stats.set_aside == {"schedule": 1}
        assert desk.delays.deliveries == 62


async def test_a_level_goes_on_where_its_queue_begins_now(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    async with still_desk(tmp_path) as desk:
        for body in (b"a", b"b", b"c"):
            await park(desk, 1, body)
        desk.store.queues.table[SCHEDULE_TOPIC, 0].min_offset = 2
        autojump_clock.jump(1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"c"]
        assert "schedule.moved" in events(logged)


async def test_messages_that_are_gone_from_the_log_hold_up_nobody(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path, mapped_file_size_commit_log_bytes=2_048) as desk:
        for number in range(30):
            await park(desk, 1, b"%d" % number)
        autojump_clock.jump(1)
        parked = desk.records(SCHEDULE_TOPIC)
        lost = desk.store.commit_log.queue.files.pop(2)
        kept = [
            bytes(record.body)
            for record in parked
            if not lost.start <= record.physical_offset < lost.end
        ]
        assert 0 < len(kept) < 30
        await desk.schedule.tick()
        assert desk.bodies() == kept
        assert offsets(desk) == {1: 30}
        desk.store.commit_log.queue.files.insert(2, lost)


async def test_a_record_that_cannot_be_read_is_passed_over(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    async with still_desk(tmp_path) as desk:
        for number in range(4):
            await park(desk, 1, b"%d" % number)
        broken = desk.records(SCHEDULE_TOPIC)[1]
        file = desk.store.commit_log.queue.find(broken.physical_offset)
        assert file is not None
        file.pages[broken.physical_offset + 4] ^= 0xFF
        autojump_clock.jump(1)
        await desk.schedule.tick()
        assert desk.bodies() == [b"0", b"2", b"3"]
        assert "message.set_aside" in events(logged)
        assert offsets(desk) == {1: 4}


async def test_a_unit_that_says_no_time_is_due_when_its_record_says(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """4.9.7 writes the hash of the tags into the units that it makes when it recovers."""
    async with still_desk(tmp_path) as desk:
        for body in (b"0", b"1"):
            await park(desk, 2, body, TAGS="blue")
        autojump_clock.jump(1)
        for body in (b"2", b"3"):
            await park(desk, 2, body, TAGS="blue")
    file = tmp_path / "consumequeue" / SCHEDULE_TOPIC / "1" / f"{0:020}"
    data = bytearray(file.read_bytes())
    for at in range(0, 3 * UNIT.size, UNIT.size):
        UNIT.pack_into(data, at, *UNIT.read(data, at)[:2], 3_027_034)
    file.write_bytes(data)
    assert verify(tmp_path).sound
    async with still_desk(tmp_path) as desk:
        for seconds, expected in ((4.9, b""), (0.1, b"01"), (0.9, b"01"), (0.1, b"0123")):
            autojump_clock.jump(seconds)
            await desk.schedule.tick()
            assert b"".join(desk.bodies()) == expected


@pytest.mark.parametrize("dated", [True, False])
async def test_a_record_that_the_disk_altered_is_passed_over_and_no_other_comes_twice(
    tmp_path: Path, autojump_clock: MockClock, *, dated: bool
) -> None:
    """Whether the units say when their messages are due, or only the records do."""
    async with still_desk(tmp_path) as desk:
        for number in range(6):
            await park(desk, 1, b"%d" % number)
        broken = desk.records(SCHEDULE_TOPIC)[2].physical_offset
    log = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[broken + 88] ^= 1
    log.write_bytes(data)
    if not dated:
        file = tmp_path / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020}"
        data = bytearray(file.read_bytes())
        for at in range(0, 6 * UNIT.size, UNIT.size):
            UNIT.pack_into(data, at, *UNIT.read(data, at)[:2], 3_027_034)
        file.write_bytes(data)
    async with still_desk(tmp_path) as desk:
        later(desk, 1_000)
        await desk.schedule.tick()
        assert desk.bodies() == [b"0", b"1", b"3", b"4", b"5"]
        assert offsets(desk) == {1: 6}


async def test_a_body_that_the_disk_alters_meanwhile_is_not_copied(tmp_path: Path) -> None:
    """A copy with the CRC of the message would be damage at the end of the log, one with another
    CRC would look whole.
    """
    async with still_desk(tmp_path) as desk:
        for body in (b"first", b"spoilt", b"third"):
            await park(desk, 1, body)
        spoil(tmp_path, b"spoilt")
        later(desk, 1_000)
        await desk.schedule.tick()
        assert desk.bodies() == [b"first", b"third"]
        assert desk.store.stats.set_aside == {"schedule": 1}
        assert offsets(desk) == {1: 3}
    assert verify(tmp_path).counts == {"crc": 1}, "the message, and no copy"


async def test_what_lies_on_disk_is_waited_for_outside_the_loop(tmp_path: Path) -> None:
    async with still_desk(tmp_path) as desk:
        await park(desk, 1)
    disk = ColdDisk()
    async with still_desk(tmp_path, disk) as desk, trio.open_nursery() as nursery:
        later(desk, 5_000)
        await nursery.start(desk.store.run)
        await desk.schedule.tick()
        assert disk.waited
        assert desk.bodies() == [b"hello"]
        nursery.cancel_scope.cancel()


async def test_after_the_last_save_nothing_is_delivered(tmp_path: Path) -> None:
    async with still_desk(tmp_path) as desk, trio.open_nursery() as nursery:
        await nursery.start(desk.store.run)
        await park(desk, 1)
        later(desk, 5_000)
        desk.puts.close()
        await desk.saver.save_all()
        await desk.schedule.tick()
        assert desk.bodies() == []
        assert not desk.schedule.blocked
        nursery.cancel_scope.cancel()
    async with still_desk(tmp_path) as desk:
        later(desk, 5_000)
        await desk.schedule.tick()
        assert desk.bodies() == [b"hello"]


async def test_delivered_messages_are_counted_for_both_topics(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        await park(desk, 1)
        autojump_clock.jump(1)
        await desk.schedule.tick()
        stats = desk.stats
        assert stats.topics_in[SCHEDULE_TOPIC, "delay"].messages_in == 1
        assert stats.topics_in["t", "delay"].messages_in == 1
        assert stats.groups_out["SCHEDULE_CONSUMER", SCHEDULE_TOPIC].messages_out == 1


async def test_the_progress_of_the_levels_is_what_their_file_holds(tmp_path: Path) -> None:
    async with still_desk(tmp_path) as desk:
        desk.delays.delivered(3, 0, 7, 7, 0)
        answer = await desk.ask(GetAllDelayOffset())
        assert json.loads(body_of(answer))["offsetTable"] == {"3": 7}


# ── kills ──


async def deliver_and_die(
    disk: FaultyDisk, *, saved_first: int, then: int, flush: FlushDiskType
) -> None:
    """Deliver that many, save how far, deliver more, and end without a word."""
    config = broker_config(disk.root / "d", flush_disk_type=flush)
    desk = Desk(Broker(config, disk=disk, clock=TrioClock()))
    desk.load()
    desk.topic()
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.store.run)
        for group in (range(saved_first), range(saved_first, saved_first + then)):
            for number in group:
                await park(desk, 1, b"%d" % number)
            later(desk, 2_000)
            await desk.schedule.tick()
            if group.start == 0:
                await desk.delay_file.save()

        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_kill_after_a_delivery_repeats_what_was_not_saved_and_loses_none(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    disk = FaultyDisk(tmp_path)
    await deliver_and_die(disk, saved_first=20, then=10, flush=flush)
    disk.kill()
    async with still_desk(tmp_path / "d") as desk:
        later(desk, 60_000)
        await desk.schedule.tick()
        counts = Counter(desk.bodies())
        assert counts == {b"%d" % number: 1 + (number >= 20) for number in range(30)}


@pytest.mark.parametrize("keep", [0.0, 0.5])
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_power_cut_never_leaves_an_offset_without_its_deliveries(
    tmp_path: Path, flush: FlushDiskType, keep: float
) -> None:
    (tmp_path / "a").mkdir()
    disk = FaultyDisk(tmp_path / "a")
    await deliver_and_die(disk, saved_first=20, then=10, flush=flush)
    disk.power_cut(tmp_path / "b", Random(1), keep=keep)
    async with still_desk(tmp_path / "b" / "d") as desk:
        later(desk, 60_000)
        await desk.schedule.tick()
        counts = Counter(desk.bodies())
        assert set(counts) >= {b"%d" % number for number in range(20)}
        assert max(counts.values()) <= 2
        if flush is FlushDiskType.SYNC_FLUSH:
            assert len(counts) == 30, "all of them were acknowledged"


async def test_a_message_whose_properties_are_full_is_delivered_and_one_byte_more_is_refused(
    tmp_path: Path,
) -> None:
    """Its target takes room beside them, which a send must leave."""
    async with still_desk(tmp_path) as desk:
        await park(desk, 1, b"small", UNIQ_KEY="U", big="x")
        (small,) = desk.records(SCHEDULE_TOPIC, 0)
        big = "x" * (32_767 - len(small.properties) + 1)
        await park(desk, 1, b"full", UNIQ_KEY="U", big=big)
        too_long = text(DELAY="1", UNIQ_KEY="U", big=f"{big}x")
        refused = await desk.send("t", b"more", properties=too_long)
        assert refused.code == Code.MESSAGE_ILLEGAL
        assert "longer than 32767 bytes" in (refused.remark or "")
        later(desk, 1_000)
        await desk.schedule.tick()
        found = desk.records("t")
        assert [bytes(one.body) for one in found] == [b"small", b"full"]
        assert decode(found[1].properties)["big"] == big
        assert len(found[1].properties) == 32_767


async def test_a_message_comes_to_a_queue_that_its_topic_still_has(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with still_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=8, write_queue_nums=8)
        for queue_id in range(8):
            await desk.send("t", b"%d" % queue_id, queue_id=queue_id, properties=text(DELAY="1"))
        desk.topic("t", read_queue_nums=3, write_queue_nums=3)
        later(desk, 1_500)
        await desk.schedule.tick()
        assert [desk.store.max_offset("t", queue_id) for queue_id in range(8)] == [3, 3, 2] + 5 * [
            0
        ]
