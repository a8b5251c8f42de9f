"""Acknowledgements and more time: what a receipt can do, and what a bad one cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from aerobee.broker.pop.pop_records import Ack
from aerobee.remoting.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import pop as headers
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode
from tests.broker.desk import said
from tests.broker.pops import BROKER, batch_ack, open_pops

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.trio
async def test_an_acknowledgement_is_written_as_the_java_broker_writes_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        _, second = await pops.pop()
        await pops.ack(second)
        waiting = pops.desk.records("rmq_sys_wheel_timer")[1]
        receipt = second.receipt
        assert Ack.from_bytes(waiting.body) == Ack(
            offset=1,
            start_offset=0,
            group="g",
            topic="t",
            queue_id=0,
            pop_time=receipt.pop_time,
            broker=BROKER,
        )
        told = decode(waiting.properties)
        assert told["TAGS"] == "ack"
        assert told["TIMER_DELIVER_MS"] == str(receipt.pop_time + 60_000)
        assert told["UNIQ_KEY"] == f"t@0@1@g@{receipt.pop_time}@{BROKER}@ack"
        assert told["REAL_QID"] == str(receipt.revive_qid)


@pytest.mark.trio
async def test_many_acknowledgements_in_one_request_are_one_record(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%02d" % n for n in range(40)))
        popped = await pops.pop(invisible_time=10_000) + await pops.pop(invisible_time=10_000)
        done = [one for one in popped if one.body not in (b"07", b"33")]
        assert (await pops.ack_all(done)).code == 0
        acks = [Ack.from_bytes(one.body) for one in pops.desk.records("rmq_sys_wheel_timer")[2:]]
        assert [ack.offset for ack in acks] == [-1, -1]
        assert {len(ack.offsets) for ack in acks} == {31, 7}
        await pops.desk.pass_s(15)
        again = await pops.pop()
        assert [one.body for one in again] == [b"07", b"33"]
        assert (await pops.ack_all(again)).code == 0, "the retry topic is named by a number"
        await pops.desk.pass_s(70)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_the_long_names_of_a_batch_are_read_too(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        receipt = one.receipt
        body = (
            b'{"acks":[{"bitSet":"AQ==","consumerGroup":"g","invisibleTime":%d,"popTime":%d,'
            b'"queueId":0,"retry":"0","reviveQueueId":%d,"startOffset":0,"topic":"t"}],'
            b'"brokerName":"desk"}' % (receipt.invisible_time, receipt.pop_time, receipt.revive_qid)
        )
        assert (await pops.desk.ask(headers.BatchAckMessage(), body)).code == 0
        await pops.desk.pass_s(10)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_an_acknowledgement_after_its_time_still_counts_for_a_moment(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(5.4, 0.1)
        assert (await pops.ack(one)).code == 0
        await pops.desk.pass_s(10)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_one_that_comes_when_the_message_is_out_again_takes_nothing_back(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(10)
        assert (await pops.ack(one)).code == 0
        assert await pops.bodies(invisible_time=5_000) == [b"a"]
        await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a"]


# ── More time ──


@pytest.mark.trio
async def test_more_time_makes_a_new_receipt_and_the_old_one_worthless(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        first, second = await pops.pop(invisible_time=10_000)
        await pops.desk.pass_s(2)
        longer = await pops.hidden(first, 30_000)
        assert longer.receipt.pop_time == pops.desk.now_ms()
        await pops.ack(second)
        await pops.ack(first)
        await pops.desk.pass_s(25)
        assert await pops.bodies() == [], "it is hidden for thirty seconds from then on"
        await pops.desk.pass_s(10)
        (again,) = await pops.pop()
        assert again.body == b"a", "the old receipt did not acknowledge it"


@pytest.mark.trio
async def test_more_time_within_the_millisecond_of_the_pop_loses_no_message(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        one, other = await pops.pop(invisible_time=5_000)
        for _ in range(3):
            one = await pops.hidden(one, 5_000)
        assert one.receipt.pop_time + one.receipt.invisible_time == pops.desk.now_ms() + 5_000
        await pops.ack(other)
        await pops.desk.pass_s(12)
        (again,) = await pops.pop(invisible_time=5_000)
        assert again.body == b"a", "who got more time for it went away"
        await pops.ack(await pops.hidden(again, 5_000))
        await pops.desk.pass_s(12)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_more_time_again_and_again_and_then_an_acknowledgement(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        for _ in range(4):
            await pops.desk.pass_s(4)
            one = await pops.hidden(one, 5_000)
        assert (await pops.ack(one)).code == 0
        await pops.desk.pass_s(30)
        assert await pops.bodies() == []
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_less_time_brings_it_back_sooner(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=600_000)
        await pops.hidden(one, 1_000)
        await pops.desk.pass_s(6)
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_more_time_that_comes_too_late_brings_no_message_twice(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """Nor four times, when its next consumer is late as well."""
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        for _ in range(3):
            (one,) = await pops.pop(invisible_time=5_000)
            await pops.desk.pass_s(10)
            late = await pops.hide(one, 1_000)
            assert late.code == ResponseCode.NO_MESSAGE
            assert "ended 5000 ms ago: the message is delivered again" in (late.remark or "")
            await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_more_time_after_its_time_still_counts_for_a_moment(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(5.4, 0.1)
        one = await pops.hidden(one, 10_000)
        await pops.desk.pass_s(8)
        assert await pops.bodies() == []
        await pops.ack(one)
        await pops.desk.pass_s(10)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_in_order_more_time_is_for_one_message(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        first, second = await pops.pop(order=True, invisible_time=5_000)
        answer = await pops.hide(first, 20_000)
        assert said(answer) == {
            "popTime": str(first.receipt.pop_time),
            "invisibleTime": "20000",
            "reviveQid": "999",
        }
        await pops.desk.pass_s(10)
        assert await pops.bodies(order=True) == []
        await pops.ack(second)
        await pops.desk.pass_s(10)
        assert await pops.bodies(order=True) == [b"a", b"b"], "from the first that is not done"


# ── Bad receipts ──


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 1}, ILLEGAL),
        ({"queue_id": -1}, ILLEGAL),
        ({"offset": 3}, ResponseCode.NO_MESSAGE),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"extra_info": "0 1 2"}, ResponseCode.SYSTEM_ERROR),
        ({"extra_info": "0 now 2 3 0 desk 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extra_info": "0 1 2 8 0 desk 0 0"}, ILLEGAL),
        ({"extra_info": "0 1 2 -1 0 desk 0 0"}, ILLEGAL),
        ({"extra_info": "0 4102444800000 60000 3 0 desk 0 0"}, ILLEGAL),
        ({"extra_info": f"{10**30} 1 60000 3 0 desk 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extra_info": "0 -9 1 3 0 desk 0 0"}, ILLEGAL),
        ({"extra_info": "0 1 60000 3 0 a\x02REAL_TOPIC\x01t 0 0"}, ILLEGAL),
        (
            {"consumer_group": "g\x02TIMER_OUT_MS\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02g"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ),
    ],
)
@pytest.mark.trio
async def test_a_bad_acknowledgement_is_refused_and_changes_nothing(
    tmp_path: Path, mock_clock: MockClock, change: dict[str, object], code: int
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        fields = {
            "consumer_group": "g",
            "topic": "t",
            "queue_id": 0,
            "extra_info": one.receipt.text(),
            "offset": 0,
            **change,
        }
        for header in (
            headers.AckMessage(**fields),  # type: ignore[arg-type]  # of their types, or wrong
            headers.ChangeInvisibleTime(**fields, invisible_time=1_000),  # type: ignore[arg-type]  # the same
        ):
            assert (await pops.desk.ask(header)).code == code
        await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a"]


@pytest.mark.parametrize(
    "change", [{"broker": "elsewhere"}, {"pop_time": 1_700_000_000_001}, {"start_offset": 5}]
)
@pytest.mark.trio
async def test_a_receipt_of_a_pop_that_nobody_knows_acknowledges_nothing(
    tmp_path: Path, mock_clock: MockClock, change: dict[str, object]
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.desk.pass_s(1)
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        foreign = one._replace(receipt=one.receipt._replace(**change))  # type: ignore[arg-type]  # wrong
        assert (await pops.ack(foreign)).code == 0
        await pops.desk.pass_s(10)
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_a_receipt_of_another_broker_hides_nothing_here(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=30_000)
        foreign = one._replace(receipt=one.receipt._replace(broker="elsewhere"))
        assert (await pops.hide(foreign, 1_000)).code == ResponseCode.NO_MESSAGE
        await pops.desk.pass_s(10)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_the_end_of_a_queue_can_be_acknowledged_but_not_hidden(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """As the Java broker has it: the one allows the end itself, the other does not."""
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop()
        behind = one._replace(receipt=one.receipt._replace(offset=1))
        assert (await pops.ack(behind)).code == 0
        assert (await pops.hide(behind, 1_000)).code == ResponseCode.NO_MESSAGE


@pytest.mark.trio
async def test_in_order_only_what_is_out_can_be_acknowledged(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        (one,) = await pops.pop(order=True, max_msg_nums=1)
        other = one._replace(receipt=one.receipt._replace(offset=2))
        assert (await pops.ack(other)).code == ILLEGAL


@pytest.mark.trio
async def test_a_batch_without_acknowledgements_is_refused(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        body = BatchAckRequest(broker_name=BROKER).to_bytes()
        answer = await pops.desk.ask(headers.BatchAckMessage(), body)
        assert answer.code == ResponseCode.NO_MESSAGE


@pytest.mark.trio
async def test_in_a_batch_what_is_of_a_topic_that_is_gone_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        entry = batch_ack(one.receipt, "g", bit_set([0], 0))
        gone = replace(entry, topic="gone")
        for acks, code in (([gone], ResponseCode.TOPIC_NOT_EXIST), ([gone, entry], 0)):
            body = BatchAckRequest(acks=acks, broker_name=BROKER).to_bytes()
            assert (await pops.desk.ask(headers.BatchAckMessage(), body)).code == code
        await pops.desk.pass_s(10)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_what_cannot_be_stored_is_not_acknowledged(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        pops.desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
        for answer in (await pops.ack(one), await pops.ack_all([one]), await pops.hide(one, 9_000)):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark == "service not available now: the disk is full"
        pops.desk.store.flags.clear(Flag.DISK_FULL)
        await pops.desk.pass_s(12)
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_bit_sets_beyond_what_one_request_may_bring_are_not_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop(invisible_time=5_000)
        receipt = one.receipt
        ack = BatchAck(
            bits="/" * 8_000,
            group="g",
            invisible_time=receipt.invisible_time,
            pop_time=receipt.pop_time,
            queue_id=0,
            revive_qid=receipt.revive_qid,
            start_offset=0,
            topic="t",
        )
        for count, code in ((17, ILLEGAL), (1, 0)):
            body = BatchAckRequest(acks=[ack] * count).to_bytes()
            assert (await pops.desk.ask(headers.BatchAckMessage(), body)).code == code


@pytest.mark.trio
async def test_what_lay_in_a_queue_that_is_read_no_more_is_acknowledged_and_hidden(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.topic("t", read_queue_nums=2, write_queue_nums=2)
        await pops.send(b"a", b"b", queue_id=1)
        done, hidden = await pops.pop()
        pops.desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        assert (await pops.ack(done)).code == 0
        await pops.hidden(hidden, 90_000)
        await pops.desk.pass_s(80)
        assert await pops.bodies() == []
        await pops.desk.pass_s(20)
        assert await pops.bodies() == [hidden.body]
