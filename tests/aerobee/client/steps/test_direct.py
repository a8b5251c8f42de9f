"""A message that an administrator has a consumer handle, as a play."""

from typing import Any

import pytest

from aerobee.client.handling import Verdict
from aerobee.client.steps import direct
from aerobee.client.steps.effects import Signal, Wait
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue import ConsumeMessageDirectlyResult
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import ConsumeMessageDirectly
from tests.aerobee.client.steps.test_member import pulled
from tests.aerobee.client.steps.test_pushing import T0, Consumer


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


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
