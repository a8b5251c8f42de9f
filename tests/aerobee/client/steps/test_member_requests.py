"""What a member says to brokers that ask it, as a play."""

from typing import Any

import pytest

from aerobee.client.handling import Verdict
from aerobee.client.steps import direct
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.figures import Figures
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue_tables import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    queue_of,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import ConsumeMessageDirectly, GetConsumerRunningInfo
from aerobee.remoting.wire.headers.offset import ResetOffsetInClient, UpdateConsumerOffset
from tests.aerobee.client.steps.test_member import pulled
from tests.aerobee.client.steps.test_pushing import T0, Consumer

ONEWAY = 2
RESET = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def reset(consumer: Consumer) -> Any:
    header = ResetOffsetInClient(topic="T", group="g", timestamp=0)
    asked = Command(220, flag=ONEWAY, ext=header.ext(), body=RESET)
    return consumer.stage.instance.serve(asked)


def given(consumer: Consumer, body: bytes) -> Any:
    header = ConsumeMessageDirectly(consumer_group="g", broker_name="broker-a")
    return consumer.stage.instance.serve(Command(309, ext=header.ext(), body=body))


def one_message() -> bytes:
    body = pulled(0, then=1).body
    assert isinstance(body, bytes)
    return body


def result(answer: Answer) -> ConsumeMessageDirectlyResult:
    assert isinstance(answer.body, bytes)
    return ConsumeMessageDirectlyResult.from_bytes(answer.body)


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


def test_what_is_handled_directly_is_never_sent_back_and_moves_nothing(consumer: Consumer) -> None:
    steps = given(consumer, one_message())
    assert isinstance(next(steps), Wait)
    batch = consumer.batch()
    error = ValueError("no")
    consumer.stage.perform(consumer.member.settle(batch, Verdict(error=error)))
    told = result(consumer.stage.perform(steps))
    assert (told.consume_result, told.remark) == ("CR_THROW_EXCEPTION", "ValueError: no")
    assert consumer.member.held[T0].commit_point == 0


def test_a_handler_that_does_not_end_is_told_of(consumer: Consumer) -> None:
    told = result(consumer.stage.perform(given(consumer, one_message())))
    assert told.consume_result == "CR_LATER"
    assert told.remark == "the handler did not end within 10 s"


def test_messages_to_handle_are_bounded_and_whole(consumer: Consumer) -> None:
    for _ in range(direct.DIRECT_MAX):
        given(consumer, one_message())
    assert given(consumer, one_message()).code == ResponseCode.SYSTEM_BUSY
    refused = given(Consumer(), b"\0" * 8)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "no message to handle" in refused.remark


def test_a_message_to_handle_wakes_a_worker(consumer: Consumer) -> None:
    wake = Signal()
    waiting = consumer.member.next_batch(wake)
    next(waiting)
    given(consumer, one_message())
    assert wake.is_set


def test_figures_are_of_the_last_minute_and_hour() -> None:
    figures = Figures(began=0.0)
    counts = figures.of("T")
    for now in range(0, 7200, 10):
        counts.calls += 1
        counts.call_s += 0.5
        counts.handled += 20
        counts.failed += 1
        figures.sample(float(now))
        figures.sample(now + 1.0)
    status = figures.status("T", 7190.0)
    assert status.consume_rt == 500.0
    assert status.consume_ok_tps == 2.0
    assert status.consume_failed_msgs == 359
    assert figures.status("other", 7190.0).pull_tps == 0.0
