"""END_TRANSACTION: every check in its order, with code and remark; when its answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.core.drafts import draft_again
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.message_id import read_offset_id
from aerobee.store.format.record import HEAD, encode
from aerobee.store.format.system_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from tests.broker.desk import open_desk, said
from tests.broker.transactions.test_check_service import COMMIT, ROLLBACK, Bank, end_of
from tests.kit.cold_disk import ColdDisk

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.trio
SYSTEM_ERROR = int(Code.SYSTEM_ERROR)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"commit_or_rollback": 4}, Code.SYSTEM_ERROR, "commitOrRollback field wrong"),
        ({"commit_or_rollback": -1}, Code.SYSTEM_ERROR, "commitOrRollback field wrong"),
        (
            {"commit_log_offset": 1 << 40, "producer_group": "other"},
            Code.SYSTEM_ERROR,
            "Find prepared transaction message failed",
        ),
        ({"commit_log_offset": 1}, Code.SYSTEM_ERROR, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, Code.SYSTEM_ERROR, "Find prepared transaction message failed"),
        (
            {"producer_group": "other", "tran_state_table_offset": 7},
            Code.SYSTEM_ERROR,
            "The producer group wrong",
        ),
        (
            {"tran_state_table_offset": 7},
            Code.SYSTEM_ERROR,
            "The transaction state table offset wrong",
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_the_first_check_that_fails_answers_and_the_transaction_stays_open(
    tmp_path: Path,
    mock_clock: MockClock,
    how: int,
    fields: dict[str, Any],
    code: int,
    remark: str,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        refused = await bank.end(half, how, **fields)
        assert (refused.code, remark in (refused.remark or "")) == (code, True), refused
        assert bank.desk.bodies() == bank.desk.bodies(OP_TOPIC) == []
        assert (await bank.end(half, how)).code == Code.SUCCESS
        assert len(bank.desk.bodies()) == (how == COMMIT)


async def test_a_broker_without_its_lease_says_so(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        desk.store.replicas.configure_group(lambda: -1, 3.0)
        desk.store.when_durable = desk.store.replicas.when_in_group
        answer = await bank.end(half, COMMIT)
        assert answer.code == Code.SERVICE_NOT_AVAILABLE
        assert "may be the master of its group no more" in (answer.remark or "")


async def test_a_new_master_ends_no_half_before_it_knows_which_have_ended(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        half = await Bank(desk).half()
        assert (await Bank(desk).end(half, COMMIT)).code == Code.SUCCESS
        assert await desk.saver.save_all()
    slave: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}
    async with open_desk(tmp_path, **slave) as desk, trio.open_nursery() as nursery:
        desk.store.be_master()
        for epoch in (1, 2):
            desk.broker.core.role.become_master(epoch)
            refused = await Bank(desk).end(half, COMMIT)
            assert refused.code == Code.SYSTEM_BUSY
            assert "end it again" in (refused.remark or "")
            progress = dict(desk.offsets.queues(TRANSACTION_GROUP, HALF_TOPIC))
            await desk.half_messages.save_progress()
            assert desk.offsets.queues(TRANSACTION_GROUP, HALF_TOPIC) == progress
            await nursery.start(desk.half_messages.run)
            assert (await Bank(desk).end(half, COMMIT)).code == Code.SUCCESS
            assert desk.bodies() == [b"pay"], "ended is ended"
            desk.broker.transactions.copy_begins()
        nursery.cancel_scope.cancel()


async def test_an_end_that_waits_for_the_disk_is_refused_by_who_does_not_know_any_more(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        half = await Bank(desk).half()
    async with open_desk(tmp_path, ColdDisk()) as desk:
        work = desk.begin(end_of(half, COMMIT))
        desk.transactions.known = False
        with pytest.raises(Refusal, match="end it again"):
            await work
        assert desk.bodies() == []


async def test_a_message_that_is_no_half_cannot_be_ended(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        await bank.end(half, COMMIT)
        [committed] = bank.desk.records()
        place = {
            "tran_state_table_offset": committed.queue_offset,
            "commit_log_offset": committed.physical_offset,
        }
        refused = await bank.end(half, COMMIT, **place)
        assert refused.remark == "Find prepared transaction message failed"
        assert bank.desk.bodies() == [b"pay"]


async def test_a_producer_that_does_not_know_gets_no_answer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        assert desk.begin(end_of(half, 0)) is None
        assert desk.begin(end_of(half, 0, producer_group="other", commit_log_offset=5)) is None
        assert bank.desk.bodies(OP_TOPIC) == []


async def test_an_immune_transaction_cannot_be_ended_late_but_by_a_check(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half(CHECK_IMMUNITY_TIME_IN_SECONDS="3")
        other = await bank.half(b"other", CHECK_IMMUNITY_TIME_IN_SECONDS="3")
        mock_clock.jump(6)
        assert (await bank.end(other, COMMIT)).code == Code.SUCCESS, "the time-out if it is longer"
        mock_clock.jump(0.01)
        refused = await bank.end(half, ROLLBACK, producer_group="other")
        assert refused.code == Code.ILLEGAL_OPERATION
        answer = await bank.end(half, COMMIT, from_transaction_check=True)
        assert answer.code == Code.SUCCESS
        assert bank.desk.bodies() == [b"other", b"pay"]


async def test_what_cannot_be_stored_stays_open(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        flags = desk.store.flags
        for how in (COMMIT, ROLLBACK):
            flags.set(Flag.DISK_FULL, "the disk is full")
            refused = await bank.end(half, how)
            assert refused.code == Code.SERVICE_NOT_AVAILABLE
            assert "the disk is full" in (refused.remark or "")
            flags.clear(Flag.DISK_FULL)
        assert (await bank.end(half, COMMIT)).code == Code.SUCCESS
        assert bank.desk.bodies() == [b"pay"]


async def test_under_sync_flush_an_answered_end_is_on_disk(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        bank = Bank(desk)
        log = desk.store.commit_log
        for how in (COMMIT, ROLLBACK, ROLLBACK):
            half = await bank.half()
            end = log.max_offset
            assert (await bank.end(half, how)).code == Code.SUCCESS
            assert log.flushed == log.max_offset > end
        assert [int(body) for body in bank.desk.bodies(OP_TOPIC)] == [0, 1, 2]


async def test_rejected_transactions_are_refused_as_sends(tmp_path: Path) -> None:
    async with open_desk(tmp_path, reject_transaction_message=True) as desk:
        desk.topic()
        refused = await desk.send(properties="TRAN_MSG\x01true\x02", sys_flag=4)
        assert refused.code == Code.NO_PERMISSION
        assert "sending transaction message is forbidden" in (refused.remark or "")
        assert desk.store.commit_log.max_offset == 0


async def test_the_answer_to_a_half_names_the_half_and_the_queue_that_was_asked_for(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic(write_queue_nums=4, read_queue_nums=4)
        await desk.send(properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02", queue_id=1)
        answer = await desk.send(properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02", queue_id=3)
        told = said(answer)
        assert (told["queueId"], told["queueOffset"]) == ("3", "1")
        view = desk.store.read(read_offset_id(told["msgId"])[1])
        assert view is not None
        assert HALF_TOPIC.encode() in bytes(view)
        assert len(told["transactionId"]) == 32, "one was made for it"


async def test_bytes_that_look_like_a_half_are_none(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half = await bank.half()
        [real] = bank.desk.records(HALF_TOPIC)
        # The same queue offset as the real one, and the place where the body will lie.
        place = desk.store.commit_log.max_offset + HEAD.size
        forged = encode(draft_again(real, HALF_TOPIC, 0, real.properties), 0, place, 1)
        await desk.send("t", forged)
        found = desk.store.read(place)
        assert found is not None
        assert bytes(found) == forged, "it is a whole record"
        refused = await bank.end(half, COMMIT, commit_log_offset=place)
        assert refused.remark == "Find prepared transaction message failed"
        assert desk.store.message(place) is None
        assert (await bank.end(half, COMMIT)).code == Code.SUCCESS
        assert bank.desk.bodies() == [forged, b"pay"]


async def test_a_commit_to_a_topic_deleted_since_is_refused_until_it_is_made_anew(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        bank = Bank(desk)
        half, other = await bank.half(), await bank.half(b"other")
        assert (await desk.ask(DeleteTopicInBroker(topic="t"))).code == Code.SUCCESS
        refused = await bank.end(half, COMMIT)
        assert (refused.code, "was deleted" in (refused.remark or "")) == (
            Code.TOPIC_NOT_EXIST,
            True,
        )
        assert desk.store.queues.find("t", 0) is None
        assert (await bank.end(other, ROLLBACK)).code == Code.SUCCESS
        desk.topic()
        assert (await bank.end(half, COMMIT)).code == Code.SUCCESS
        assert bank.desk.bodies() == [b"pay"]


async def test_a_commit_comes_to_a_queue_that_its_topic_still_has(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=8, write_queue_nums=8)
        bank = Bank(desk)
        bank.queue_id = 6
        half = await bank.half()
        desk.topic("t", read_queue_nums=3, write_queue_nums=3)
        assert (await bank.end(half, COMMIT)).code == Code.SUCCESS
        assert bank.desk.bodies() == [b"pay"]
