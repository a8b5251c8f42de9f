"""Requests through a topic: the request is a message, and a broker pushes the reply.

    request → message with CORRELATION_ID → (a consumer) → reply to the cluster's reply topic
    PUSH_REPLY_MESSAGE_TO_CLIENT → the request that waits for that id

The broker that receives the reply pushes it over its connection to this client; so every master
must have a heartbeat of the client before the request is sent. Source: client §7.3.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from aerobee.client.message import Message, milliseconds
from aerobee.client.steps.effects import Wait
from aerobee.client.steps.messages import pushed
from aerobee.client.steps.questions import Question
from aerobee.errors import CompressionError, ConfigurationError, ReplyTimeoutError
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.send import PushReplyMessage
from aerobee.store.format.system_names import REPLY_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import SendResult
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.sending import Sender
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")

CORRELATION_ID, REPLY_TO_CLIENT, TTL = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"


def ask_through_topic(sender: Sender, message: Message, timeout_s: float) -> Steps[ReceivedMessage]:
    """Send a request and wait for its reply; the timeout is for both.

    Raises: ReplyTimeoutError, and as `Sender.send`.
    """
    instance = sender.instance
    if message.delayed:
        raise ConfigurationError("a request is delivered at once: it has no delay")
    number = str(UUID(int=instance.random.getrandbits(128), version=4))
    extra = {
        CORRELATION_ID: number,
        REPLY_TO_CLIENT: instance.config.client_id,
        TTL: str(milliseconds("timeout", timeout_s)),
    }
    batch = sender.batch_of(message, extra)
    deadline = instance.clock.monotonic() + timeout_s
    instance.services[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = partial(take_answer, instance)
    question = instance.questions[number] = Question()
    try:
        yield from instance.heartbeat_all(message.topic)
        left_s = deadline - instance.clock.monotonic()
        (sent,) = yield from sender.deliver(batch, left_s)
        yield Wait(question.arrived, max(0.0, deadline - instance.clock.monotonic()))
    finally:
        del instance.questions[number]
    if question.answer is None:
        raise ReplyTimeoutError(
            f"no answer to message {sent.message_id} in {sent.queue} within {timeout_s:g} s"
        ).about(topic=message.topic, broker=sent.queue.broker_name)
    return question.answer


def take_answer(instance: Instance, request: Command, _address: str) -> int:
    """Pass a reply from a broker to the request that waits for it."""
    header = request.header(PushReplyMessage)
    try:
        answer = pushed(header, request.body)
    except CompressionError as error:
        log.warning("an answer cannot be read: %s", error)
        return ResponseCode.SYSTEM_ERROR
    question = instance.questions.get(answer.properties.get(CORRELATION_ID, ""))
    if question is None:
        log.info("an answer came too late or twice: %s", answer.message_id)
    else:
        question.answer = answer
        question.arrived.set()
    return ResponseCode.SUCCESS


def reply(
    sender: Sender, to: ReceivedMessage, body: bytes, properties: Mapping[str, str]
) -> Steps[SendResult]:
    """Reply to a request. Raises: ConfigurationError for other messages, and as `Sender.send`."""
    copied = {name: to.properties.get(name, "") for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL)}
    cluster = to.properties.get("CLUSTER")
    if not (cluster and copied[CORRELATION_ID] and copied[REPLY_TO_CLIENT]):
        raise ConfigurationError(f"message {to.message_id} is no request: nobody waits for a reply")
    message = Message(f"{cluster}{REPLY_SUFFIX}", body, properties=properties)
    batch = sender.batch_of(message, {**copied, "MSG_TYPE": "reply"}, reply=True)
    (sent,) = yield from sender.deliver(batch, None)
    return sent
