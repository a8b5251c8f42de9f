import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.errors import MessageIllegal, PropertiesTooLong, RecordDamaged
from aerobee.store.format import record
from aerobee.store.format.batch import batch_items
from aerobee.store.format.faults import (
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_SIZE,
    BLANK,
    CRC,
    WRONG_OFFSET,
    ZEROS,
    NoRecord,
)
from aerobee.store.format.properties import closed
from aerobee.store.format.record import MessageDraft
from tests.kit.records import changed, header_of, kind_or_size

HOST4 = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
HOST6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


def draft(**fields: Any) -> MessageDraft:
    message = MessageDraft("T", 1, b"hi", b"TAGS\x01A\x02", HOST4, HOST4)
    return changed(message, **fields)


TOPICS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=200
).filter(lambda topic: len(topic.encode()) <= 255)
HOSTS = st.sampled_from([HOST4, HOST6])
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
DRAFTS = st.builds(
    MessageDraft,
    topic=TOPICS,
    queue_id=I32,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    born_host=HOSTS,
    store_host=HOSTS,
    flag=I32,
    sys_flag=I32,
    born_timestamp=I64,
    reconsume_times=I32,
    prepared_transaction_offset=I64,
)


@given(DRAFTS, I64, I64, I64, st.binary(max_size=5), st.binary(max_size=5))
def test_what_is_encoded_is_read(
    message: MessageDraft, queue_offset: int, place: int, stored: int, before: bytes, after: bytes
) -> None:
    data = record.encode(message, queue_offset, place, stored)
    buffer = before + data + after
    at = len(before)
    assert kind_or_size(buffer, at, place) == len(data)
    found = record.read(memoryview(buffer), at)
    assert found.topic == message.topic
    assert bytes(found.body) == message.body
    assert found.properties == closed(message.properties)
    assert (found.queue_offset, found.physical_offset) == (queue_offset, place)
    assert (found.store_timestamp, found.born_timestamp) == (stored, message.born_timestamp)
    assert (found.born_host, found.store_host) == (message.born_host, message.store_host)
    assert found.sys_flag & ~0x30 == message.sys_flag & ~0x30
    assert (found.queue_id, found.flag) == (message.queue_id, message.flag)
    assert found.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
    assert header_of(bytearray(buffer), at, place, crc=True) == record.RecordHeader(
        size=len(data),
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=queue_offset,
        sys_flag=found.sys_flag,
        store_timestamp=stored,
        properties=closed(message.properties),
    )
    at_store_time = record.store_timestamp_at(found.sys_flag)
    assert struct.unpack_from(">q", data, at_store_time) == (stored,)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 250), I64)
def test_any_bytes_are_judged_without_an_exception(data: bytes, at: int, place: int) -> None:
    for start in (b"", b"\x00\x00\x00\x60\xda\xa3\x20\xa7", b"\x00\x00\x00\x60\xda\xa3\x20\xab"):
        assert isinstance(record.parse(start + data, at, place), record.RecordHeader | NoRecord)


@given(DRAFTS, st.data())
def test_a_record_cut_short_is_no_record(message: MessageDraft, data: st.DataObject) -> None:
    whole = record.encode(message, 0, 0, 0)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert kind_or_size(cut, 0, 0) == BAD_SIZE


@given(DRAFTS, st.data())
def test_a_flipped_body_bit_is_seen(message: MessageDraft, data: st.DataObject) -> None:
    if not message.body:
        return
    whole = bytearray(record.encode(message, 0, 0, 0))
    body_at = 88 + len(message.born_host) + len(message.store_host) - 16
    at = body_at + data.draw(st.integers(0, len(message.body) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    assert kind_or_size(whole, 0, 0) == CRC
    assert kind_or_size(whole, 0, 0, crc=False) == len(whole)


def test_the_address_family_follows_the_hosts_whatever_the_producer_sent() -> None:
    data = record.encode(draft(sys_flag=0x31, born_host=HOST6), 0, 0, 0)
    assert record.read(data).sys_flag == 0x11
    assert len(data) == len(record.encode(draft(), 0, 0, 0)) + 12


def test_the_fixed_part_is_91_bytes() -> None:
    message = draft(topic="T", body=b"", properties=b"")
    assert len(record.encode(message, 0, 0, 0)) == 92


@pytest.mark.parametrize(("length", "magic"), [(127, record.MAGIC_V1), (128, record.MAGIC_V2)])
def test_only_a_topic_of_more_than_127_bytes_is_written_as_v2(length: int, magic: int) -> None:
    data = record.encode(draft(topic="t" * length), 0, 0, 0)
    assert record.read(data).magic == magic
    assert record.read(data).topic == "t" * length


@pytest.mark.parametrize("topic", ["", "t" * 256])
def test_a_topic_without_a_place_in_the_record_is_illegal(topic: str) -> None:
    with pytest.raises(MessageIllegal, match="topic"):
        record.encode(draft(topic=topic), 0, 0, 0)


def test_properties_beyond_their_length_field_are_illegal() -> None:
    with pytest.raises(PropertiesTooLong, match="32768"):
        record.encode(draft(properties=b"p" * 32_768), 0, 0, 0)


def test_a_record_of_another_physical_offset_is_none() -> None:
    data = record.encode(draft(), 0, 300, 0)
    assert kind_or_size(data, 0, 300) == len(data)
    assert kind_or_size(data, 0, 0) == WRONG_OFFSET


def test_lengths_that_do_not_add_up_give_the_size_to_skip() -> None:
    data = bytearray(record.encode(draft(), 0, 0, 0) + bytes(1))
    data[3] += 1
    assert record.parse(data, 0, 0) == NoRecord(BAD_LENGTHS, len(data))


def test_a_v1_topic_length_beyond_127_is_unreadable() -> None:
    data = bytearray(record.encode(draft(topic="t" * 127), 0, 0, 0))
    data[90] = 128
    assert kind_or_size(data, 0, 0) == BAD_LENGTHS


@pytest.mark.parametrize("torn", [b"\x00", b"\xff"])
def test_a_topic_that_was_never_legal_is_unreadable(torn: bytes) -> None:
    data = record.encode(draft(topic="TTT"), 0, 0, 0)
    assert kind_or_size(data.replace(b"TTT", b"T" + torn * 2), 0, 0) == BAD_LENGTHS


def test_the_blank_is_found_even_in_the_last_eight_bytes() -> None:
    assert record.blank(8).hex() == "00000008cbd43194"
    for rest in (0, 1, 200):
        assert kind_or_size(record.blank(8 + rest) + bytes(rest), 0, 0) == BLANK
    assert kind_or_size(record.blank(8)[:7], 0, 0) == BAD_SIZE


def test_unwritten_space_is_no_record() -> None:
    assert kind_or_size(bytes(500), 0, 0) == ZEROS
    assert kind_or_size(bytes(8), 0, 0) == ZEROS
    assert kind_or_size(bytes(5), 0, 0) == BAD_SIZE
    assert kind_or_size(bytes([1] * 500), 0, 0) == BAD_MAGIC


def test_reading_what_is_no_record_says_why() -> None:
    with pytest.raises(RecordDamaged, match="zeros"):
        record.read(bytes(200))
    with pytest.raises(RecordDamaged, match="10 bytes left"):
        record.read(bytes(10))


@pytest.mark.parametrize("born_host", [bytes(8), bytes(20)])
@pytest.mark.parametrize("store_host", [bytes(8), bytes(20)])
def test_the_store_time_is_read_from_the_begin_of_a_record(
    born_host: bytes, store_host: bytes
) -> None:
    draft = MessageDraft("T", 0, b"body", b"", born_host, store_host)
    head = record.encode(draft, 0, 9, 1_234)[: record.STORE_TIME_END]
    assert record.store_time(head, 9) == 1_234
    assert record.store_time(head, 8) == -1
    assert record.named_offset(head) == 9


def test_records_begin_where_the_sizes_before_them_say_up_to_an_impossible_one() -> None:
    draft = MessageDraft("T", 0, b"body", b"", bytes(8), bytes(8))
    whole = b"".join(record.encode(draft, number, 0, 0) for number in range(3))
    size = len(whole) // 3
    views = [whole, whole[:size] + bytes(200) + whole, whole[:-1]]
    places = [at for _, at in record.starts(views)]
    assert places == [0, size, 2 * size, 0, size, 0, size, 2 * size]
    assert record.queue_offsets([whole]) == [0, 1, 2]


def test_many_topics_do_not_pile_up() -> None:
    for number in range(20):
        data = record.encode(draft(topic=f"topic-{number}"), 0, 0, 0)
        assert kind_or_size(data, 0, 0) == len(data)
    assert len(record._TOPICS) <= record._TOPICS_MAX


# ── Batches ──

ITEMS = st.lists(st.tuples(I32, st.binary(max_size=40), st.binary(max_size=40)), max_size=5)


def batch(items: list[tuple[int, bytes, bytes]]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for flag, body, properties in items
    )


@given(ITEMS)
def test_a_batch_gives_its_messages(items: list[tuple[int, bytes, bytes]]) -> None:
    found = [(flag, bytes(body), props) for flag, body, props in batch_items(batch(items))]
    assert found == items


@given(ITEMS.filter(bool), st.data())
def test_a_batch_cut_anywhere_else_is_illegal(
    items: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    whole = batch(items)
    ends = {len(batch(items[:count])) for count in range(len(items) + 1)}
    at = data.draw(st.integers(0, len(whole)).filter(lambda at: at not in ends))
    with pytest.raises(MessageIllegal):
        list(batch_items(whole[:at]))


@given(st.binary(max_size=100))
def test_any_batch_is_read_or_refused(body: bytes) -> None:
    try:
        found = list(batch_items(body))
    except MessageIllegal:
        return
    assert batch([(flag, bytes(item), props) for flag, item, props in found])[:4] == body[:4]


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 2**31 - 1), (0, 0), (0, -1), (16, 2**31 - 1), (16, -1), (16, 3), (22, -(2**15) << 16)],
)
def test_a_lying_length_is_illegal(at: int, value: int) -> None:
    body = bytearray(batch([(0, b"hi", b"a\x01b\x02")]))
    struct.pack_into(">i", body, at, value)
    with pytest.raises(MessageIllegal, match="batch"):
        list(batch_items(bytes(body)))
