"""Recalls a delayed message before its delivery. Source: client §5.7, semantics §9.5."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING

from aerobee.client.message import check_topic
from aerobee.client.namespaces import wrapped
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.answers import expect, header_of
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.producer_batch import ROUTE_IS_OLD
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.remoting.wire.headers.send import RecallMessage, RecallMessageResponse

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.sending import Sender

HANDLE_VERSION = "v1"


def recall(sender: Sender, topic: str, handle: str | None, timeout_s: float | None) -> Steps[str]:
    """Recall a delayed message at its broker; returns the id of the message.

    Raises: ConfigurationError for a handle that is invalid or of another topic, BrokerError,
    TransportError, RouteNotFoundError, BrokerNotFoundError.
    """
    check_topic(topic)
    if not handle:
        raise ConfigurationError(
            "no recall handle: the message was not delayed, or its broker is older than 5.3.2"
        )
    broker_name = broker_of(handle, wrapped(topic, sender.instance.config.namespace))
    instance = sender.instance
    request_s = instance.config.request_timeout if timeout_s is None else timeout_s
    yield from instance.locate(MessageQueue(topic, broker_name, 0), request_s)
    header = RecallMessage(producer_group=sender.config.group, topic=topic, recall_handle=handle)
    ask = Ask(address=instance.master(broker_name), header=header, timeout_s=request_s)
    try:
        answer = expect(ask, (yield ask), broker_name)
    except AerobeeError as error:
        if error.code in ROUTE_IS_OLD:
            instance.suspect(topic)
        raise
    message_id = header_of(ask, answer, RecallMessageResponse).msg_id
    if sender.traces:
        sender.traces.recalled(topic, message_id)
    return message_id


def broker_of(handle: str, topic: str) -> str:
    """The broker name in a handle. Raises: ConfigurationError."""
    try:
        padding = "=" * (-len(handle) % 4)
        fields = urlsafe_b64decode(handle + padding).decode().split(" ")
    except (binascii.Error, ValueError):
        fields = []
    if len(fields) != 5 or fields[0] != HANDLE_VERSION:
        raise ConfigurationError(f"{handle[:80]!r} is no recall handle: see SendResult")
    if fields[1] != topic:
        raise ConfigurationError(f"the handle is of a message to {fields[1]}, not to {topic}")
    return fields[2]
