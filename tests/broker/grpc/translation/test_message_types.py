"""A topic takes messages of its type alone."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.message_types import check_type, type_of, types_of
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code, MessageType
from aerobee.remoting.wire.bodies.topic import TopicConfig

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
TYPES = (*KINDS, "PRIORITY")


def topic(kind: str | None) -> TopicConfig:
    return TopicConfig(topic_name="T", attributes={} if kind is None else {"message.type": kind})


def test_a_topic_without_the_attribute_takes_ordinary_messages() -> None:
    assert types_of(topic(None)) == (MessageType.NORMAL,)
    assert types_of(topic("of the future")) == (MessageType.NORMAL,)


def test_a_mixed_topic_names_four_types_and_takes_all() -> None:
    mixed = topic("MIXED")
    assert [kind.name for kind in types_of(mixed)] == list(KINDS)
    for kind in MessageType:
        check_type("T", mixed, kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("sent", TYPES)
def test_types_have_to_be_equal(kind: str, sent: str) -> None:
    if kind == sent:
        check_type("T", topic(kind), MessageType[sent])
        return
    with pytest.raises(RpcRefused, match=f"expected type is {kind}.*is {sent}") as refused:
        check_type("T", topic(kind), MessageType[sent])
    assert refused.value.code is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_an_unknown_topic_and_one_without_a_type_take_nothing() -> None:
    for config in (None, topic("UNSPECIFIED")):
        with pytest.raises(RpcRefused, match="expected type is UNSPECIFIED"):
            check_type("T", config, MessageType.NORMAL)


def test_topics_of_groups_are_not_checked() -> None:
    check_type("%DLQ%g", None, MessageType.FIFO)
    check_type("%RETRY%g", topic("NORMAL"), MessageType.DELAY)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ((), MessageType.NORMAL),
        (("KEYS", "TAGS"), MessageType.NORMAL),
        (("__SHARDINGKEY",), MessageType.FIFO),
        (("_SYS_MSG_PRIORITY_", "KEYS"), MessageType.PRIORITY),
        (("_SYS_MSG_PRIORITY_", "__SHARDINGKEY"), MessageType.FIFO),
        (("_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS"), MessageType.DELAY),
        (("DELAY",), MessageType.DELAY),
        (("DELAY", "TRAN_MSG"), MessageType.TRANSACTION),
    ],
)
def test_the_type_of_a_message_is_that_of_its_properties(
    names: tuple[str, ...], kind: MessageType
) -> None:
    assert type_of(dict.fromkeys(names, "1")) is kind
