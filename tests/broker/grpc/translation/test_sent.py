"""Messages of 5.x clients → sends, and all that is refused of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.grpc.translation.queue_choice import chosen_queue
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.sent import Sender, has_control, header_of
from aerobee.broker.grpc.translation.system_properties import SYSTEM_PROPERTIES
from aerobee.remoting.grpc.enums import Code, Encoding, MessageType
from aerobee.remoting.grpc.messages import Message, Resource, SystemProperties
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.store.format.properties import decode

if TYPE_CHECKING:
    from aerobee.remoting.wire.headers.send import SendMessageV2

NOW_MS = 1_700_000_000_123
DELAY_MS_MAX = 40 * 24 * 3_600_000
SENDER = Sender("10.0.0.9", NOW_MS, 4 << 20, DELAY_MS_MAX)


def message(body: bytes = b"body", user: dict[str, str] | None = None, **system: Any) -> Any:
    given_system = {"message_id": "01AB", **system}
    delivery_ms = given_system.pop("deliver_ms", None)
    recovery_s = given_system.pop("recovery_s", None)
    properties = SystemProperties(**given_system)
    if delivery_ms is not None:
        properties.delivery_timestamp.FromMilliseconds(delivery_ms)
    if recovery_s is not None:
        properties.orphaned_transaction_recovery_duration.FromSeconds(recovery_s)
    return Message(
        topic=Resource(name="T"),
        user_properties=user or {},
        system_properties=properties,
        body=body,
    )


def sent(given_message: Any, kind: str = "MIXED", sender: Sender = SENDER) -> SendMessageV2:
    topic = TopicConfig(topic_name="T", write_queue_nums=4, attributes={"message.type": kind})
    return header_of(given_message, "T", topic, sender)


def properties(given_message: Any) -> dict[str, str]:
    return decode(sent(given_message).properties or "")


def refused(given_message: Any) -> RpcRefused:
    with pytest.raises(RpcRefused) as caught:
        sent(given_message)
    return caught.value


def test_an_ordinary_message_goes_to_any_queue_with_its_properties() -> None:
    header = sent(message(tag="a", keys=["k1", "k2"], user={"colour": "red"}), "NORMAL")
    assert (header.topic, header.producer_group, header.queue_id) == ("T", "T", -1)
    assert (header.sys_flag, header.born_timestamp) == (0, NOW_MS)
    assert decode(header.properties or "") == {
        "colour": "red",
        "UNIQ_KEY": "01AB",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "BORN_TIMESTAMP": str(NOW_MS),
        "__BORNHOST": "10.0.0.9",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
    }


def test_what_the_client_says_of_its_birth_counts() -> None:
    one = message(born_host="client-7")
    one.system_properties.born_timestamp.FromMilliseconds(1_234_567)
    header = sent(one)
    assert header.born_timestamp == 1_234_567
    told = decode(header.properties or "")
    assert (told["BORN_TIMESTAMP"], told["__BORNHOST"]) == ("1234567", "client-7")


def test_a_compressed_body_is_marked() -> None:
    assert sent(message(body_encoding=Encoding.GZIP)).sys_flag == 1


def test_the_messages_of_a_group_go_to_one_queue() -> None:
    header = sent(message(message_group="order-7"), "FIFO")
    assert header.queue_id == chosen_queue("order-7", 4)
    assert decode(header.properties or "")["__SHARDINGKEY"] == "order-7"


def test_a_delayed_message_has_its_time() -> None:
    due_ms = NOW_MS + DELAY_MS_MAX
    header = sent(message(deliver_ms=due_ms), "DELAY")
    assert decode(header.properties or "")["TIMER_DELIVER_MS"] == str(due_ms)
    assert refused(message(deliver_ms=due_ms + 1)).code is Code.ILLEGAL_DELIVERY_TIME


def test_a_half_message_is_marked_twice() -> None:
    header = sent(message(message_type=MessageType.TRANSACTION, recovery_s=30), "TRANSACTION")
    told = decode(header.properties or "")
    assert header.sys_flag == 4
    assert (told["TRAN_MSG"], told["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")


@pytest.mark.parametrize("seconds", [-1, 3_601])
def test_a_recovery_that_is_too_late_is_refused(seconds: int) -> None:
    one = message(message_type=MessageType.TRANSACTION, recovery_s=seconds)
    assert refused(one).code is Code.BAD_REQUEST


def test_priority_and_trace_context_are_kept() -> None:
    told = properties(message(priority=3, trace_context="00-ab-cd-01", delivery_attempt=2))
    assert told["_SYS_MSG_PRIORITY_"] == "3"
    assert told["TRACE_CONTEXT"] == "00-ab-cd-01"
    assert told["RECONSUME_TIME"] == "2"


def test_a_negative_priority_is_refused() -> None:
    assert properties(message(priority=0))["_SYS_MSG_PRIORITY_"] == "0"
    said = refused(message(priority=-1))
    assert (said.code, "priority is -1" in said.text) == (Code.BAD_REQUEST, True)


def test_the_type_that_the_client_says_does_not_count() -> None:
    with pytest.raises(RpcRefused, match="actual type is FIFO"):
        sent(message(message_group="g", message_type=MessageType.NORMAL), "NORMAL")


def test_bodies_have_limits() -> None:
    small = SENDER._replace(body_bytes_max=8)
    assert refused(message(b"")).code is Code.MESSAGE_BODY_EMPTY
    sent(message(b"x" * 8), sender=small)
    with pytest.raises(RpcRefused, match="9 bytes, at most 8") as caught:
        sent(message(b"x" * 9), sender=small)
    assert caught.value.code is Code.MESSAGE_BODY_TOO_LARGE


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_id": ""}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x02b"}, Code.ILLEGAL_MESSAGE_ID),
        ({"tag": ""}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a\x01"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["k", " "]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["k\n"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"message_group": ""}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "x" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "ü" * 32}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "a\x7f"}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"born_host": "a\x02b"}, Code.BAD_REQUEST),
        ({"trace_context": "a\x01b"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ],
)
def test_a_bad_part_is_refused_with_its_own_code(system: dict[str, Any], code: Code) -> None:
    assert refused(message(**system)).code is code


def test_the_longest_message_group_is_taken() -> None:
    assert properties(message(message_group="x" * 63))["__SHARDINGKEY"] == "x" * 63


@pytest.mark.parametrize("name", sorted(SYSTEM_PROPERTIES))
def test_the_names_of_rocketmq_are_refused_from_users(name: str) -> None:
    assert refused(message(user={name: "x"})).code is Code.ILLEGAL_MESSAGE_PROPERTY_KEY


def test_control_characters_and_too_much_are_refused_from_users() -> None:
    for user in ({"a\x01": "b"}, {"a": "b\x02"}):
        assert refused(message(user=user)).code is Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    many = {f"k{number}": "v" for number in range(129)}
    assert refused(message(user=many)).code is Code.MESSAGE_PROPERTIES_TOO_LARGE
    del many["k0"]
    sent(message(user=many))
    large = {"k": "v" * (16_384 - 1 - 2 - 3)}
    sent(message(user=large, tag="ab", keys=["xyz"]))
    too_large = message(user=large, tag="ab", keys=["wxyz"])
    assert refused(too_large).code is Code.MESSAGE_PROPERTIES_TOO_LARGE


def test_the_size_is_one_of_bytes() -> None:
    for character, bytes_each in (("v", 1), ("é", 2), ("😀", 4)):
        fits = 16_384 // bytes_each - 1
        sent(message(user={"k": character * fits}))
        too_large = message(user={"k": character * (fits + 2)})
        assert refused(too_large).code is Code.MESSAGE_PROPERTIES_TOO_LARGE


def test_only_control_characters_are_control_characters() -> None:
    every = map(chr, range(0x3_000))
    assert [character for character in every if has_control(f"a{character}b")] == [
        chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))
    ]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_send_a_refusal_or_no_message(data: bytes) -> None:
    try:
        given_message = Message.FromString(data)
    except DecodeError:
        return
    try:
        header = sent(given_message)
    except RpcRefused:
        return
    assert "\x01UNIQ_KEY" not in (header.properties or "")
