"""A push consumer's member as a play: who is woken, and what becomes of messages that failed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aerobee.client.handling import AGAIN, MessageModel, Verdict
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.consumers import PushConfig
from aerobee.client.steps import orderly, pushing
from aerobee.client.steps.effects import Ask, Effect, Signal, Steps, Wait
from aerobee.client.steps.orderly import OrderlyMember
from aerobee.client.steps.pushing import Batch, PushMember
from aerobee.errors import ConnectError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import HeartbeatData
from aerobee.remoting.wire.bodies.queue import (
    ConsumerRunningInfo,
    LockBatchRequest,
    LockBatchResponse,
    queue_of,
)
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import GetConsumerRunningInfo
from aerobee.remoting.wire.headers.client import (
    GetConsumerListByGroup,
    Heartbeat,
    LockBatchMq,
    UnlockBatchMq,
)
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    ResetOffsetInClient,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pull import LitePullMessage
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack, SendMessageV2
from tests.aerobee.client.steps.stage import Stage, answer, route
from tests.aerobee.client.steps.test_member import pull_answer, pulled
from tests.aerobee.client.steps.test_sending import stored

T0 = MessageQueue("T", "broker-a", 0)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)
ONEWAY = 2
RESET = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'


class Consumer:
    """A member that holds T0 alone and the retry queue."""

    def __init__(self, **options: Any) -> None:
        self.stage = stage = Stage()
        stage.answers(GetRouteInfo, route("broker-a", queues=1))
        stage.answers(Heartbeat, answer())
        members = json.dumps({"consumerIdList": ["me@1"]}).encode()
        stage.answers(GetConsumerListByGroup, answer(body=members))
        stage.answers(QueryConsumerOffset, answer(22))
        stage.answers(GetMaxOffset, answer(offset=0))
        stage.answers(GetMinOffset, answer(offset=0))
        stage.answers(UpdateConsumerOffset, answer())
        stage.answers(ConsumerSendMsgBack, answer())
        stage.answers(LockBatchMq, granted)
        stage.answers(UnlockBatchMq, answer())
        stage.answers(SendMessageV2, stored)
        config = PushConfig(group="g", **options)
        made = OrderlyMember if config.orderly else PushMember
        self.member = made(stage.instance, config, lambda held: None)
        self.member.begin()
        self.member.add_subscription("T", "*")
        assert stage.perform(self.member.rebalance())

    def pull(self, *offsets: int, then: int, **options: Any) -> None:
        self.stage.answers(LitePullMessage, pulled(*offsets, then=then, **options))
        held = self.member.held[T0]
        self.stage.perform(self.member.puller.pull(held, self.member.subscription_of("T")))

    def batch(self) -> Batch:
        batch = self.member.take_batch()
        assert batch is not None
        return batch

    @property
    def committable(self) -> int:
        return self.member.held[T0].commit_point


def granted(ask: Ask) -> Command:
    """The lock of everything that was asked for."""
    wanted = LockBatchRequest.from_bytes(ask.body).mq_set
    return answer(body=LockBatchResponse(lock_ok_mq_set=wanted).to_bytes())


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def idle(consumer: Consumer) -> tuple[Iterator[Effect], Signal]:
    """A worker that waits."""
    wake = Signal()
    steps = consumer.member.next_batch(wake)
    assert isinstance(next(steps), Wait)
    return steps, wake


def test_the_group_hears_of_its_retry_topic_and_reads_it_from_its_beginning(
    consumer: Consumer,
) -> None:
    assert set(consumer.member.held) == {T0, RETRY}
    [ask] = consumer.stage.asked(Heartbeat)
    [group] = HeartbeatData.from_bytes(ask.body).consumer_data_set
    assert {one.topic for one in group.subscription_data_set} == {"T", "%RETRY%g"}
    assert group.consume_type == "CONSUME_PASSIVELY"


def test_an_arrival_wakes_one_worker_and_that_one_the_next(consumer: Consumer) -> None:
    workers = [idle(consumer) for _ in range(3)]
    consumer.pull(0, 1, then=2)
    assert [wake.is_set for _, wake in workers] == [True, False, False]
    with pytest.raises(StopIteration):
        next(workers[0][0])
    assert [wake.is_set for _, wake in workers] == [True, True, False]


def test_what_failed_is_sent_back_and_done_with(consumer: Consumer) -> None:
    consumer.pull(0, 1, then=2)
    first, second = consumer.batch(), consumer.batch()
    consumer.member.finished(second)
    assert consumer.committable == 0
    consumer.stage.perform(consumer.member.settle(first, Verdict(level=4)))
    assert consumer.committable == 2
    [ask] = consumer.stage.asked(ConsumerSendMsgBack)
    fields = ask.header.ext()
    assert (fields["delayLevel"], fields["maxReconsumeTimes"]) == ("4", "16")


def test_what_its_broker_does_not_take_is_sent_as_a_new_message(consumer: Consumer) -> None:
    consumer.stage.answers(ConsumerSendMsgBack, ConnectError("no"))
    consumer.pull(0, then=1)
    consumer.stage.perform(consumer.member.settle(consumer.batch(), Verdict()))
    assert consumer.committable == 1
    [ask] = consumer.stage.asked(SendMessageV2)
    fields = ask.header.ext()
    assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%g", "1", "16")
    assert "RETRY_TOPIC\x01T\x02" in fields["i"]
    assert "DELAY\x013\x02" in fields["i"]


def test_what_nobody_takes_stays_and_is_handed_out_once_more(consumer: Consumer) -> None:
    consumer.stage.answers(ConsumerSendMsgBack, ConnectError("no"))
    consumer.stage.answers(SendMessageV2, ConnectError("no"))
    consumer.pull(0, then=1)
    consumer.stage.perform(consumer.member.settle(consumer.batch(), Verdict()))
    assert consumer.committable == 0
    assert consumer.member.take_batch() is None
    consumer.stage.now_s += pushing.AGAIN_S
    again = consumer.batch()
    assert again.messages[0].reconsume_times == 1
    consumer.member.finished(again)
    assert consumer.committable == 1


def test_what_cannot_be_read_is_sent_back_and_holds_up_nothing(consumer: Consumer) -> None:
    consumer.pull(0, 1, then=2, sys_flag=1)
    held = consumer.member.held[T0]
    steps = consumer.member.pull_on(held)
    sent_back = next(steps)
    steps.send(answer())
    assert isinstance(sent_back, Ask)
    assert isinstance(sent_back.header, ConsumerSendMsgBack)
    assert (held.broken, held.next_offset) == (None, 1)
    steps.close()


def test_nothing_is_pulled_far_beyond_a_message_that_is_stuck() -> None:
    consumer = Consumer(max_span=10)
    consumer.pull(0, 5, then=6)
    consumer.batch()
    assert not consumer.member.held[T0].full
    consumer.pull(11, then=12)
    consumer.batch()
    assert consumer.member.held[T0].full


def test_what_is_handled_while_another_is_sent_back_does_not_come_again(
    consumer: Consumer,
) -> None:
    """Two handlers are late, and the broker takes its time with the message of the first."""
    consumer.pull(0, 1, then=2)
    late, later = consumer.batch(), consumer.batch()
    watch = consumer.member.watch_over()
    next(watch)
    consumer.stage.now_s += consumer.member.config.handler_timeout
    asked = until_next_wait(watch)
    answered = consumer.stage.carry_out(next(asked))
    consumer.member.finished(later)
    with pytest.raises(StopIteration):
        asked.send(answered)
    assert (late.given_up, later.given_up) == (True, False)
    assert not consumer.member.running
    assert consumer.committable == 2


def test_in_broadcasting_a_failure_is_dropped_and_there_is_no_retry_topic() -> None:
    consumer = Consumer(model=MessageModel.BROADCASTING)
    assert set(consumer.member.held) == {T0}
    consumer.pull(0, then=1)
    consumer.stage.perform(consumer.member.settle(consumer.batch(), Verdict()))
    assert consumer.committable == 1
    assert not consumer.stage.asked(ConsumerSendMsgBack)
    assert not consumer.stage.asked(GetConsumerListByGroup)


def test_a_queue_that_another_has_locked_is_left_to_it_and_asked_for_again() -> None:
    consumer = Consumer(orderly=True)
    assert set(consumer.member.held) == {T0, RETRY}
    consumer.stage.perform(consumer.member.give_up(T0))
    assert len(consumer.stage.asked(UnlockBatchMq)) == 1
    consumer.stage.answers(LockBatchMq, answer(body=LockBatchResponse().to_bytes()))
    assert not consumer.stage.perform(consumer.member.rebalance())
    assert set(consumer.member.held) == {RETRY}
    consumer.stage.answers(LockBatchMq, granted)
    assert consumer.stage.perform(consumer.member.rebalance())
    assert set(consumer.member.held) == {T0, RETRY}


def test_in_order_a_queue_has_one_worker_and_is_not_given_up_under_it() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(0, 1, then=2)
    batch = consumer.batch()
    assert consumer.member.take_batch() is None
    consumer.member.rebalance_now.clear()
    consumer.stage.perform(consumer.member.give_up(T0))
    assert T0 in consumer.member.held
    consumer.member.finished(batch)
    assert consumer.member.rebalance_now.is_set
    assert consumer.member.take_batch() is None
    consumer.stage.perform(consumer.member.give_up(T0))
    assert T0 not in consumer.member.held
    [commit] = consumer.stage.asked(UpdateConsumerOffset)
    assert commit.header.ext()["commitOffset"] == "1"


def until_next_wait(steps: Steps[Any]) -> Steps[None]:
    """What steps ask until they wait again."""
    answer: Any = None
    while not isinstance(effect := steps.send(answer), Wait):
        answer = yield effect


def test_nothing_is_handed_out_under_a_lock_that_may_be_over() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(0, then=1)
    consumer.stage.now_s += orderly.LOCK_LIVES_S
    assert consumer.member.take_batch() is None
    held = consumer.member.held[T0]
    watch = consumer.member.watch_over()
    next(watch)
    consumer.stage.perform(until_next_wait(watch))
    assert held.dropped
    assert T0 not in consumer.member.held


def test_in_order_a_lost_queue_begins_again_behind_its_handler() -> None:
    """The lock is over, and granted again while the handler still works on the queue."""
    consumer = Consumer(orderly=True)
    consumer.pull(0, 1, then=2)
    at_work = consumer.batch()
    consumer.stage.now_s += orderly.LOCK_LIVES_S
    watch = consumer.member.watch_over()
    next(watch)
    consumer.stage.perform(until_next_wait(watch))
    assert not consumer.stage.perform(consumer.member.rebalance())
    assert T0 not in consumer.member.held
    consumer.member.finished(at_work)
    assert consumer.stage.perform(consumer.member.rebalance())
    assert T0 in consumer.member.held


# ── A topic made anew under a handler ──


def made_anew(consumer: Consumer) -> None:
    """Pull once, and hear that the queue begins at 0 again, with three messages."""
    consumer.stage.answers(SearchOffset, answer(offset=0))
    consumer.stage.answers(LitePullMessage, pull_answer(21, 0, end=3))
    subscription = consumer.member.subscription_of("T")
    puller = consumer.member.puller
    consumer.stage.perform(puller.pull(consumer.member.held[T0], subscription))


def test_a_message_of_the_old_topic_finishes_none_of_the_new_one(consumer: Consumer) -> None:
    consumer.pull(0, 1, then=2)
    at_work = consumer.batch()
    made_anew(consumer)
    consumer.pull(0, 1, 2, then=3)
    assert consumer.batch().messages[0].queue_offset == 0
    consumer.member.finished(at_work)
    assert consumer.committable == 0


def test_a_message_of_the_old_topic_that_failed_comes_again(consumer: Consumer) -> None:
    consumer.pull(0, then=1)
    at_work = consumer.batch()
    made_anew(consumer)
    consumer.stage.perform(consumer.member.settle(at_work, AGAIN))
    assert len(consumer.stage.asked(ConsumerSendMsgBack)) == 1


def test_in_order_a_failed_message_of_the_old_topic_does_not_stand_before_the_new_ones() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(100, 101, then=102)
    at_work = consumer.batch()
    consumer.stage.answers(SearchOffset, answer(offset=0))
    consumer.stage.answers(LitePullMessage, pull_answer(21, 0, end=3))
    subscription = consumer.member.subscription_of("T")
    steps = consumer.member.puller.pull(consumer.member.held[T0], subscription)
    consumer.stage.perform(until_next_wait(steps))
    consumer.stage.perform(consumer.member.settle(at_work, AGAIN))
    assert len(consumer.stage.asked(ConsumerSendMsgBack)) == 1
    consumer.stage.perform(steps)
    assert consumer.committable == 0
    consumer.pull(0, 1, 2, then=3)
    assert consumer.batch().messages[0].queue_offset == 0


def test_in_order_a_message_of_a_lost_queue_that_no_broker_takes_comes_again_here() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(0, then=1)
    at_work = consumer.batch()
    consumer.member.held[T0].lost = True
    consumer.member.held[T0].drop()
    for kind in (ConsumerSendMsgBack, SendMessageV2):
        consumer.stage.answers(kind, ConnectError("refused"))
    consumer.stage.perform(consumer.member.settle(at_work, AGAIN))
    assert consumer.stage.perform(consumer.member.next_batch(Signal())) is not None
    assert consumer.stage.now_s < 1_100


# ── Requests of brokers ──


def reset(consumer: Consumer) -> Any:
    header = ResetOffsetInClient(topic="T", group="g", timestamp=0)
    asked = Command(220, flag=ONEWAY, ext=header.ext(), body=RESET)
    return consumer.stage.instance.serve(asked)


def test_a_queue_goes_on_where_the_broker_says_and_what_was_at_work_counts_no_more(
    consumer: Consumer,
) -> None:
    consumer.pull(0, 1, then=2)
    at_work = consumer.batch()
    consumer.stage.perform(reset(consumer))
    consumer.member.finished(at_work)
    assert consumer.member.held[T0].next_offset == 5
    assert consumer.committable == 5
    [ask] = consumer.stage.asked(UpdateConsumerOffset)
    assert isinstance(ask.header, UpdateConsumerOffset)
    assert (ask.header.queue_id, ask.header.commit_offset) == (0, 5)
    assert consumer.member.take_batch() is None


def test_in_order_a_handler_ends_before_its_queue_begins_elsewhere() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(0, 1, then=2)
    at_work = consumer.batch()
    steps = reset(consumer)
    assert isinstance(next(steps), Wait)
    assert consumer.member.take_batch() is None
    consumer.member.finished(at_work)
    consumer.stage.perform(steps)
    held = consumer.member.held[T0]
    assert (held.next_offset, held.busy) == (5, False)
    assert held.locked_at > 0, "the lock is still ours"


def test_a_queue_that_is_reset_and_given_up_at_once_skips_nothing() -> None:
    consumer = Consumer(orderly=True)
    consumer.pull(0, 1, 2, then=3)
    at_work = consumer.batch()
    assert isinstance(next(reset(consumer)), Wait)
    consumer.stage.perform(consumer.member.give_up(T0))
    consumer.member.finished(at_work)
    consumer.stage.perform(consumer.member.give_up(T0))
    [commit] = consumer.stage.asked(UpdateConsumerOffset)
    assert commit.header.ext()["commitOffset"] == "1"


def test_a_group_that_is_not_here_is_an_error_that_says_so(consumer: Consumer) -> None:
    header = GetConsumerRunningInfo(consumer_group="other", client_id="me@1")
    answer = consumer.stage.instance.serve(Command(307, ext=header.ext()))
    assert isinstance(answer, Answer)
    assert (answer.code, answer.remark) == (1, "no consumer of group other in client me@1")


def test_the_running_info_names_what_is_cached(consumer: Consumer) -> None:
    consumer.pull(7, 9, then=10)
    consumer.batch()
    info = ConsumerRunningInfo.from_bytes(
        consumer.member.running_info(with_stacks=False).to_bytes()
    )
    [cached] = [one for key, one in info.mq_table.items() if queue_of(key).topic == "T"]
    assert (cached.cached_msg_min_offset, cached.cached_msg_max_offset) == (7, 9)
    assert (cached.cached_msg_count, cached.commit_offset) == (2, 7)
    assert cached.last_pull_timestamp == cached.last_consume_timestamp > 0
    assert info.jstack is None
