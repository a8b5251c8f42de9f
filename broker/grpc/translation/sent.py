"""A message of a 5.x client → the header of a send, with all checks. The body goes as it is.

Source: grpc §2.7, §2.10, §2.11 (SendMessageActivity).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.grpc.translation.message_types import (
    DELIVER_AT,
    GROUP,
    HALF,
    check_type,
    type_of,
)
from aerobee.broker.grpc.translation.queue_choice import chosen_queue
from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.broker.grpc.translation.system_properties import SYSTEM_PROPERTIES
from aerobee.remoting.grpc.enums import Code, Encoding, MessageType
from aerobee.remoting.wire.headers.send import SendMessageV2
from aerobee.store.format.priority import PRIORITY
from aerobee.store.format.properties import encode
from aerobee.store.format.record import COMPRESSED, TRANSACTION_PREPARED
from aerobee.store.format.system_names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.wire.bodies.topic import TopicConfig

ANY_QUEUE: Final = -1
TEMPLATE_QUEUES: Final = 4
GROUP_BYTES_MAX: Final = 63
PROPERTIES_MAX: Final = 128
PROPERTIES_BYTES_MAX: Final = 16_384
UTF8_BYTES_MAX: Final = 4
"""The most bytes of one character."""
RECOVERY_MAX_S: Final = 3_600
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Sender(NamedTuple):
    """Where a message comes from, and the limits that it must keep to."""

    born_host: str
    """The address of the client, where the message names none."""
    now_ms: int
    body_bytes_max: int
    delay_ms_max: int


def header_of(message: Any, name: str, topic: TopicConfig | None, sender: Sender) -> SendMessageV2:
    """The header of the send of one message to the topic of this name; `topic` None: it is unknown.

    Raises: RpcRefused.
    """
    system = message.system_properties
    check_body(message.body, sender.body_bytes_max)
    properties = properties_of(message, sender)
    text = encode(properties)
    if len(text) * UTF8_BYTES_MAX > PROPERTIES_BYTES_MAX:
        check_size(message.user_properties, properties)
    kind = type_of(properties)
    check_type(name, topic, kind)
    sys_flag = COMPRESSED if system.body_encoding == Encoding.GZIP else 0
    if kind is MessageType.TRANSACTION:
        sys_flag |= TRANSACTION_PREPARED
    group = properties.get(GROUP)
    queue_id = ANY_QUEUE
    if group is not None and topic is not None:
        queue_id = chosen_queue(group, topic.write_queue_nums)
    return SendMessageV2(
        producer_group=name,
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=TEMPLATE_QUEUES,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=int(properties["BORN_TIMESTAMP"]),
        flag=0,
        properties=text,
        reconsume_times=system.delivery_attempt,
    )


def check_body(body: bytes, bytes_max: int) -> None:
    """Refuse an empty body, or one that is too long. Raises: RpcRefused."""
    if not body:
        raise RpcRefused(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > bytes_max:
        raise RpcRefused(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"message body has {len(body)} bytes, at most {bytes_max} are taken",
        )


def properties_of(message: Any, sender: Sender) -> dict[str, str]:
    """The properties of the record. Hot. Raises: RpcRefused."""
    system = message.system_properties
    check_count(len(message.user_properties))
    properties: dict[str, str] = dict(message.user_properties)
    if properties:
        check_user_properties(properties)
    properties["UNIQ_KEY"] = message_id = system.message_id
    check_message_id(message_id)
    if system.HasField("tag"):
        properties["TAGS"] = tag = system.tag
        check_tag(tag)
    if keys := list(system.keys):
        properties["KEYS"] = joined = " ".join(keys)
        if len(joined) > PROPERTIES_BYTES_MAX:
            raise too_long(len(joined))
        for key in keys:
            check_text(key, Code.ILLEGAL_MESSAGE_KEY, "key")
    if system.HasField("message_group"):
        check_group(system.message_group)
        properties[GROUP] = system.message_group
    if system.HasField("delivery_timestamp"):
        deliver_ms = system.delivery_timestamp.ToMilliseconds()
        check_delay(deliver_ms - sender.now_ms, sender.delay_ms_max)
        properties[DELIVER_AT] = str(deliver_ms)
    if system.HasField("priority"):
        check_priority(system.priority)
        properties[PRIORITY] = str(system.priority)
    if system.message_type == MessageType.TRANSACTION:
        properties[HALF] = "true"
        add_recovery(properties, system)
    born_ms = system.born_timestamp.ToMilliseconds() if system.HasField("born_timestamp") else 0
    properties["BORN_TIMESTAMP"] = str(born_ms or sender.now_ms)
    properties["__BORNHOST"] = born_host = system.born_host or sender.born_host
    if has_control(born_host):
        raise RpcRefused(Code.BAD_REQUEST, "the born host has a control character")
    properties["RECONSUME_TIME"] = str(system.delivery_attempt)
    if system.HasField("trace_context"):
        check_property("TRACE_CONTEXT", system.trace_context)
        properties["TRACE_CONTEXT"] = system.trace_context
    properties["PGROUP"] = message.topic.name
    return properties


def add_recovery(properties: dict[str, str], system: Any) -> None:
    """When the producer of a half is asked for its end. Raises: RpcRefused."""
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.ToSeconds()
        if not 0 <= seconds <= RECOVERY_MAX_S:
            raise RpcRefused(
                Code.BAD_REQUEST,
                f"the transaction is to be recovered after {seconds} s,"
                f" 0 to {RECOVERY_MAX_S} s are taken",
            )
        properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(seconds)


# ── Checks ──


def has_control(text: str) -> bool:
    """Whether a text has a control character. Hot: most texts need no pattern."""
    return not text.isprintable() and CONTROL.search(text) is not None


def check_text(text: str, code: Code, what: str) -> None:
    """Refuse a blank text, or one with control characters. Raises: RpcRefused."""
    if text.isalnum():
        return  # Most are of letters and digits alone.
    if not text.strip():
        raise RpcRefused(code, f"{what} cannot be blank")
    if has_control(text):
        raise RpcRefused(code, f"{what} {quoted(text)} has a control character")


def check_message_id(message_id: str) -> None:
    """Refuse a message without an id of its own. Raises: RpcRefused."""
    check_text(message_id, Code.ILLEGAL_MESSAGE_ID, "message id")


def check_tag(tag: str) -> None:
    """Refuse a tag that no expression could name. Raises: RpcRefused."""
    check_text(tag, Code.ILLEGAL_MESSAGE_TAG, "tag")
    if "|" in tag:
        raise RpcRefused(
            Code.ILLEGAL_MESSAGE_TAG, f"tag {quoted(tag)} has a '|', which separates tags"
        )


def check_group(group: str) -> None:
    """Refuse a message group that cannot be kept. Raises: RpcRefused."""
    check_text(group, Code.ILLEGAL_MESSAGE_GROUP, "message group")
    size = len(group.encode())
    if size > GROUP_BYTES_MAX:
        raise RpcRefused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message group has {size} bytes, at most {GROUP_BYTES_MAX} are taken",
        )


def check_priority(priority: int) -> None:
    """Refuse a priority that has no queue. Raises: RpcRefused."""
    if priority < 0:
        raise RpcRefused(Code.BAD_REQUEST, f"priority is {priority}: 0 is the lowest")


def check_property(name: str, value: str) -> None:
    """Refuse what cannot be a part of the properties of a record. Raises: RpcRefused."""
    for text in (name, value):
        if has_control(text):
            raise RpcRefused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"property {quoted(name)} has a control character in its name or value",
            )


def check_count(properties: int) -> None:
    """Refuse more properties than a message may have. Raises: RpcRefused."""
    if properties > PROPERTIES_MAX:
        raise RpcRefused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"message has {properties} properties, at most {PROPERTIES_MAX} are taken",
        )


def check_user_properties(user: dict[str, str]) -> None:
    """Refuse names that RocketMQ gives its own meaning. Raises: RpcRefused."""
    if not SYSTEM_PROPERTIES.isdisjoint(user):
        name = next(name for name in user if name in SYSTEM_PROPERTIES)
        raise RpcRefused(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            f"property {name} is one of RocketMQ's own: give yours another name",
        )
    for name, value in user.items():
        check_property(name, value)


def check_size(user: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Refuse more text than a record has room for. Raises: RpcRefused."""
    size = sum(len(name.encode()) + len(value.encode()) for name, value in user.items())
    size += len(properties.get("TAGS", "").encode()) + len(properties.get("KEYS", "").encode())
    if size > PROPERTIES_BYTES_MAX:
        raise too_long(size)


def too_long(size: int) -> RpcRefused:
    """The refusal of a message with so much text."""
    return RpcRefused(
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        f"properties, tag and keys have {size} bytes, at most {PROPERTIES_BYTES_MAX} are taken",
    )


def check_delay(delay_ms: int, ms_max: int) -> None:
    """Refuse a time of delivery that is too far away. Raises: RpcRefused."""
    if delay_ms > ms_max:
        raise RpcRefused(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the message is to be delivered in {delay_ms} ms, and maxDelayTimeMills and "
            f"timerMaxDelaySec allow {ms_max}",
        )
