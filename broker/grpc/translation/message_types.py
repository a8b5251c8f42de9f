"""The type of a topic and that of a message: a topic takes messages of its type alone.

Source: grpc §2.4, §2.10 (TopicMessageType, DefaultTopicMessageTypeValidator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.grpc.translation.names import GROUP_TOPICS
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code, MessageType
from aerobee.remoting.wire.bodies.topic import MESSAGE_TYPE
from aerobee.store.format.priority import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from aerobee.remoting.wire.bodies.topic import TopicConfig

MIXED: Final = "MIXED"
ORDINARY: Final = (
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)
"""The types that a topic of mixed messages says that it takes."""
BY_ATTRIBUTE: Final[Mapping[str, tuple[MessageType, ...]]] = {
    "UNSPECIFIED": (MessageType.MESSAGE_TYPE_UNSPECIFIED,),
    "NORMAL": (MessageType.NORMAL,),
    "FIFO": (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
    "PRIORITY": (MessageType.PRIORITY,),
    MIXED: ORDINARY,
}

HALF: Final = "TRAN_MSG"
GROUP: Final = "__SHARDINGKEY"
DELIVER_AT: Final = "TIMER_DELIVER_MS"
DELAYS: Final = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", DELIVER_AT)


def types_of(topic: TopicConfig) -> tuple[MessageType, ...]:
    """The types of messages that a topic takes; without the attribute it takes ordinary ones, so
    that clients that ask first can use it.
    """
    return BY_ATTRIBUTE.get(topic.attributes.get(MESSAGE_TYPE, "NORMAL"), ORDINARY[:1])


def type_of(properties: Container[str]) -> MessageType:
    """The type of a message, by its properties: what the client says does not count."""
    if HALF in properties:
        return MessageType.TRANSACTION
    for name in DELAYS:
        if name in properties:
            return MessageType.DELAY
    if GROUP in properties:
        return MessageType.FIFO
    return MessageType.PRIORITY if PRIORITY in properties else MessageType.NORMAL


def check_type(name: str, topic: TopicConfig | None, sent: MessageType) -> None:
    """Refuse a message of another type than its topic's. `topic` None: it is unknown.

    Raises: RpcRefused.
    """
    if name.startswith(GROUP_TOPICS):
        return
    if topic is None:
        raise RpcRefused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is UNSPECIFIED, but actual type"
            f" is {sent.name}: there is no topic {name}, create it with its message type",
            topic=name,
        )
    types = types_of(topic)
    if sent in types or topic.attributes.get(MESSAGE_TYPE) == MIXED:
        return
    wanted = types[0].name if types[0] else "UNSPECIFIED"
    raise RpcRefused(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {wanted}, but actual type is"
        f" {sent.name}: topic {name} takes messages of its type alone",
        topic=name,
    )
