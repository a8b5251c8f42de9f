"""POP consumers against a real broker, on every front."""

import time
from collections.abc import Callable
from math import inf
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace

from aerobee import ConsumeFrom, ReceivedMessage
from aerobee.client.factory import uniq_ids as uniq_ids_of
from aerobee.client.filters import Filter
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.consumers import PopConfig
from aerobee.client.steps.deliveries import OPEN_MAX, Deliveries
from aerobee.client.steps.effects import Ask, Signal
from aerobee.client.steps.popping import RECEIPT, Popper
from aerobee.client.steps.popping_member import HOLD_S, PoppingMember
from aerobee.client.steps.traces import Traces
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConnectError,
    TransportError,
)
from aerobee.hooks import ConsumeOutcome
from aerobee.remoting.wire.bodies.client import HeartbeatData
from aerobee.remoting.wire.bodies.pop import (
    AssignmentResponse,
    BatchAckRequest,
    MessageQueueAssignment,
    offsets_in,
)
from aerobee.remoting.wire.bodies.queue import MessageQueue as WireQueue
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.pop import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    PopMessage,
    QueryAssignment,
)
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack
from aerobee.store.format.record import MessageDraft, encode
from tests.aerobee.client.aio.test_pull_consumer import send
from tests.aerobee.client.aio.test_push_consumer import drained
from tests.aerobee.client.fronts import Front
from tests.aerobee.client.steps.stage import Stage, answer, moved, route
from tests.aerobee.client.steps.test_assigned import set_mode
from tests.aerobee.client.steps.test_held_queue import message
from tests.aerobee.client.steps.test_messages import stored
from tests.conftest import AnyBroker

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


async def popped(consumer: Any, topic: str, count: int, **options: Any) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with anyio.fail_after(WITHIN_S):
        while len(found) < count:
            found += await consumer.receive(topic, wait=1.0, **options)
    return found


@pytest.mark.since("5.0.0")
async def test_what_is_acknowledged_stays_away_and_what_is_sent_back_comes_again(
    front: Front, front_name: str, fresh: Fresh
) -> None:
    topic = fresh("topic")
    await send(front, topic, *[b"%d" % n for n in range(20)])
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        messages = await popped(consumer, topic, 20)
        assert sorted(message.body for message in messages) == sorted(b"%d" % n for n in range(20))
        again = [message for message in messages if message.body == b"7"]
        await consumer.ack(*(message for message in messages if message.body != b"7"))
        await consumer.extend(again[0], 30)
        await consumer.nack(again[0], delay=1)
        if front_name == "asyncio":
            # Brokers take some seconds to bring it back, and do not know which front asked.
            [once_more] = await popped(consumer, topic, 1)
            assert (once_more.body, once_more.topic, once_more.reconsume_times) == (b"7", topic, 1)
            await consumer.ack(once_more)
        with pytest.raises(ConfigurationError, match="sent back"):
            await consumer.ack(again[0])


@pytest.mark.since("5.0.0")
async def test_a_client_whose_clock_is_behind_pops_as_any_other(
    front: Front, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute is longer than any hold; without a hold half a second was enough."""
    topic, in_time = fresh("topic"), time.time_ns
    await send(front, topic, b"x")
    monkeypatch.setattr(time, "time_ns", lambda: in_time() - 60 * 10**9)
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        [message] = await popped(consumer, topic, 1)
        await consumer.ack(message)


@pytest.mark.since("5.0.0")
async def test_a_loop_acknowledges_and_what_is_rejected_is_a_dead_letter(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"good", b"bad", b"hopeless", b"last")
    seen: list[bytes] = []
    async with front.pop(group, start_from=FIRST, max_reconsume=0) as consumer:
        with anyio.fail_after(WITHIN_S):
            async for message in consumer.messages(topic):
                seen.append(message.body)
                if message.body == b"bad":
                    await consumer.reject(message)
                elif message.body == b"hopeless":
                    await consumer.nack(message)
                if len(seen) == 4:
                    break
    dead: list[bytes] = []
    with anyio.fail_after(WITHIN_S):
        while len(dead) < 2:
            dead = await drained(front, f"%DLQ%{group}")
    assert sorted(dead) == [b"bad", b"hopeless"]
    assert len(seen) == len(set(seen))


@pytest.mark.since("5.0.0")
async def test_only_wanted_tags_come_and_the_others_are_no_obstacle(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    for tag in "AB":
        await send(front, topic, tag.encode(), tag=tag)
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        [message] = await popped(consumer, topic, 1, expression="B")
        assert (message.body, message.tag) == (b"B", "B")
        await consumer.ack(message)
        assert not await consumer.receive(topic, wait=0.1, expression="B")
        with pytest.raises(ConfigurationError, match="1 to 32"):
            await consumer.receive(topic, max_messages=33)


@pytest.mark.since("5.0.0")
async def test_a_closed_consumer_returns_none(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"for others")
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        pass
    assert await consumer.receive(topic) == []
    assert [message async for message in consumer.messages(topic)] == []


@pytest.mark.since("5.0.0")
async def test_a_member_pops_what_the_broker_gives_it_and_leaves_the_group(
    front: Front, broker: AnyBroker, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"%d" % n for n in range(8)])
    async with front.pop(group, start_from=FIRST, server_assignment=True) as consumer:
        with pytest.raises(ConfigurationError, match=rf"pulls topic {topic}: set it to POP"):
            await consumer.receive(topic, wait=5.0)
        await anyio.to_thread.run_sync(set_mode, broker, group, topic, "POP")
        messages = await popped(consumer, topic, 8)
        assert {message.body for message in messages} == {b"%d" % n for n in range(8)}
        assert {(one.topic, one.queue_id) for one in consumer.assignment} == {(topic, -1)}
        await consumer.ack(*messages)
        async with front.admin() as admin:
            [member] = (await admin.consumers(group)).members
        assert member.language == "PYTHON"
        async with front.pop(group, server_assignment=True) as second:
            assert not await second.receive(topic, wait=0)
            async with front.admin() as admin:
                assert len((await admin.consumers(group)).members) == 2
    async with front.admin() as admin:
        assert not (await admin.consumers(group)).members


@pytest.mark.since("5.0.0")
async def test_the_trace_says_what_came_of_each_message(front: Front, fresh: Fresh) -> None:
    topic, traces = fresh("topic"), fresh("traces")
    await send(front, topic, b"good", b"bad", b"hopeless", b"silent")
    options = {"start_from": FIRST, "trace": True, "trace_topic": traces}
    async with front.pop(fresh("group"), **options) as consumer:
        by_body = {message.body: message for message in await popped(consumer, topic, 4)}
        await consumer.extend(by_body[b"good"], 30)
        await consumer.ack(by_body[b"good"])
        await consumer.nack(by_body[b"bad"], delay=30)
        await consumer.reject(by_body[b"hopeless"])
    records = [
        record.split("\x01")
        for body in await drained(front, traces)
        for record in body.decode().split("\x02")
    ]
    began = {fields[5] for fields in records if fields[0] == "SubBefore"}
    assert began == {message.message_id for message in by_body.values()}
    ended = {fields[2]: (fields[4], fields[6]) for fields in records if fields[0] == "SubAfter"}
    assert ended == {
        by_body[b"good"].message_id: ("true", "0"),
        by_body[b"bad"].message_id: ("false", "4"),
        by_body[b"hopeless"].message_id: ("false", "4"),
    }


# ── Without a network ──


def test_a_trace_says_that_a_message_was_not_settled_in_time_and_has_a_bound() -> None:
    stage = Stage()
    uniq_ids = uniq_ids_of("127.0.0.1", 1, stage.instance.random)
    deliveries = Deliveries(Traces("g", stage.instance, "traces", uniq_ids))
    messages = [message(offset) for offset in range(OPEN_MAX + 1)]
    receipts = [str(offset) for offset in range(OPEN_MAX + 1)]
    deliveries.handed_out(messages, receipts, stage.now_s + 60)
    assert len(deliveries.open) == OPEN_MAX
    deliveries.ended("T", "0", ConsumeOutcome.SUCCESS)
    deliveries.extended("T", "1", "1 renewed", stage.now_s + 90)
    deliveries.traces.waiting.clear()
    stage.now_s += 61
    deliveries.handed_out([], [], stage.now_s)
    assert list(deliveries.open) == [("T", "1 renewed")]
    late = {trace.text.split("\x01")[6] for trace in deliveries.traces.waiting}
    assert late == {str(ConsumeOutcome.TIME_OUT.value)}


def given(*queue_ids: int, mode: str = "POP") -> Command:
    """The broker's answer about who has which queues."""
    queues = [
        MessageQueueAssignment(WireQueue(topic="T", broker_name="broker-a", queue_id=one), mode)
        for one in queue_ids
    ]
    return answer(body=AssignmentResponse(queues).to_bytes())


def popped_from(stage: Stage) -> set[int]:
    return {cast("PopMessage", ask.header).queue_id for ask in stage.asked(PopMessage)}


def test_queues_are_popped_in_turns_and_given_anew_when_members_change() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(Heartbeat, answer())
    stage.answers(QueryAssignment, given(1, 2), answer(body=b"{}"), given(), given(3))
    stage.answers(PopMessage, answer(210))
    stage.takes_s[PopMessage] = 0.5
    popper = PoppingMember(stage.instance, PopConfig(group="g", server_assignment=True))
    assert stage.perform(popper.receive("T", 32, 0.0, "A")) == []
    assert popped_from(stage) == {1, 2}
    [beat] = stage.asked(Heartbeat)
    [group] = HeartbeatData.from_bytes(beat.body).consumer_data_set
    assert {one.topic: one.sub_string for one in group.subscription_data_set} == {
        "T": "A",
        "%RETRY%g": "*",
    }
    # A broker that forgot us changes nothing until it knows us again.
    popper.rebalance_now.set()
    stage.heard.clear()
    assert stage.perform(popper.receive("T", 32, 0.0, "A")) == []
    assert popped_from(stage) <= {1, 2}
    # Without a queue it waits, and looks again.
    stage.heard.clear()
    stage.perform(popper.receive("T", 32, 3.0, "A"))
    assert popped_from(stage) == {3}
    assert all(ask.timeout_s <= HOLD_S + 10 for ask in stage.asked(PopMessage))


@pytest.mark.parametrize(("max_reconsume", "dead"), [(-1, []), (0, [1])])
def test_a_body_that_does_not_unpack_keeps_none_of_those_behind_it_away(
    max_reconsume: int, dead: list[int]
) -> None:
    """It comes again, and is a dead letter when it has no try left."""
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.perform(stage.instance.route("T", 1.0))
    stage.answers(BatchAckMessage, answer())
    stage.answers(ConsumerSendMsgBack, answer())
    kinds = ((0, "A"), (0x301, "A"), (0, "A"), (0x301, "other"))
    records = [stored(b"body", flag, {"TAGS": tag}, at) for at, (flag, tag) in enumerate(kinds)]
    times: dict[str, Any] = {"popTime": 1, "invisibleTime": 60_000, "reviveQid": 0, "restNum": 0}
    stage.answers(PopMessage, answer(body=b"".join(records), startOffsetInfo="0 1 0", **times))
    popper = Popper(stage.instance, PopConfig(group="g", max_reconsume=max_reconsume))
    queue = MessageQueue("T", "broker-a", 1)
    messages = stage.perform(popper.pop(queue, 32, 0.0, Filter.of("A"), until=Signal()))
    assert [message.queue_offset for message in messages] == [0, 2]
    buried = [cast("ConsumerSendMsgBack", ask.header) for ask in stage.asked(ConsumerSendMsgBack)]
    assert [(one.offset, one.delay_level) for one in buried] == [(300, -1) for _ in dead]
    acks = [BatchAckRequest.from_bytes(ask.body).acks for ask in stage.asked(BatchAckMessage)]
    acknowledged = [offsets_in(ack.bits, ack.start_offset) for (ack,) in acks]
    other = 3  # Brokers compare hashes of tags.
    assert acknowledged == [*([offset] for offset in dead), [other]]


@pytest.mark.parametrize(("topic", "start", "retry"), [("%RETRY%g_T", 3, 1), ("%RETRY%g+T", 4, 2)])
def test_what_comes_again_without_room_for_its_receipt_is_acknowledged_where_it_lies(
    topic: str, start: int, retry: int
) -> None:
    """Else it would come for ever."""
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(AckMessage, answer())
    stage.answers(BatchAckMessage, answer(3))
    draft = MessageDraft(topic, 1, b"x", b"", bytes(8), bytes(8))
    times: dict[str, Any] = {"popTime": 9, "invisibleTime": 60_000, "reviveQid": 7, "restNum": 0}
    starts = "0 1 2;1 1 3;2 1 4"
    body = encode(draft, 5, 300, 1_700_000_000_001)
    stage.answers(PopMessage, answer(body=body, startOffsetInfo=starts, **times))
    popper = Popper(stage.instance, PopConfig(group="g"))
    [again] = stage.perform(popper.receive("T", 32, 0.0, "*"))
    assert again.topic == "T"
    assert again.properties[RECEIPT] == f"{start} 9 60000 7 {retry} broker-a 1 5"
    stage.perform(popper.acknowledge([again]))
    (ask,) = stage.asked(AckMessage)
    assert cast("AckMessage", ask.header).topic == topic


def test_messages_of_two_topics_popped_in_one_millisecond_are_told_apart() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.perform(stage.instance.route("T", 1.0))
    stage.answers(BatchAckMessage, answer())
    popped = [
        replace(
            message(offset),
            topic=topic,
            properties={RECEIPT: f"0 1700000000000 60000 3 0 broker-a 2 {offset}"},
        )
        for topic, offset in (("T", 0), ("U", 1), ("T", 5))
    ]
    stage.perform(Popper(stage.instance, PopConfig(group="g")).acknowledge(popped))
    (ask,) = stage.asked(BatchAckMessage)
    acks = BatchAckRequest.from_bytes(ask.body).acks
    assert {ack.topic: offsets_in(ack.bits, ack.start_offset) for ack in acks} == {
        "T": [0, 5],
        "U": [1],
    }


def test_a_broker_that_is_away_keeps_no_acknowledgement_from_the_others() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", "broker-b"))
    stage.perform(stage.instance.route("T", 1.0))
    stage.answers(BatchAckMessage, ConnectError("broker-a is away"), answer())
    popped = [
        replace(message(0), properties={RECEIPT: f"0 1700000000000 60000 3 0 {broker} 2 0"})
        for broker in ("broker-gone", "broker-a", "broker-b")
    ]
    with pytest.raises(BrokerNotFoundError, match="broker-gone"):
        stage.perform(Popper(stage.instance, PopConfig(group="g")).acknowledge(popped))
    assert [ask.address for ask in stage.asked(BatchAckMessage)] == [
        "broker-a:10911",
        "broker-b:10911",
    ]


def test_a_second_try_to_acknowledge_finds_a_broker_that_has_moved() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"), moved())
    stage.perform(stage.instance.route("T", 1.0))
    stage.answers(BatchAckMessage, ConnectError("refused"), answer())
    popper = Popper(stage.instance, PopConfig(group="g"))
    popped = replace(message(0), properties={RECEIPT: "0 1700000000000 60000 3 0 broker-a 2 0"})
    with pytest.raises(ConnectError):
        stage.perform(popper.acknowledge([popped]))
    stage.now_s += 1.0
    stage.perform(popper.acknowledge([popped]))
    assert [ask.address for ask in stage.asked(BatchAckMessage)] == [
        "broker-a:10911",
        "new-host:10911",
    ]


def test_a_connection_that_a_close_has_ended_is_no_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    popper = Popper(stage.instance, PopConfig(group="g"))

    def meanwhile(ask: Ask) -> Command:
        popper.closing.set()
        raise TransportError("closed by us")

    stage.answers(PopMessage, meanwhile)
    assert stage.perform(popper.receive("T", 32, 10.0, "*")) == []
    assert not caplog.messages


def test_a_message_whose_time_is_over_comes_again_without_more_being_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    over = answer(208)
    over.remark = "the receipt ended 5000 ms ago"
    stage.answers(ChangeInvisibleTime, over)
    popped = replace(message(0), properties={RECEIPT: "0 1700000000000 60000 3 0 broker-a 2 0"})
    popper = Popper(stage.instance, PopConfig(group="g"))
    with pytest.raises(BrokerError, match="ended 5000 ms ago"):
        stage.perform(popper.extend(popped, 60))
    stage.perform(popper.send_back(popped, None))
    assert RECEIPT not in popped.properties
    assert "ended 5000 ms ago" in caplog.text


def test_more_time_is_asked_for_no_message_that_comes_again_already() -> None:
    """A Java broker would deliver it twice, and four times the next time."""
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    longer = answer(popTime=9_000, invisibleTime=10_000, reviveQid=0)
    stage.answers(ChangeInvisibleTime, longer)
    times: dict[str, Any] = {"popTime": 1, "invisibleTime": 60_000, "reviveQid": 0, "restNum": 0}
    records = [stored(b"body", 0, {}, at) for at in range(2)]
    stage.answers(PopMessage, answer(body=b"".join(records), startOffsetInfo="0 1 0", **times))
    popper = Popper(stage.instance, PopConfig(group="g"))
    in_time, late = stage.perform(popper.receive("T", 32, 0.0, "*"))
    stage.now_s += 59.9
    stage.perform(popper.send_back(in_time, 10))
    stage.now_s += 0.2
    stage.perform(popper.send_back(late, 10))
    (ask,) = stage.asked(ChangeInvisibleTime)
    assert cast("ChangeInvisibleTime", ask.header).offset == 0
    assert RECEIPT not in late.properties


def test_another_client_acknowledges_what_it_has_no_route_for_yet() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(BatchAckMessage, answer())
    popped = replace(message(0), properties={RECEIPT: "0 1700000000000 60000 3 0 broker-a 2 0"})
    stage.perform(Popper(stage.instance, PopConfig(group="g")).acknowledge([popped]))
    assert len(stage.asked(BatchAckMessage)) == 1


def test_a_broker_holds_no_request_for_as_long_as_its_caller_would_wait() -> None:
    """Its machine may be gone meanwhile, and nothing would say so."""
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(PopMessage, *[answer(210)] * 5, ConnectError("gone"), answer(209))
    popper = Popper(stage.instance, PopConfig(group="g"))
    stage.takes_s[PopMessage] = 20.0
    assert stage.perform(popper.receive("T", 32, 200.0, "*")) == []
    asks = stage.asked(PopMessage)
    assert len(asks) > 6
    assert all(ask.timeout_s <= 30 for ask in asks)
    receiving = popper.receive("T", 32, inf, "*")
    assert isinstance(next(receiving), Ask)
    receiving.close()
