"""Push consumers whose queues the broker shares out, against a real broker and as a play."""

import json
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import pytest

from aerobee import ConsumeFrom, MessageModel, ReceivedMessage, Reject
from aerobee.client.handling import Verdict
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.consumers import PushConfig
from aerobee.client.steps import assigned
from aerobee.client.steps.assigned import AssignedMember, PoppedQueue
from aerobee.client.steps.effects import Wait
from aerobee.errors import ConfigurationError, ConnectError
from aerobee.remoting.wire.bodies.pop import BatchAckRequest, RequestModeRequest
from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo, queue_of
from aerobee.remoting.wire.headers.client import GetConsumerListByGroup, Heartbeat, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pop import (
    BatchAckMessage,
    ChangeInvisibleTime,
    PopMessage,
    QueryAssignment,
)
from tests.aerobee.client.aio.test_push_consumer import Seen, send, until
from tests.aerobee.client.fronts import Front
from tests.aerobee.client.steps.stage import Stage, answer, moved, route
from tests.aerobee.client.steps.test_member import pulled
from tests.conftest import AnyBroker
from tests.kit.raw_client import RawConnection
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
SET_MESSAGE_REQUEST_MODE = 401
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST
ALL = MessageQueue("T", "broker-a", -1)


def set_mode(broker: AnyBroker, group: str, topic: str, mode: str, *, share: int = 0) -> None:
    """As `mqadmin setConsumeMode`, once the broker has heard of the group."""
    wanted = RequestModeRequest(
        consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=share
    )

    def is_set() -> bool:
        with RawConnection(broker.address) as connection:
            code = connection.call(SET_MESSAGE_REQUEST_MODE, body=wanted.to_bytes()).code
        return code == 0

    eventually(is_set, within_s=WITHIN_S, what=f"mode {mode}")


@pytest.mark.since("5.0.0")
async def test_a_group_pulls_until_the_broker_says_pop_and_pops_on(
    front: Front, broker: AnyBroker, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"pulled")

    def failing(message: ReceivedMessage) -> Exception | None:
        return Reject() if message.body == b"never" else None

    seen = Seen(failing=failing)
    client = front.client()
    options = {"start_from": FIRST, "server_assignment": True, "concurrency": 2}
    consumer = front.push(group, client=client, **options)
    consumer.subscribe(topic, handler=front.handler(seen))

    def held() -> set[int]:
        return {queue.queue_id for queue in consumer.assignment if queue.topic == topic}

    async with client, consumer:
        await until(lambda: seen.bodies == [b"pulled"] and held() == {0, 1, 2, 3})
        await anyio.to_thread.run_sync(set_mode, broker, group, topic, "POP")
        inner = getattr(client, "wrapped", client)
        inner.instance.consumers[group].rebalance_now.set()
        await until(lambda: held() == {-1})
        sent = [b"%d" % n for n in range(20)]
        await send(front, topic, *sent, b"never")
        await until(lambda: set(seen.bodies) >= {b"never", *sent})
    assert [one for one in seen.bodies if one not in (b"pulled", b"never")] == sorted(sent)
    assert seen.topics == {topic}
    with RawConnection(broker.address) as connection:
        [dead] = read_topic(connection, f"%DLQ%{group}", 0)
    assert dead.body == b"never"


@pytest.mark.parametrize(
    "wrong",
    [
        {"orderly": True},
        {"model": MessageModel.BROADCASTING},
        {"strategy": "CONSISTENT_HASH"},
        {"invisible": 0.1},
    ],
)
def test_what_brokers_do_not_share_out_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PushConfig(group="g", server_assignment=True, **wrong)


# ── As a play ──


class Play:
    """A member that pops from all queues of one broker."""

    def __init__(self) -> None:
        self.stage = stage = Stage()
        stage.answers(GetRouteInfo, route("broker-a", queues=1))
        stage.answers(Heartbeat, answer())
        stage.answers(QueryConsumerOffset, answer(22))
        stage.answers(GetMaxOffset, answer(offset=0))
        stage.answers(UpdateConsumerOffset, answer())
        stage.answers(BatchAckMessage, answer())
        stage.answers(UnregisterClient, answer())
        self.assign("POP", -1)
        config = PushConfig(group="g", server_assignment=True)
        self.member = AssignedMember(stage.instance, config, lambda held: None)
        self.member.subscriptions.clear()
        self.member.add_subscription("T", "*")
        assert stage.perform(self.member.rebalance())

    def assign(self, mode: str, *queue_ids: int) -> None:
        rows = [
            {
                "messageQueue": {"topic": "T", "brokerName": "broker-a", "queueId": queue_id},
                "mode": mode,
            }
            for queue_id in queue_ids
        ]
        body = json.dumps({"messageQueueAssignments": rows}).encode()
        self.stage.answers(QueryAssignment, answer(body=body))

    def pop(self, *offsets: int) -> PoppedQueue:
        found = pulled(*offsets, then=max(offsets) + 1)
        self.stage.answers(
            PopMessage,
            answer(
                body=bytes(found.body),
                popTime=1,
                invisibleTime=60_000,
                reviveQid=0,
                restNum=0,
                startOffsetInfo="0 0 0",
            ),
        )
        held = self.member.held[ALL]
        assert isinstance(held, PoppedQueue)
        self.stage.perform(self.member.fetch(held))
        assert len(held.waiting) == len(offsets)
        return held


def test_a_change_of_mode_changes_how_a_queue_is_held() -> None:
    play = Play()
    assert set(play.member.held) == {ALL}
    play.assign("PULL", 0)
    assert play.stage.perform(play.member.rebalance())
    [held] = play.member.held.values()
    assert not isinstance(held, PoppedQueue)


def test_with_a_broker_that_shares_nothing_out_the_members_do_so() -> None:
    play = Play()
    play.stage.answers(QueryAssignment, answer(3))
    members = json.dumps({"consumerIdList": ["me@1"]}).encode()
    play.stage.answers(GetConsumerListByGroup, answer(body=members))
    assert play.stage.perform(play.member.rebalance())
    assert set(play.member.held) == {MessageQueue("T", "broker-a", 0)}


def test_no_assignment_at_all_keeps_what_there_is() -> None:
    play = Play()
    play.stage.answers(QueryAssignment, answer(body=b"{}"))
    assert not play.stage.perform(play.member.rebalance())
    assert set(play.member.held) == {ALL}
    play.assign("POP")
    assert play.stage.perform(play.member.rebalance())
    assert not play.member.held


def test_nothing_popped_is_committed_and_acknowledgements_leave_together() -> None:
    play = Play()
    play.pop(0, 1)
    for _ in range(2):
        batch = play.member.take_batch()
        assert batch is not None
        play.member.finished(batch)
    acknowledging = play.member.acknowledge_on()
    assert isinstance(next(acknowledging), Wait)
    play.stage.perform(play.member.close(1.0))
    [ask] = play.stage.asked(BatchAckMessage)
    [ack] = BatchAckRequest.from_bytes(ask.body).acks
    assert (ack.topic, ack.queue_id) == ("T", 0)
    assert not play.stage.asked(UpdateConsumerOffset)


def test_a_pop_finds_a_broker_that_has_moved() -> None:
    play = Play()
    held = play.member.held[ALL]
    play.stage.answers(GetRouteInfo, moved())
    play.stage.answers(PopMessage, ConnectError("refused"))
    for _ in range(3):
        play.stage.perform(play.member.fetch(held))
        play.stage.now_s += 1.0
    assert {ask.address for ask in play.stage.asked(PopMessage)} == {
        "broker-a:10911",
        "new-host:10911",
    }


def test_pops_that_are_refused_again_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    play = Play()
    held = play.member.held[ALL]
    refused, nothing = answer(16, remark="no permission"), answer(210)
    play.stage.answers(PopMessage, refused, refused, nothing, refused)
    for _ in range(4):
        play.stage.perform(play.member.fetch(held))
    assert len(caplog.records) == 2


def test_what_is_late_is_not_handed_out() -> None:
    play = Play()
    held = play.pop(0, 1)
    play.stage.now_s += 61
    assert play.member.take_batch() is None
    assert (len(held.waiting), held.at_work) == (0, 0)


def test_pops_pause_while_too_much_is_not_acknowledged() -> None:
    play = Play()
    held = play.pop(*range(assigned.AHEAD_MAX))
    assert held.full
    batch = play.member.take_batch()
    assert batch is not None
    assert held.full
    held.room.clear()
    play.member.finished(batch)
    assert held.room.is_set
    assert not held.full


@pytest.mark.parametrize(("level", "hidden_s"), [(0, 10), (1, 10), (3, 60), (18, 7200)])
def test_what_failed_is_hidden_until_its_next_try(level: int, hidden_s: int) -> None:
    play = Play()
    play.stage.answers(
        ChangeInvisibleTime, answer(popTime=2, invisibleTime=hidden_s * 1000, reviveQid=0)
    )
    held = play.pop(0)
    batch = play.member.take_batch()
    assert batch is not None
    play.stage.perform(play.member.settle(batch, Verdict(level)))
    [ask] = play.stage.asked(ChangeInvisibleTime)
    assert isinstance(ask.header, ChangeInvisibleTime)
    assert (ask.header.offset, ask.header.invisible_time) == (0, hidden_s * 1000)
    assert held.at_work == 0


def test_the_running_info_tells_of_pops_apart() -> None:
    play = Play()
    play.pop(0, 1)
    info = ConsumerRunningInfo.from_bytes(play.member.running_info(with_stacks=False).to_bytes())
    [(key, queue)] = info.mq_pop_table.items()
    assert queue_of(key).queue_id == -1
    assert queue.wait_ack_count == 2
    assert not info.mq_table


def test_a_broker_that_takes_nothing_back_only_costs_time() -> None:
    play = Play()
    held = play.pop(0)
    batch = play.member.take_batch()
    assert batch is not None
    play.stage.instance.routes.clear()
    play.stage.answers(GetRouteInfo, ConnectError("no"))
    play.stage.answers(BatchAckMessage, ConnectError("no"))
    play.member.finished(batch)
    play.stage.perform(play.member.close(1.0))
    assert held.at_work == 0
