"""Messages that consumers hand back: each rule in its order, the whole ladder of tries, its end."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace

from aerobee.broker.errors import GroupNotExist
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.group import DeleteGroup
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.names import segment_name
from aerobee.store.format.properties import decode
from tests.broker.delay.test_schedule import later, still_desk
from tests.broker.desk import Desk, open_desk, said, spoil
from tests.kit.cold_disk import ColdDisk
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer
    from aerobee.store.format.record import Record

pytestmark = pytest.mark.trio
LADDER_S = [10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200]


async def back(desk: Desk, offset: int, group: str = "g", level: int = 0, **more: Any) -> Answer:
    return await desk.ask(
        ConsumerSendMsgBack(offset=offset, group=group, delay_level=level, **more)
    )


async def one(desk: Desk, **fields: Any) -> Record:
    """A message in `t`."""
    desk.topic()
    assert (await desk.send(**fields)).code == Code.SUCCESS
    return desk.records("t")[-1]


def level_of(desk: Desk, level: int) -> list[Record]:
    return desk.records("SCHEDULE_TOPIC_XXXX", level - 1)


def change_group(desk: Desk, name: str = "g", **fields: Any) -> None:
    desk.groups.update(replace(desk.groups.require(name, 0), **fields), 0)


async def test_the_whole_ladder_is_sixteen_tries_and_then_a_dead_letter(tmp_path: Path) -> None:
    async with still_desk(tmp_path) as desk:
        record = await one(desk, properties="TAGS\x01red\x02KEYS\x01k\x02", flag=5)
        first_id = offset_id(record.store_host, record.physical_offset)
        for tries, delay_s in enumerate(LADDER_S, 1):
            assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
            await desk.schedule.tick()
            assert len(desk.records("%RETRY%g")) == tries - 1, "not before its time"
            later(desk, delay_s * 1_000)
            await desk.schedule.tick()
            record = desk.records("%RETRY%g")[-1]
            assert record.reconsume_times == tries
            found = decode(record.properties)
            assert (found["RETRY_TOPIC"], found["ORIGIN_MESSAGE_ID"]) == ("t", first_id)
            assert (found["TAGS"], found["DELAY"]) == ("red", str(2 + tries))
        assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
        (dead,) = desk.records("%DLQ%g")
        assert (dead.reconsume_times, bytes(dead.body), dead.flag) == (17, b"hello", 5)
        assert decode(dead.properties)["DELAY"] == "0"
        assert desk.topics.configs["%DLQ%g"].write_queue_nums == 1
        counters = desk.stats.groups_out["g", "t"]
        assert (counters.sent_back, counters.dead_letters) == (17, 1)


@pytest.mark.parametrize(
    ("left", "tries", "has_origin"),
    [
        *((left, 0, False) for left in (0, 1, 49)),
        *((left, 16, False) for left in (51, 115)),
        *((left, 16, True) for left in (117, 300)),
    ],
)
async def test_a_message_whose_properties_leave_little_room_is_retried_or_becomes_a_dead_letter(
    tmp_path: Path, left: int, tries: int, has_origin: bool
) -> None:
    """What we add gives way, first the origin, then the retries; its own properties never do."""
    own = "UNIQ_KEY\x01U\x02TAGS\x01red\x02big\x01{}\x02"
    async with still_desk(tmp_path) as desk:
        small = await one(desk, properties=own.format("x"))
        big = "x" * (32_767 - left - len(small.properties) + 1)
        record = await one(desk, properties=own.format(big))
        assert len(record.properties) == 32_767 - left
        while not desk.records("%DLQ%g"):
            assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
            later(desk, 7_200_000)
            await desk.schedule.tick()
            record = (desk.records("%RETRY%g") or [record])[-1]
        (dead,) = desk.records("%DLQ%g")
        said = decode(dead.properties)
        assert (dead.reconsume_times, said["TAGS"], said["big"]) == (tries + 1, "red", big)
        assert ("RETRY_TOPIC" in said) == ("ORIGIN_MESSAGE_ID" in said) == has_origin
        counters = desk.stats.groups_out["g", "t" if has_origin or not tries else "%RETRY%g"]
        assert counters.dead_letters == 1


async def test_what_goes_back_keeps_what_the_message_was(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk, properties="TAGS\x01red\x02", flag=3, sys_flag=1)
        assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
        (parked,) = level_of(desk, 3)
        for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host"):
            assert getattr(parked, name) == getattr(record, name), name
        assert parked.reconsume_times == 1
        assert parked.store_host == desk.store_host
        found = decode(parked.properties)
        assert (found["REAL_TOPIC"], found["REAL_QID"], found["WAIT"]) == ("%RETRY%g", "0", "false")


@pytest.mark.parametrize(("level", "where"), [(5, 5), (18, 18), (40, 18)])
async def test_a_level_above_zero_is_taken_as_given(tmp_path: Path, level: int, where: int) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
        assert (await back(desk, record.physical_offset, level=level)).code == Code.SUCCESS
        assert len(level_of(desk, where)) == 1


@pytest.mark.parametrize(
    ("asked", "tries", "group_max"),
    [
        ({"level": -1}, 0, 16),
        ({"max_reconsume_times": 2}, 2, 16),
        ({}, 1, 1),
        ({"max_reconsume_times": 0}, 0, 16),
    ],
)
async def test_what_was_tried_often_enough_is_a_dead_letter_at_once(
    tmp_path: Path, asked: dict[str, Any], tries: int, group_max: int
) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk, reconsume_times=tries)
        change_group(desk, retry_max_times=group_max)
        assert (await back(desk, record.physical_offset, **asked)).code == Code.SUCCESS
        assert len(desk.records("%DLQ%g")) == 1


async def test_the_queues_of_a_retry_topic_are_as_many_as_the_group_has(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
        change_group(desk, retry_queue_nums=4)
        for _ in range(40):
            assert (await back(desk, record.physical_offset, unit_mode=True)).code == Code.SUCCESS
        topic = desk.topics.configs["%RETRY%g"]
        assert (topic.write_queue_nums, topic.read_queue_nums, topic.perm) == (4, 4, 6)
        assert topic.topic_sys_flag == 2
        used = {decode(parked.properties)["REAL_QID"] for parked in level_of(desk, 3)}
        assert used <= set("0123")
        assert len(used) > 1


async def test_a_group_without_retry_queues_is_told_yes_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
        change_group(desk, retry_queue_nums=0)
        end = desk.store.commit_log.max_offset
        assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
        assert desk.store.commit_log.max_offset == end
        assert "%RETRY%g" not in desk.topics.configs


async def test_the_first_rule_that_is_broken_answers(tmp_path: Path) -> None:
    async with open_desk(
        tmp_path, auto_create_subscription_group=False, broker_permission=4
    ) as desk:
        answer = await back(desk, 9_999)
        assert (answer.code, "[g]" in str(answer.remark)) == (
            Code.SUBSCRIPTION_GROUP_NOT_EXIST,
            True,
        )
        desk.groups.update(SubscriptionGroupConfig(group_name="g"), 0)
        assert (await back(desk, 9_999)).code == Code.NO_PERMISSION
    async with open_desk(tmp_path / "2") as desk:
        desk.topic("%RETRY%g", perm=4)
        answer = await back(desk, 9_999)
        assert (answer.code, answer.remark) == (
            Code.NO_PERMISSION,
            "the topic[%RETRY%g] sending message is forbidden",
        )
        desk.topic("%RETRY%g", perm=6)
        for offset in (9_999, -1, 5):
            answer = await back(desk, offset)
            assert (answer.code, answer.remark) == (
                Code.SYSTEM_ERROR,
                f"look message by offset failed, {offset}",
            )


async def test_what_the_store_refuses_is_named(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
        desk.store.flags.set(Flag.DISK_FULL, "full")
        answer = await back(desk, record.physical_offset)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")
        desk.store.flags.clear(Flag.DISK_FULL)


async def test_a_body_that_the_disk_altered_is_set_aside_and_its_consumer_goes_on(
    tmp_path: Path,
) -> None:
    """Refused, it would come back for ever; a copy would look whole."""
    async with still_desk(tmp_path) as desk:
        record = await one(desk, body=b"spoilt")
        spoil(tmp_path, b"spoilt")
        for level in (0, -1):
            assert (await back(desk, record.physical_offset, level=level)).code == Code.SUCCESS
        assert desk.store.stats.set_aside == {"retries": 2}
        assert [level_of(desk, 3), desk.records("%DLQ%g")] == [[], []]


async def test_a_message_on_disk_is_waited_for(tmp_path: Path) -> None:
    disk = ColdDisk()
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
    async with open_desk(tmp_path, disk) as desk:
        assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
        assert disk.waited
        assert len(level_of(desk, 3)) == 1


async def test_what_is_deleted_while_the_disk_is_read_does_not_come_back(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        record = await one(desk)
    async with open_desk(tmp_path, ColdDisk()) as desk:
        header = ConsumerSendMsgBack(offset=record.physical_offset, group="g", delay_level=0)
        first, second = desk.begin(header), desk.begin(header)
        assert (await desk.ask(DeleteTopicInBroker(topic="%RETRY%g"))).code == Code.SUCCESS
        assert (await first).code == Code.SUCCESS
        assert desk.topics.get("%RETRY%g") is not None, "the message waits for it"
        assert (await desk.ask(DeleteGroup("g"))).code == Code.SUCCESS
        with pytest.raises(GroupNotExist):
            await second
        assert len(level_of(desk, 3)) == 1


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_what_is_stored_after_a_read_of_the_disk_waits_for_no_other_request(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    changes: dict[str, Any] = {"flush_disk_type": flush, "flush_interval_commit_log_ms": 600_000}
    async with open_desk(tmp_path, **changes) as desk:
        record = await one(desk)
    async with open_desk(tmp_path, ColdDisk(), **changes) as desk:
        with trio.fail_after(60):
            header = ConsumerSendMsgBack(offset=record.physical_offset, group="g", delay_level=0)
            outcome = await desk.begin(header)
            answer = await desk.peer.next_answer() if outcome is HELD else outcome
        assert answer.code == Code.SUCCESS
        assert desk.store.dispatch_behind_bytes == 0


async def test_under_sync_flush_a_yes_means_on_disk(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path / "d", disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        record = await one(desk)
        assert (await back(desk, record.physical_offset)).code == Code.SUCCESS
        log = desk.store.commit_log
        assert log.flushed == log.max_offset


async def test_all_that_are_sent_back_while_the_disk_works_share_its_next_sync(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    sync: dict[str, Any] = {
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "sync_flush_inline": False,
    }
    async with open_desk(tmp_path, disk, **sync) as desk:
        record = await one(desk)
        header = ConsumerSendMsgBack(offset=record.physical_offset, group="g", delay_level=0)
        gate = Gate(disk, "fdatasync", f"commitlog.{segment_name(0)}")
        first = desk.begin(header)
        desk.after_round()
        await gate.wait_for_a_call()
        others = [desk.begin(header) for _ in range(50)]
        desk.after_round()
        assert {first, *others} == {HELD}
        assert desk.peer.answers == []
        gate.let_go()
        answers = [await desk.peer.next_answer() for _ in range(51)]
        assert {answer.code for answer in answers} == {Code.SUCCESS}


async def test_what_does_not_reach_the_disk_was_not_sent_back(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        record = await one(desk)
        # The first segment by its number: the thread that makes the second one syncs as well.
        disk.faults.append(Fault(name="fdatasync", path="0" * 20, error=errno.EIO))
        answer = await back(desk, record.physical_offset)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")


# ── resent by the consumer itself ──


@pytest.mark.parametrize(
    ("fields", "dead"),
    [
        ({"reconsume_times": 16}, False),
        ({"reconsume_times": 17}, True),
        ({"reconsume_times": 2, "max_reconsume_times": 1}, True),
        ({"reconsume_times": 1, "max_reconsume_times": 1}, False),
        ({}, False),
    ],
    ids=str,
)
async def test_a_message_sent_to_the_retry_topic_is_dead_beyond_the_limit(
    tmp_path: Path, fields: dict[str, Any], dead: bool
) -> None:
    async with open_desk(tmp_path) as desk:
        answer = await desk.send("%RETRY%g", properties="DELAY\x013\x02TAGS\x01a\x02", **fields)
        assert (answer.code, said(answer)["queueId"]) == (Code.SUCCESS, "0")
        letters = desk.records("%DLQ%g")
        assert len(letters) == dead
        assert len(level_of(desk, 3)) == (not dead)
        if dead:
            assert decode(letters[0].properties)["DELAY"] == "-1"
            assert desk.stats.groups_out["g", "%RETRY%g"].dead_letters == 1


async def test_an_origin_that_a_sender_made_up_has_no_series(tmp_path: Path) -> None:
    """A property of 31 KB was a label of its own, and dead letters counted for any topic."""
    async with open_desk(tmp_path) as desk:
        desk.topic("of-others")
        for origin in ("x" * 31_000, "of-others"):
            forged = f"RETRY_TOPIC\x01{origin}\x02"
            assert (await desk.send("%RETRY%g", properties=forged, reconsume_times=17)).code == 0
        assert desk.stats.groups_out == {}
        assert desk.stats.overflow_out.dead_letters == 2


async def test_a_group_that_consumes_in_order_sends_only_what_it_gave_up(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        monotonic_ms = int(desk.clock.monotonic() * 1000)
        desk.locks.lock("g", "c", ["a queue"], monotonic_ms)  # type: ignore[list-item]  # any name does
        assert (await desk.send("%RETRY%g", reconsume_times=1)).code == Code.SUCCESS
        assert len(desk.records("%DLQ%g")) == 1
        assert (await desk.send("%RETRY%other", reconsume_times=1)).code == Code.SUCCESS
        assert desk.records("%DLQ%other") == []


async def test_a_dead_letter_sent_by_name_is_an_ordinary_message(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert (await desk.send("%DLQ%g", reconsume_times=99)).code == Code.SUCCESS
        assert len(desk.records("%DLQ%g")) == 1


async def test_what_is_nobodys_to_consume_cannot_be_handed_back(tmp_path: Path) -> None:
    """A half that is handed back would be delivered without having been committed."""
    async with open_desk(tmp_path) as desk:
        desk.topic()
        for properties in ("TRAN_MSG\x01true\x02PGROUP\x01p\x02", "DELAY\x015\x02"):
            offset = desk.store.commit_log.max_offset
            assert (await desk.send(properties=properties)).code == Code.SUCCESS
            answer = await back(desk, offset)
            assert answer.code == Code.SYSTEM_ERROR
            assert answer.remark == f"look message by offset failed, {offset}"
            assert desk.records("%RETRY%g") == []


@pytest.mark.parametrize("left", [0, 8, 9])
async def test_a_message_given_up_by_its_consumer_is_a_dead_letter_however_full_it_is(
    tmp_path: Path, left: int
) -> None:
    """The consumer sends it to the retry topic itself, beyond its tries."""
    async with open_desk(tmp_path) as desk:
        own = "UNIQ_KEY\x01U\x02big\x01{}\x02"
        small = await one(desk, properties=own.format("x"))
        big = "x" * (32_767 - left - len(small.properties) + 1)
        desk.topic("%RETRY%g")
        change_group(desk, retry_max_times=1)
        sent = await desk.send("%RETRY%g", properties=own.format(big), reconsume_times=2)
        assert sent.code == Code.SUCCESS, sent.remark
        (dead,) = desk.records("%DLQ%g")
        found = decode(dead.properties)
        assert found["big"] == big
        assert found.get("DELAY") == ("-1" if left == 9 else None)
