"""Popped records as messages of the 5.x clients."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import pytest

from aerobee.broker.grpc.translation.handles import Handle
from aerobee.broker.grpc.translation.received import (
    PopAnswer,
    integer,
    message_of,
    numbers,
    received,
)
from aerobee.broker.pop.pop_records import ORDER_REVIVE_QID, Receipt
from aerobee.remoting.grpc.enums import DigestType, Encoding, MessageType
from aerobee.remoting.grpc.messages import Message, Resource
from aerobee.remoting.server.addresses import packed_host
from aerobee.remoting.wire.headers.pop import PopMessageResponse
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import encode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.record import encode as encode_record

BORN = packed_host(("10.0.0.9", 50_123))
STORED = packed_host(("10.0.0.1", 10_911))
TOPIC = Resource(resource_namespace="asked so", name="T")
SAID = PopMessageResponse(1_000_000, 60_000, 3, 0, "0 2 10;1 2 77", "0 2 10,12")


def record(body: bytes = b"body", properties: dict[str, str] | None = None, **fields: Any) -> bytes:
    text = encode(properties or {}).encode()
    draft = MessageDraft("T", 2, body, text, BORN, STORED, born_timestamp=1_500, **fields)
    return encode_record(draft, 12, 4_711, 2_500)


def one(stored: bytes, said: PopMessageResponse = SAID) -> Any:
    """The message of a record, as its client reads it from the wire."""
    (got,) = received([stored], PopAnswer.of(said, "broker-a", "T"))
    sent = message_of(got.record, got.properties, TOPIC, handle=got.handle, attempt=got.attempt)
    return Message.FromString(sent.SerializeToString())


def test_a_message_is_what_was_sent_and_where_it_lies() -> None:
    told = {"UNIQ_KEY": "01AB", "TAGS": "a", "KEYS": "k1 k2", "colour": "red", "CLUSTER": "c"}
    message = one(record(properties=told))
    system = message.system_properties
    assert (message.topic, message.body) == (TOPIC, b"body")
    assert dict(message.user_properties) == {"colour": "red"}
    assert (system.tag, list(system.keys), system.message_id) == ("a", ["k1", "k2"], "01AB")
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == md5(b"body").hexdigest().upper()
    assert (system.body_encoding, system.message_type) == (Encoding.IDENTITY, MessageType.NORMAL)
    assert system.born_timestamp.ToMilliseconds() == 1_500
    assert system.store_timestamp.ToMilliseconds() == 2_500
    assert (system.born_host, system.store_host) == ("10.0.0.9:50123", "10.0.0.1:10911")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (2, 12, 1)
    assert system.invisible_duration.ToMilliseconds() == 60_000
    for absent in ("message_group", "trace_context", "priority", "delivery_timestamp"):
        assert not system.HasField(absent)


def test_a_body_that_the_disk_altered_has_no_digest_that_fits() -> None:
    system = one(record().replace(b"body", b"bodx")).system_properties
    assert (system.body_digest.type, system.body_digest.checksum) == (DigestType.MD5, "")


def test_its_handle_names_the_first_offset_of_the_pop_of_its_queue() -> None:
    system = one(record()).system_properties
    assert system.receipt_handle == "10 1000000 60000 3 0 broker-a 2 12 4711"
    assert system.message_id == offset_id(STORED, 4_711)


def test_a_message_delivered_again_keeps_the_receipt_of_its_retry_topic() -> None:
    receipt = Receipt(5, 1_000_000, 60_000, 3, "1", "broker-a", 0, 6)
    message = one(record(properties={"POP_CK": receipt.text()}, reconsume_times=2))
    assert message.system_properties.receipt_handle == Handle(receipt, 4_711).text()
    assert message.system_properties.delivery_attempt == 3
    assert not message.user_properties


@pytest.mark.parametrize(
    ("topic", "handle"),
    [
        ("%RETRY%g_T", "77 1000000 60000 3 1 broker-a 2 12 4711"),
        ("%RETRY%g+T", "12 1000000 60000 3 2 broker-a 2 12 4711"),
    ],
)
def test_a_message_delivered_again_without_room_for_its_receipt_has_it_all_the_same(
    topic: str, handle: str
) -> None:
    """Else nothing would acknowledge it, and it would be a dead letter again and again."""
    draft = MessageDraft(topic, 2, b"body", b"", BORN, STORED, born_timestamp=1_500)
    stored = encode_record(draft, 12, 4_711, 2_500)
    (got,) = received([stored], PopAnswer.of(SAID, "broker-a", "T"))
    assert got.handle.text() == handle
    assert got.handle.topic("T", "g") == topic


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt(5, 1_000_000, 60_000, 3, "7", "broker-a", 0, 6),
        Receipt(5, 1_000_000, 60_000, 3, "0", "broker-a", 0, 6),
        Receipt(5, 999_999, 60_000, 3, "1", "broker-a", 0, 6),
    ],
)
def test_a_receipt_that_this_pop_did_not_write_says_nothing(receipt: Receipt) -> None:
    """A producer may write one into a batch: what is acknowledged by it would be another's."""
    (got,) = received(
        [record(properties={"POP_CK": receipt.text()})], PopAnswer.of(SAID, "broker-a", "T")
    )
    assert got.handle.text() == "10 1000000 60000 3 0 broker-a 2 12 4711"
    assert got.handle.topic("T", "g") == "T"


def test_in_order_the_attempts_are_counted_by_the_pop() -> None:
    counts = "0 qo2%12 4;0 2 1"
    said = PopMessageResponse(1, 60_000, ORDER_REVIVE_QID, 0, "0 2 10", "0 2 10,12", counts)
    assert one(record(), said).system_properties.delivery_attempt == 5
    said.order_count_info = "0 2 1"
    assert one(record(), said).system_properties.delivery_attempt == 2
    said.order_count_info = "1 2 4"
    assert one(record(), said).system_properties.delivery_attempt == 1


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"TIMER_DELIVER_MS": "1700000000000"}, MessageType.DELAY),
        ({"TRAN_MSG": "true", "__transactionId__": "x"}, MessageType.TRANSACTION),
        ({"_SYS_MSG_PRIORITY_": "7"}, MessageType.PRIORITY),
    ],
)
def test_its_type_is_that_of_its_properties(properties: dict[str, str], kind: MessageType) -> None:
    assert one(record(properties=properties)).system_properties.message_type == kind


def test_what_only_some_messages_have() -> None:
    told = {
        "__SHARDINGKEY": "g",
        "TRACE_CONTEXT": "00-ab",
        "_SYS_MSG_PRIORITY_": "7",
        "TIMER_DELIVER_MS": "1700000000123",
        "__BORNHOST": "client",
        "DLQ_ORIGIN_TOPIC": "first",
        "DLQ_ORIGIN_MESSAGE_ID": "id",
    }
    system = one(record(properties=told)).system_properties
    assert (system.message_group, system.trace_context, system.priority) == ("g", "00-ab", 7)
    assert system.delivery_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.born_host == "client"
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("first", "id")


def test_numbers_of_others_are_not_read() -> None:
    told = numbers("0 2 10;1 2 77;0 x;nonsense;0 3 y;0 4 1")
    assert told == {("0", "2"): 10, ("1", "2"): 77, ("0", "4"): 1}
    assert numbers(None) == {}
    assert [integer(text) for text in (None, "", "x", "-3", "9" * 16, "¹")] == [
        *(None, None, None),
        -3,
        *(None, None),
    ]


def test_numbers_that_no_field_takes_are_bounded() -> None:
    told = {"_SYS_MSG_PRIORITY_": "99999999999", "TIMER_DELIVER_MS": "999999999999999"}
    system = one(record(properties=told, reconsume_times=2**31 - 1)).system_properties
    assert not system.HasField("priority")
    assert system.delivery_attempt == 2**31 - 1
