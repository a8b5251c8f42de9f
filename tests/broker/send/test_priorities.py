"""Messages with a priority: the queue that each kind of send gives them, and odd priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.send.priorities import place
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import (
    ConsumerSendMsgBack,
    SendBatchMessage,
    SendReplyMessage,
)
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import records
from tests.broker.desk import Desk, open_desk, said, send_header
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

NAME = "_SYS_MSG_PRIORITY_"
QUEUES = 4
TYPED = {"message.type": "PRIORITY"}


def priority_topic(desk: Desk, name: str = "t", **fields: Any) -> None:
    queues = {"read_queue_nums": QUEUES, "write_queue_nums": QUEUES, "attributes": TYPED}
    desk.topic(name, **queues | fields)


async def sent(desk: Desk, priority: str, *, topic: str = "t", **more: Any) -> Any:
    """The answer to a send to queue 1, of a message with this priority."""
    named = {NAME: priority, **more.pop("properties", {})}
    fields: dict[str, Any] = {"queue_id": 1, "properties": encode(named)} | more
    answer = await desk.send(topic, **fields)
    assert answer.code == Code.SUCCESS, answer
    return answer


def lying(desk: Desk, topic: str = "t", queues: int = QUEUES) -> list[list[dict[str, str]]]:
    """The properties of the messages of each queue."""
    found = []
    for queue_id in range(queues):
        views = desk.store.get(topic, queue_id, 0, 32).views
        found.append([decode(record.properties) for record in records(views)])
    return found


def counts(desk: Desk, topic: str = "t", queues: int = QUEUES) -> list[int]:
    return [len(each) for each in lying(desk, topic, queues)]


# ── The rule ──


@given(st.integers(0, 2**31 - 1), st.integers(-1, 63), st.integers(0, 64))
def test_a_priority_is_the_queue_as_far_as_there_are_queues(
    priority: int, asked: int, write_queues: int
) -> None:
    properties = {NAME: str(priority), "KEYS": "k"}
    queue_id = place(properties, asked, write_queues)
    assert queue_id == (min(priority, write_queues - 1) if write_queues else asked)
    assert properties == {NAME: str(priority), "KEYS": "k"}


OTHERS = [
    {"TRAN_MSG": "TRUE"},
    {"DELAY": "-1"},
    {"TIMER_DELAY_SEC": "1"},
    {"TIMER_DELAY_MS": "1"},
    {"TIMER_DELIVER_MS": "1"},
    {"__SHARDINGKEY": "k"},
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_a_message_of_another_type_keeps_its_queue_and_loses_its_priority(
    other: dict[str, str],
) -> None:
    properties = {NAME: "3", **other}
    assert place(properties, 1, QUEUES) == 1
    assert properties == other
    odd = {NAME: "-3", **other}
    assert place(odd, 1, QUEUES) == 1
    assert odd == {NAME: "-3", **other}, "no priority, so nothing is taken for one"


def test_a_half_that_is_none_has_a_priority() -> None:
    assert place({NAME: "3", "TRAN_MSG": "false"}, 1, QUEUES) == 3


# ── Sends ──


@pytest.mark.trio
@pytest.mark.parametrize("attributes", [TYPED, {}, {"message.type": "NORMAL"}], ids=str)
async def test_each_priority_has_its_queue_whatever_queue_and_type_there_are(
    tmp_path: Path, attributes: dict[str, str]
) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk, attributes=attributes)
        # Twice, so that what is remembered of plain messages would show.
        for number in range(2):
            for priority, queue in (("0", 0), ("2", 2), ("3", 3), ("4", 3), (str(2**31 - 1), 3)):
                key = {"UNIQ_KEY": f"K{number}{priority}"}
                answer = await sent(desk, priority, properties=key)
                assert said(answer)["queueId"] == str(queue)
        found = lying(desk)
        assert [sorted({each[NAME] for each in queue}) for queue in found] == [
            ["0"],
            [],
            ["2"],
            [str(2**31 - 1), "3", "4"],
        ]


@pytest.mark.trio
async def test_a_run_of_sends_ends_where_a_priority_begins(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk, attributes={})
        for priority in (None, None, "3", None, "0"):
            given = {} if priority is None else {NAME: priority}
            await desk.send(queue_id=1, properties=encode({**given, "UNIQ_KEY": "K1"}))
        assert counts(desk) == [1, 3, 0, 1]


@pytest.mark.trio
@pytest.mark.parametrize("odd", ["-1", "2147483648", "seven", "1.5", " 3", "9" * 5_000])
async def test_what_is_no_priority_stays_where_it_was_sent(tmp_path: Path, odd: str) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        answer = await sent(desk, odd)
        assert said(answer)["queueId"] == "1"
        assert lying(desk)[1][0][NAME] == odd


@pytest.mark.trio
async def test_the_queue_that_was_asked_for_has_to_exist_all_the_same(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        answer = await desk.send(queue_id=QUEUES, properties=encode({NAME: "0"}))
        assert answer.code == Code.INVALID_PARAMETER
        await sent(desk, "2", queue_id=-1)
        assert counts(desk) == [0, 0, 1, 0]


@pytest.mark.trio
async def test_without_a_queue_to_write_to_the_one_that_was_asked_for_is_taken(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk, write_queue_nums=0)
        await sent(desk, "3")
        assert counts(desk) == [0, 1, 0, 0]


@pytest.mark.trio
async def test_after_a_change_of_its_queues_a_topic_has_priorities_up_to_the_new_number(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        await sent(desk, "5")
        priority_topic(desk, write_queue_nums=2)
        await sent(desk, "5")
        priority_topic(desk, read_queue_nums=8, write_queue_nums=8)
        await sent(desk, "5")
        assert counts(desk, queues=8) == [0, 1, 0, 1, 0, 1, 0, 0]


@pytest.mark.trio
async def test_the_messages_of_a_batch_stay_together(tmp_path: Path) -> None:
    """As in RocketMQ: a batch has one queue, and its messages keep their properties."""
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        items = [
            Sent(b"%d" % number, encode({NAME: priority}).encode())
            for number, priority in enumerate(("3", "0", "-1", "x"))
        ]
        header = send_header(
            cls=SendBatchMessage, queue_id=1, batch=True, properties=encode({NAME: "3"})
        )
        answer = await desk.ask(header, batch_body(items))
        assert answer.code == Code.SUCCESS
        assert counts(desk) == [0, 4, 0, 0]
        assert [each[NAME] for each in lying(desk)[1]] == ["3", "0", "-1", "x"]


@pytest.mark.trio
async def test_a_reply_stays_where_it_was_sent(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        header = send_header(cls=SendReplyMessage, queue_id=1, properties=encode({NAME: "3"}))
        await desk.ask(header, b"reply")
        assert counts(desk) == [0, 1, 0, 0]


@pytest.mark.trio
async def test_a_delayed_message_comes_to_the_queue_that_was_asked_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        await sent(desk, "3", properties={"DELAY": "1"})
        (waiting,) = lying(desk, "SCHEDULE_TOPIC_XXXX", 1)[0]
        assert (waiting["REAL_QID"], waiting.get(NAME)) == ("1", None)


@pytest.mark.trio
async def test_what_a_consumer_sends_back_keeps_its_priority_and_waits_like_others(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        await sent(desk, "3")
        back = ConsumerSendMsgBack(offset=0, group="g", delay_level=1, origin_topic="t")
        assert (await desk.ask(back)).code == Code.SUCCESS
        (waiting,) = lying(desk, "SCHEDULE_TOPIC_XXXX", 1)[0]
        assert (waiting["REAL_TOPIC"], waiting["REAL_QID"]) == ("%RETRY%g", "0")
        assert waiting[NAME] == "3"


@pytest.mark.trio
async def test_a_dead_letter_lies_where_dead_letters_do(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk, "%RETRY%g")
        await sent(desk, "3", topic="%RETRY%g", reconsume_times=99, max_reconsume_times=1)
        assert counts(desk, "%RETRY%g") == [0, 0, 0, 0]
        assert counts(desk, "%DLQ%g", 1) == [1]
        assert desk.topics.get("%DLQ%g") == TopicConfig(
            topic_name="%DLQ%g", read_queue_nums=1, write_queue_nums=1, perm=6
        )


@pytest.mark.trio
async def test_a_half_is_committed_to_the_queue_that_was_asked_for(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        priority_topic(desk)
        await sent(desk, "3", properties={"TRAN_MSG": "true", "PGROUP": "p"}, sys_flag=4)
        halves = lying(desk, "RMQ_SYS_TRANS_HALF_TOPIC", 1)[0]
        assert [(half["REAL_QID"], half.get(NAME)) for half in halves] == [("1", None)]


@pytest.mark.trio
async def test_a_repetition_is_where_its_first_one_is(tmp_path: Path) -> None:
    async with open_desk(tmp_path, dedupe="t=UNIQ_KEY@60s") as desk:
        await desk.dedupe.run()
        priority_topic(desk)
        for priority in ("3", "3", "0"):
            answer = await sent(desk, priority, properties={"UNIQ_KEY": "K"})
            assert said(answer)["queueId"] == "3"
        assert counts(desk) == [0, 0, 0, 1]
