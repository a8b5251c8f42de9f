"""Timers from the send to the consumer, by a virtual clock."""

from __future__ import annotations

import errno
import os
import random
import shutil
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
import trio.testing

from aerobee.broker.timers import timer_delivery
from aerobee.broker.timers.timers import window_ms
from aerobee.remoting.wire.headers.admin import UpdateBrokerConfig
from aerobee.remoting.wire.headers.cleanup import DeleteExpiredCommitLog
from aerobee.remoting.wire.headers.send import RecallMessage
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.messages.writer import Writer
from aerobee.store.results import PutResult, PutStatus
from tests.broker.desk import Desk, open_desk, said, spoil
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.quick_disk import WornDisk
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.broker.timers.timers import Timers
    from aerobee.remoting.wire.answer import Answer
    from aerobee.store.files.disk import Disk
    from aerobee.store.format.copies import StoredMessage

START_MS = 1_700_000_000_000
DAY_S = 86_400
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


class Bench:
    """A desk with the service of timers."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        assert self.desk.timers is not None
        self.timers: Timers = self.desk.timers
        self.count = 0

    async def send(self, body: bytes = b"tick", topic: str = "t", **properties: Any) -> Answer:
        """Send with such properties, and a unique key."""
        self.count += 1
        given = {"UNIQ_KEY": f"K{self.count}", **{n: str(v) for n, v in properties.items()}}
        return await self.desk.send(topic, body, properties=encode(given))

    async def recall(self, handle: str, topic: str = "t") -> Answer:
        return await self.desk.ask(RecallMessage(topic=topic, recall_handle=handle))

    def when(self) -> dict[bytes, int]:
        """Body → store time in ms since the start."""
        return {bytes(r.body): r.store_timestamp - START_MS for r in self.desk.records()}


@asynccontextmanager
async def open_bench(
    root: Path, disk: Disk | None = None, *, clock: Any = None, clean: bool = True, **how: Any
) -> AsyncIterator[Bench]:
    async with open_desk(root, disk, clock=clock, **how) as desk, trio.open_nursery() as nursery:
        timers = desk.timers
        assert timers is not None
        await nursery.start(timers.run)
        if desk.topics.get("t") is None:
            desk.topic()
        yield Bench(desk)
        if clean:
            await timers.close()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_timer_is_delivered_within_a_second_behind_its_time(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        wanted = {b"a": 1, b"b": 999, b"c": 1000, b"d": 1001, b"e": 5_000, b"f": 7_531}
        for body, after_ms in wanted.items():
            await bench.send(body, TIMER_DELIVER_MS=bench.desk.now_ms() + after_ms)
        assert bench.desk.bodies() == []
        await bench.desk.pass_s(20)
        when = bench.when()
        assert set(when) == set(wanted)
        for body, after_ms in wanted.items():
            assert after_ms <= when[body] <= after_ms + 1_200, body


@pytest.mark.trio
async def test_what_a_consumer_gets_has_the_strings_of_the_java_broker(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        answer = await bench.send(b"x", TIMER_DELAY_SEC=3, TAGS="A")
        assert said(answer)["queueOffset"] == "0"
        (waiting,) = bench.desk.records(WHEEL_TOPIC)
        await bench.desk.pass_s(10)
        (record,) = bench.desk.records()
    came, went = decode(waiting.properties), decode(record.properties)
    assert came["TIMER_OUT_MS"] == str(START_MS + 2_000)
    assert (came["REAL_TOPIC"], came["REAL_QID"]) == ("t", "0")
    assert record.properties.startswith(waiting.properties)
    assert {*went} - {*came} == {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    assert int(went["TIMER_ENQUEUE_MS"]) == START_MS
    assert int(went["TIMER_DEQUEUE_MS"]) == record.store_timestamp
    assert (record.topic, record.born_timestamp) == ("t", waiting.born_timestamp)


@pytest.mark.trio
@pytest.mark.parametrize("days", [1, 2, 3, 5, 40])
async def test_a_timer_days_ahead_goes_round_and_comes_in_time(
    tmp_path: Path, mock_clock: MockClock, days: int
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"far", TIMER_DELAY_SEC=days * DAY_S)
        await bench.desk.pass_s(days * DAY_S - 4, step_s=3_600)
        await bench.desk.pass_s(2)
        assert bench.desk.bodies() == []
        rolled = decode(bench.desk.records(WHEEL_TOPIC)[-1].properties)
        assert int(rolled.get("TIMER_ROLL_TIMES", 0)) == len(bench.desk.records(WHEEL_TOPIC)) - 1
        assert (days > 2) == ("TIMER_ROLL_TIMES" in rolled)
        await bench.desk.pass_s(4)
        assert 0 <= bench.when()[b"far"] - days * DAY_S * 1000 <= 1_500
        assert bench.timers.timers.waiting == 0
        assert not bench.desk.timing.waiting


@pytest.mark.trio
async def test_a_time_that_is_past_is_now(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"past", TIMER_DELIVER_MS=START_MS - 1)
        await bench.send(b"negative", TIMER_DELAY_SEC=-5)
        assert bench.desk.bodies() == [b"past", b"negative"]


@pytest.mark.trio
async def test_a_timer_that_was_taken_back_does_not_come(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path, recall_message_enable=True) as bench:
        near = await bench.send(b"near", TIMER_DELAY_SEC=10)
        far = await bench.send(b"far", TIMER_DELAY_SEC=3 * DAY_S)
        await bench.send(b"near too", TIMER_DELAY_SEC=10)
        await bench.desk.pass_s(1)
        for answer, key in ((near, "K1"), (far, "K2")):
            taken = await bench.recall(said(answer)["recallHandle"])
            assert (taken.code, said(taken)["msgId"]) == (0, key)
        await bench.desk.pass_s(20)
        await bench.desk.pass_s(4 * DAY_S, step_s=3_600)
        assert bench.desk.bodies() == [b"near too"]
        assert bench.timers.delivery.recalled == 2
        assert not bench.desk.timing.waiting
        late = await bench.recall(said(near)["recallHandle"])
        assert late.code == 604


@pytest.mark.trio
async def test_the_key_of_another_topic_takes_nothing_back(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        bench.desk.topic("other")
        for topic in ("t", "other"):
            await bench.send(b"x", topic, UNIQ_KEY="same", TIMER_DELAY_SEC=10)
        await bench.send(b"0", UNIQ_KEY="same", TIMER_DELAY_SEC=10, TIMER_DEL_UNIQKEY="t+same")
        await bench.desk.pass_s(20)
        assert (bench.desk.bodies(), bench.desk.bodies("other")) == ([], [b"x"])


@pytest.mark.trio
async def test_timers_that_wait_outlive_a_clean_stop(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_bench(tmp_path) as bench:
        for number in range(100):
            await bench.send(b"%d" % number, TIMER_DELAY_SEC=5 + number % 7)
        await bench.desk.pass_s(7.9)
        before = bench.desk.bodies()
        assert 0 < len(before) < 100
        ended_ms = bench.desk.now_ms()
    clock = TrioClock(ended_ms)
    async with open_bench(tmp_path, clock=clock) as bench:
        assert bench.timers.timers.waiting == 100 - len(before)
        await bench.desk.pass_s(10)
        assert sorted(bench.desk.bodies(), key=int) == [b"%d" % number for number in range(100)]


@pytest.mark.trio
async def test_a_timer_that_a_kill_left_outside_the_wheel_keeps_its_precision(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path, timer_precision_ms=1_000) as bench:
        await bench.timers.close()
        await bench.send(b"t", TIMER_DELIVER_MS=START_MS + 1_800)
    clock = TrioClock(START_MS + 1_600)
    async with open_bench(tmp_path, clock=clock, timer_precision_ms=500) as bench:
        await bench.desk.pass_s(3, step_s=0.1)
        assert bench.when()[b"t"] >= 1_800
    async with open_bench(tmp_path, clock=clock, timer_precision_ms=500) as bench:
        assert bench.timers.timers.precision_ms == 500, "no timer waits any more"


@pytest.mark.trio
async def test_what_is_due_while_the_broker_is_down_comes_at_the_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"down", TIMER_DELAY_SEC=5)
        await bench.send(b"long", TIMER_DELAY_SEC=30 * DAY_S)
        await bench.desk.pass_s(1)
    clock = TrioClock(START_MS + 31 * DAY_S * 1000)
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.desk.pass_s(3)
        assert sorted(bench.desk.bodies()) == [b"down", b"long"]


@pytest.mark.trio
@pytest.mark.parametrize("down_s", [0, 5, 31 * DAY_S])
async def test_what_was_taken_back_does_not_come_late_either(
    tmp_path: Path, mock_clock: MockClock, down_s: int
) -> None:
    async with open_bench(tmp_path, recall_message_enable=True) as bench:
        answers = [await bench.send(b"%d" % days, TIMER_DELAY_SEC=days * DAY_S) for days in (30, 3)]
        for number in range(100):
            await bench.send(b"kept", TIMER_DELAY_SEC=3 * DAY_S + number)
        await bench.send(b"down", TIMER_DELAY_SEC=3)
        answers.append(await bench.send(b"late", TIMER_DELAY_SEC=3))
        for answer in answers:
            assert (await bench.recall(said(answer)["recallHandle"])).code == 0
        ended_ms = bench.desk.now_ms()
    clock = TrioClock(ended_ms + down_s * 1000)
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.desk.pass_s(5)
        await bench.desk.pass_s(31 * DAY_S, step_s=3_600)
        assert sorted(bench.desk.bodies()) == [b"down"] + [b"kept"] * 100
        assert not bench.desk.timing.waiting
        assert not bench.timers.enqueue.recalls_ahead


@pytest.mark.trio
async def test_recalls_of_late_timers_take_no_more_memory_than_their_limit(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.timers.timer_enqueue.RECALLS_AHEAD_MAX", 1)
    # No service of timers: none of them is read before it is late.
    async with open_desk(tmp_path, recall_message_enable=True) as desk:
        desk.topic()
        bench = Bench(desk)
        answers = [await bench.send(b"%d" % number, TIMER_DELAY_SEC=3) for number in range(3)]
        for answer in answers:
            assert (await bench.recall(said(answer)["recallHandle"])).code == 0
        ended_ms = bench.desk.now_ms()
    async with open_bench(tmp_path, clock=TrioClock(ended_ms + 9_000)) as bench:
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == [b"1", b"2"]


@pytest.mark.trio
async def test_a_clock_that_goes_back_makes_no_timer_early(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    clock = TrioClock(START_MS)
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.send(b"before", TIMER_DELAY_SEC=5)
        await bench.desk.pass_s(10)
        clock.start_ms -= 3_600_000
        asked_ms = clock.now_ms() + 30_000
        await bench.send(b"after", TIMER_DELIVER_MS=asked_ms)
        await bench.desk.pass_s(29)
        assert bench.desk.bodies() == [b"before"]
        await bench.desk.pass_s(3)
        assert bench.desk.bodies() == [b"before", b"after"]
        await bench.desk.pass_s(3_700, step_s=30)
        assert bench.desk.bodies() == [b"before", b"after"], "no slot is delivered twice"


@pytest.mark.trio
async def test_a_clock_that_jumps_ahead_loses_no_timer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    clock = TrioClock(START_MS)
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.send(b"within", TIMER_DELAY_SEC=DAY_S)
        await bench.send(b"beyond", TIMER_DELAY_SEC=6 * DAY_S)
        await bench.desk.pass_s(1)
        clock.start_ms += 5 * DAY_S * 1000
        await bench.desk.pass_s(2)
        assert bench.desk.bodies() == [b"within"]
        await bench.desk.pass_s(DAY_S + 1, step_s=3_600)
        assert bench.desk.bodies() == [b"within", b"beyond"]


class NoMoreTurns:
    """Whoever rests is not woken before the stop."""

    def begin(self) -> None:
        pass

    def over(self) -> bool:
        return True

    async def rest(self) -> None:
        await trio.sleep_forever()


def java_delivers(bench: Bench) -> list[bytes]:
    """Bodies of what a Java broker delivers that continues from the files.

    It puts every unit of the timer log into its slot again, also those of slots that are empty,
    begins with the slots at the time of the check file, and reads the wheel topic behind the
    message of the last unit. Source: semantics §9.4 (TimerMessageStore.recover).
    """
    timers = bench.timers.timers
    check = timers.check.load()
    assert check is not None
    records = {record.physical_offset: record for record in bench.desk.records(WHEEL_TOPIC)}
    slots: dict[int, int] = {}
    queue_offset = -1
    for position, unit in timers.log.units(timers.log.begin):
        slots[unit.due_ms] = position
        queue_offset = records[unit.physical_offset].queue_offset
    found = []
    for time_ms, position in sorted(slots.items()):
        while time_ms >= check.last_read_time_ms:
            chained = timers.log.unit(position)
            if chained is None:
                break
            found.append(records[chained.physical_offset])
            position = chained.previous
    begin = min(queue_offset + 1, check.master_queue_offset) if slots else check.queue_offset
    found += [record for record in records.values() if record.queue_offset >= begin]
    return [bytes(record.body) for record in found]


@pytest.mark.trio
async def test_a_stop_right_behind_a_delivery_has_nothing_delivered_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    sent = [b"0", b"1", b"2"]
    async with open_bench(tmp_path) as bench:
        for body in sent:
            await bench.send(body, TIMER_DELAY_MS=1_000)
        await bench.desk.pass_s(0.5)
        bench.timers.delivery.pace = NoMoreTurns()  # type: ignore[assignment]  # no clock of its own
        await bench.desk.pass_s(3)
        assert bench.desk.bodies() == sent
        await bench.timers.close()
        assert java_delivers(bench) == []
        ended_ms = bench.desk.now_ms()
    async with open_bench(tmp_path, clock=TrioClock(ended_ms)) as bench:
        await bench.desk.pass_s(3)
        assert bench.desk.bodies() == sent


@pytest.mark.trio
async def test_a_timer_that_came_late_does_not_come_again_from_a_java_broker(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    # No service of timers: the broker ended before it had read them.
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bench = Bench(desk)
        await bench.send(b"waits", TIMER_DELAY_SEC=60)
        for number in range(3):
            await bench.send(b"%d" % number, TIMER_DELAY_SEC=3)
        ended_ms = bench.desk.now_ms()
    async with open_bench(tmp_path, clock=TrioClock(ended_ms + 9_000)) as bench:
        await bench.desk.pass_s(3)
        assert bench.desk.bodies() == [b"0", b"1", b"2"]
        await bench.timers.close()
        assert java_delivers(bench) == [b"waits"]
        ended_ms = bench.desk.now_ms()
    async with open_bench(tmp_path, clock=TrioClock(ended_ms)) as bench:
        await bench.desk.pass_s(60)
        assert bench.desk.bodies() == [b"0", b"1", b"2", b"waits"]


class SomeTurns(NoMoreTurns):
    """Whoever rests goes on so often, then no more."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def rest(self) -> None:
        self.turns -= 1
        if self.turns < 0:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()


def linked(bench: Bench) -> list[int]:
    """Physical offsets of all units that a broker comes to which follows the links alone."""
    timers = bench.timers.timers
    found = []
    for _, slot in timers.wheel.chains():
        position = slot.last
        while (unit := timers.log.unit(position)) is not None:
            found.append(unit.physical_offset)
            position = unit.previous
    return sorted(found)


@pytest.mark.trio
@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("turns", [0, 1, 2, 4])
@pytest.mark.parametrize("recalls", [(), (3, 150), (150, 190), (70, 3, 199)])
async def test_a_stop_in_the_middle_of_a_slot_leaves_the_rest_of_it(
    tmp_path: Path, mock_clock: MockClock, recalls: tuple[int, ...], turns: int, saved: bool
) -> None:
    sent = [b"%d" % number for number in range(200)]
    left = [body for number, body in enumerate(sent) if number not in recalls]
    async with open_bench(tmp_path) as bench:

        async def take_back(number: int) -> None:
            await bench.send(
                b"-", UNIQ_KEY="-", TIMER_DELAY_MS=3_000, TIMER_DEL_UNIQKEY=f"t+U{number}"
            )

        for number, body in enumerate(sent):
            if number in recalls and number == recalls[-1]:
                # As one may with a key that is used again.
                await take_back(number)
            await bench.send(body, UNIQ_KEY=f"U{number}", TIMER_DELAY_MS=3_000)
        for number in recalls[:-1]:
            await take_back(number)
        await bench.desk.pass_s(1.5 if saved else 0.2, step_s=0.1)
        bench.timers.delivery.pace = SomeTurns(turns)  # type: ignore[assignment]  # no clock of its own
        await bench.desk.pass_s(5)
        there = bench.desk.bodies()
        assert there == left[: len(there)]
        ended_ms = bench.desk.now_ms()
    async with open_bench(tmp_path, clock=TrioClock(ended_ms)) as bench:
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == left
        assert not bench.timers.timers.waiting
        assert not bench.desk.timing.waiting


@pytest.mark.trio
async def test_who_follows_the_links_alone_finds_no_more_than_the_rest(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        for number in range(300):
            await bench.send(b"%d" % number, TIMER_DELAY_MS=3_000)
            if number == 10:
                await bench.send(b"-", TIMER_DELAY_MS=3_000, TIMER_DEL_UNIQKEY="t+nobody")
        await bench.desk.pass_s(1.5)
        records = {r.physical_offset: bytes(r.body) for r in bench.desk.records(WHEEL_TOPIC)}
        bench.timers.delivery.pace = SomeTurns(1)  # type: ignore[assignment]  # no clock of its own
        await bench.desk.pass_s(5)
        there = set(bench.desk.bodies())
        assert 0 < len(there) < 300
        await bench.timers.close()
        rest = [records[at] for at in linked(bench)]
        assert rest == [body for body in records.values() if body not in there]
        assert b"-" in rest


@pytest.mark.trio
async def test_a_record_that_nobody_can_deliver_stops_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        for properties in (b"", b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02"):
            draft = MessageDraft(WHEEL_TOPIC, 0, b"?", properties, HOST, HOST)
            bench.desk.puts.put_as_is(draft)
        await bench.send(b"good", TIMER_DELAY_SEC=2)
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == [b"good"]
        assert bench.timers.timers.queue_offset == 3


@pytest.mark.trio
async def test_a_timer_whose_body_the_disk_altered_is_set_aside(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        for body in (b"first", b"spoilt", b"third"):
            await bench.send(body, TIMER_DELAY_SEC=2)
        spoil(tmp_path, b"spoilt")
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == [b"first", b"third"]
        assert bench.desk.store.stats.set_aside == {"timers": 1}


@pytest.mark.trio
async def test_a_timer_is_not_rolled_once_its_topic_was_deleted(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"far", TIMER_DELAY_SEC=3 * DAY_S)
        await bench.desk.pass_s(5)
        log_end = bench.desk.store.commit_log.max_offset
        assert bench.desk.topics.delete("t", 0, log_end)
        await bench.desk.pass_s(3 * DAY_S, step_s=3_600)
        assert bench.desk.bodies() == []
        assert len(bench.desk.records(WHEEL_TOPIC)) == 1
        assert bench.desk.store.stats.set_aside == {"timers": 1}


@pytest.mark.trio
async def test_what_the_store_refuses_is_delivered_later(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        for number in range(200):
            await bench.send(b"%d" % number, TIMER_DELAY_SEC=2)
        await bench.desk.pass_s(1)
        bench.desk.store.flags.set(Flag.DISK_FULL, "no room")
        await bench.desk.pass_s(10)
        assert bench.desk.bodies() == []
        bench.desk.store.flags.clear(Flag.DISK_FULL)
        await bench.desk.pass_s(2)
        assert bench.desk.bodies() == [b"%d" % number for number in range(200)]


@pytest.mark.trio
@pytest.mark.parametrize("recalls", [False, True])
async def test_a_slot_goes_on_where_the_store_refused(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, recalls: bool
) -> None:
    async with open_bench(tmp_path) as bench:
        for number in range(200):
            await bench.send(b"%d" % number, TIMER_DELAY_SEC=2)
        if recalls:
            await bench.send(b"-", TIMER_DELAY_SEC=2, TIMER_DEL_UNIQKEY="t+nobody")
        await bench.desk.pass_s(1)
        puts = bench.desk.puts
        rooms = iter([True] * 100 + [False] * 2 + [True] * 100)
        put, put_copies = puts.put_again, Writer.put_copies

        def put_if_room(draft: MessageDraft) -> PutResult:
            return put(draft) if next(rooms) else PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

        def put_while_room(
            writer: Writer, topic: str, queue_id: int, run: list[tuple[StoredMessage, bytes]]
        ) -> PutResult:
            fitting = len([*takewhile(lambda _: next(rooms), run)])
            result = put_copies(writer, topic, queue_id, run[:fitting])
            status = PutStatus.PUT_OK if fitting == len(run) else PutStatus.SERVICE_NOT_AVAILABLE
            return msgspec.structs.replace(result, status=status)

        monkeypatch.setattr(puts, "put_again", put_if_room)
        monkeypatch.setattr(Writer, "put_copies", put_while_room)
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == [b"%d" % number for number in range(200)]


@pytest.mark.trio
async def test_a_message_whose_properties_leave_no_room_comes_as_it_was(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"x", TIMER_DELAY_SEC=2)
        (waiting,) = bench.desk.records(WHEEL_TOPIC)
        filler = "x" * (32_767 - len(waiting.properties) - 20)
        await bench.send(b"full", TIMER_DELAY_SEC=2, f=filler)
        await bench.send(b"y", TIMER_DELAY_SEC=2)
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == [b"x", b"full", b"y"]
        full = bench.desk.records()[1]
        assert bytes(full.body) == b"full"
        assert "TIMER_DEQUEUE_MS" not in decode(full.properties)


@pytest.mark.trio
async def test_long_timers_are_put_a_few_at_a_time(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step has at most a mebibyte of them, or one; else 256 of 4 MiB would be copied in one."""
    put_copies, sizes = Writer.put_copies, []

    def put(
        writer: Writer, topic: str, queue_id: int, run: list[tuple[StoredMessage, bytes]]
    ) -> PutResult:
        sizes.append(sum(message.size for message, _ in run))
        return put_copies(writer, topic, queue_id, run)

    async with open_bench(tmp_path) as bench:
        bodies = [b"%d" % number * 400_000 for number in range(6)] + [b"s" * 10] * 3
        for body in bodies:
            await bench.send(body, TIMER_DELAY_SEC=2)
        monkeypatch.setattr(Writer, "put_copies", put)
        await bench.desk.pass_s(5)
        assert bench.desk.bodies() == bodies
    assert len(sizes) == 3
    assert max(sizes) < timer_delivery.READ_BYTES


@pytest.mark.trio
async def test_without_the_wheel_timers_are_refused(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path, timer_wheel_enable=False) as desk:
        desk.topic()
        answer = await desk.send(properties="TIMER_DELAY_SEC\x015\x02")
        assert answer.code == 1
        assert "timerWheelEnable" in (answer.remark or "")
        assert desk.timers is None


@pytest.mark.trio
async def test_a_broker_without_timers_makes_no_files_for_them(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"ordinary")
        await bench.desk.pass_s(60)
    assert not (tmp_path / "timerwheel").exists()
    assert not (tmp_path / "timerlog").exists()


@pytest.mark.trio
async def test_progress_is_not_saved_before_what_it_speaks_of(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The commit log cannot be synced: no check file says that a message was dealt with."""
    disk = FaultyDisk(tmp_path)
    async with open_bench(tmp_path, disk) as bench:
        await bench.send(b"x", TIMER_DELAY_SEC=2)
        disk.faults.append(Fault(name="fdatasync", path="commitlog", times=1000))
        for _ in range(10):
            mock_clock.jump(0.5)
            await trio.testing.wait_all_tasks_blocked()
            async with bench.timers.saving:
                pass
        assert bench.timers.timers.queue_offset == 1
        assert not (tmp_path / "config" / "timercheck").exists()


@pytest.mark.trio
async def test_nothing_is_saved_behind_a_sync_that_failed(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="fdatasync", path="timerlog"))
    async with open_bench(tmp_path, disk) as bench:
        await bench.send(b"x", TIMER_DELAY_SEC=5)
        await bench.desk.pass_s(20)
        assert bench.timers.failure is not None
        assert not (tmp_path / "config" / "timercheck").exists()
        assert bench.desk.store.flags.cause.startswith("a sync of the timers failed")


@pytest.mark.trio
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_save_that_cannot_be_written_is_made_up_for(
    tmp_path: Path, mock_clock: MockClock, error: int
) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="pwrite", path="/timer", error=error, times=3))
    async with open_bench(tmp_path, disk) as bench:
        for number in range(20):
            await bench.send(b"%d" % number, TIMER_DELAY_SEC=60)
        await bench.desk.pass_s(30)
        saved = bench.timers.timers.check.value
        assert saved is not None
        assert saved.queue_offset == 20
    async with open_bench(tmp_path, clock=TrioClock(START_MS + 30_000)) as bench:
        await bench.desk.pass_s(40)
        assert len(bench.desk.bodies()) == 20


@pytest.mark.trio
@pytest.mark.parametrize("unread", [False, True], ids=["in its slot", "in the wheel topic"])
async def test_a_timer_that_the_disk_cannot_read_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock, unread: bool
) -> None:
    """It is tried again every minute, from another slot, over starts as well."""
    disk = WornDisk()
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS)) as bench:
        if unread:
            bench.timers.enqueue.needless.update(range(1_000))
        for body in (b"a", b"worn", b"c"):
            await bench.send(body, TIMER_DELAY_SEC=30)
        await bench.desk.pass_s(5)
        if unread:
            bench.timers.timers.queue_offset = 0
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS + 10_000)) as bench:
        disk.bad = b"worn"
        await bench.desk.pass_s(40)
        assert bench.desk.bodies() == [b"a", b"c"]
    disk.bad = b""
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS + 50_000)) as bench:
        await bench.desk.pass_s(90)
        assert bench.desk.bodies() == [b"a", b"c", b"worn"]
        assert bench.timers.timers.waiting == 0


@pytest.mark.trio
async def test_a_late_timer_does_not_wait_for_what_the_disk_cannot_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The messages behind it are searched for its recall."""
    disk = WornDisk()
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS)) as bench:
        bench.timers.enqueue.needless.update(range(1_000))
        for body, delay_s in ((b"a", 30), (b"worn", 300), (b"c", 30)):
            await bench.send(body, TIMER_DELAY_SEC=delay_s)
        await bench.desk.pass_s(5)
        bench.timers.timers.queue_offset = 0
    clock = TrioClock(START_MS + 60_000)
    async with open_desk(tmp_path, disk, clock=clock) as desk, trio.open_nursery() as nursery:
        disk.bad = b"worn"
        bench = Bench(desk)
        await nursery.start(bench.timers.run)
        await bench.desk.pass_s(10)
        assert bench.desk.bodies() == [b"a", b"c"]
        assert desk.store.stats.unreadable == {"timers": 1}
        await bench.timers.close()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_timer_that_the_disk_cannot_read_refuses_no_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS)) as bench:
        for body in (b"a", b"worn"):
            await bench.send(body, TIMER_DELAY_SEC=30)
        await bench.desk.pass_s(5)
        await bench.desk.send(body=b"now")
    (tmp_path / "abort").touch()
    disk.bad = b"worn"
    async with open_bench(tmp_path, disk, clock=TrioClock(START_MS + 10_000)) as bench:
        await bench.desk.pass_s(40)
        assert bench.desk.store.max_offset("t", 0) == 2, "with the one that can be read"


async def churn(bench: Bench, rng: random.Random, acked: set[bytes]) -> None:
    """Timers of up to 8 s come and go; those that were acknowledged."""
    for _ in range(40):
        for _ in range(rng.randrange(4)):
            body = b"%d" % bench.count
            answer = await bench.send(body, TIMER_DELAY_MS=rng.randrange(8_000))
            if answer.code == 0:
                acked.add(body)
        await bench.desk.pass_s(0.3)


def copy_if_there(source: str, target: str) -> None:
    """A file that a thread of the store renames just now is not copied."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(3))
async def test_no_timer_is_lost_by_a_kill(tmp_path: Path, mock_clock: MockClock, seed: int) -> None:
    rng = random.Random(seed)
    acked: set[bytes] = set()
    after = tmp_path / "after"
    async with open_bench(tmp_path / "data") as bench:
        await churn(bench, rng, acked)
        async with bench.timers.saving:
            # A copy is not made at one moment, as a kill is: what gets its name meanwhile is left.
            shutil.copytree(tmp_path / "data", after, copy_function=copy_if_there)
        ended_ms = bench.desk.now_ms()
    async with open_bench(after, clock=TrioClock(ended_ms)) as bench:
        await bench.desk.pass_s(12)
        assert set(bench.desk.bodies()) == acked
        assert bench.timers.timers.waiting == 0


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(3))
async def test_no_acknowledged_timer_is_lost_by_a_power_cut(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    rng = random.Random(seed)
    acked: set[bytes] = set()
    root = tmp_path / "data"
    root.mkdir()
    disk = FaultyDisk(root, granule=512)
    try:
        async with open_bench(root, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as bench:
            disk.faults.append(Fault(number=disk.changes + rng.randrange(400), cut=True))
            await churn(bench, rng, acked)
            raise PowerCut
    except (PowerCut, BaseExceptionGroup) as end:
        rest = end if isinstance(end, PowerCut) else end.split(PowerCut)[1]
        assert rest is None or isinstance(rest, PowerCut), rest
    after = disk.power_cut(tmp_path / "after", rng)
    async with open_bench(after, clock=TrioClock(START_MS + 60_000)) as bench:
        await bench.desk.pass_s(12)
        assert acked <= set(bench.desk.bodies())


def test_the_window_stays_within_the_time_that_the_log_is_kept() -> None:
    assert window_ms(StoreConfig(), 1_000) == 2 * DAY_S * 1000
    assert window_ms(StoreConfig(file_reserved_time_h=3), 1_000) == 2 * 3600 * 1000
    assert window_ms(StoreConfig(), 100) == 172_800 * 100


@pytest.mark.trio
async def test_timers_outlive_a_retention_that_becomes_shorter_while_they_wait(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path, file_reserved_time_h=72) as bench:
        await bench.send(b"far", TIMER_DELAY_SEC=30 * 3_600)
        for _ in range(11):
            await bench.send(bytes(100_000), topic="filler")
        answer = await bench.desk.ask(UpdateBrokerConfig(), b"fileReservedTime=1\n")
        assert answer.code == 0
        await bench.desk.pass_s(2 * 3_600, 60)
        for segment in (tmp_path / "commitlog").iterdir():
            os.utime(segment, (START_MS / 1_000, START_MS / 1_000))
        await bench.desk.ask(DeleteExpiredCommitLog())
        await bench.desk.pass_s(30, 1)
        assert bench.desk.store.commit_log.min_offset > 0, "the first segment is deleted"
        assert bench.desk.bodies() == []
        await bench.desk.pass_s(28 * 3_600, 300)
        for _ in range(60):  # its last roll may come late, as threads work in real time
            if bench.desk.bodies():
                break
            await bench.desk.pass_s(60, 60)
        assert bench.desk.bodies() == [b"far"]
        assert bench.when()[b"far"] >= 30 * 3_600_000


@pytest.mark.trio
async def test_a_start_with_a_shorter_retention_rolls_what_waits_for_longer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path, file_reserved_time_h=72) as bench:
        await bench.send(b"far", TIMER_DELAY_SEC=30 * 3_600)
        await bench.desk.pass_s(3)
    async with open_bench(tmp_path, file_reserved_time_h=3) as bench:
        await bench.desk.pass_s(3)
        (time_ms,) = bench.timers.timers.wheel.times()
        assert time_ms <= bench.desk.now_ms() + 2 * 3_600_000


@pytest.mark.trio
async def test_a_timer_comes_to_a_queue_that_its_topic_still_has(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        desk = bench.desk
        desk.topic("t", read_queue_nums=8, write_queue_nums=8)
        for queue_id in range(8):
            text = encode({"TIMER_DELAY_SEC": "2", "UNIQ_KEY": f"K{queue_id}"})
            await desk.send("t", b"%d" % queue_id, queue_id=queue_id, properties=text)
        desk.topic("t", read_queue_nums=3, write_queue_nums=3)
        await bench.desk.pass_s(5)
        came = [[bytes(record.body) for record in bench.desk.records("t", at)] for at in range(3)]
        assert came == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5"]]
