"""A batch gives the records that its messages give one by one."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.errors import MessageIllegal
from aerobee.store.format import record
from aerobee.store.format.batch import BatchItems, batch_columns, encode_batch
from aerobee.store.format.properties import closed
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT
from tests.kit.records import changed

HOSTS = st.sampled_from([bytes([10, 0, 0, 1, 0, 0, 42, 159]), bytes(range(20))])
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)
EMPTY = st.builds(
    MessageDraft,
    topic=st.text("Tö", min_size=1, max_size=200),
    queue_id=I32,
    body=st.just(b""),
    properties=st.just(b""),
    born_host=HOSTS,
    store_host=HOSTS,
    sys_flag=I32,
    born_timestamp=I64,
    reconsume_times=I32,
)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01A\x02", b"a\x01b", b"TAGS\x01B", b"x" * 32_767])
ITEMS = st.lists(st.tuples(I32, st.binary(max_size=50), PROPERTIES), min_size=1, max_size=5)
ALIKE = st.builds(
    lambda flags, length, properties: [
        (flag, bytes([flag & 255]) * length, properties) for flag in flags
    ],
    st.lists(I32, min_size=1, max_size=5),
    st.integers(0, 50),
    PROPERTIES,
)


@given(EMPTY, ITEMS | ALIKE, OFFSETS, OFFSETS, I64)
def test_a_batch_is_its_messages_one_by_one(
    empty: MessageDraft,
    items: list[tuple[int, bytes, bytes]],
    queue_offset: int,
    physical_offset: int,
    stored: int,
) -> None:
    columns = BatchItems.joined(list(batch_columns(body_of(items), 3)))
    model = record.encode(empty, 0, 0, 0)
    batch = encode_batch(model, columns.closed(), queue_offset, physical_offset, stored)
    data, units, offsets = [], [], []
    at = physical_offset
    for number, (flag, body, properties) in enumerate(items, queue_offset):
        draft = changed(empty, flag=flag, body=body, properties=properties)
        one = record.encode(draft, number, at, stored)
        data.append(one)
        units.append(UNIT.pack(at, len(one), tags_code_of(properties)))
        offsets.append(at)
        at += len(one)
    assert batch.data == b"".join(data)
    assert batch.units == b"".join(units)
    assert list(batch.offsets) == offsets
    if any(properties for _, _, properties in items):
        assert [closed(one) for _, _, one in items] == list(batch.properties)
    else:
        assert not batch.properties


@given(st.lists(ITEMS | ALIKE, max_size=4), st.integers(1, 6))
def test_pieces_of_a_batch_are_its_messages(
    parts: list[list[tuple[int, bytes, bytes]]], most: int
) -> None:
    """Whether neighbours are alike or not, wherever a piece ends."""
    items = [item for part in parts for item in part]
    pieces = list(batch_columns(body_of(items), most))
    assert [item for piece in pieces for item in rows(piece)] == items
    assert all(len(piece.flags) <= most for piece in pieces)
    expected = sum(len(body) + len(properties) for _, body, properties in items)
    assert sum(piece.content_bytes for piece in pieces) == expected
    if pieces:
        joined = BatchItems.joined(pieces)
        assert list(rows(joined)) == items


@pytest.mark.parametrize("at", [0, 16, 22])
@pytest.mark.parametrize("number", range(5))
def test_a_wrong_length_among_messages_alike_is_found(number: int, at: int) -> None:
    """Size, length of the body and length of the properties, of each message."""
    item = body_of([(0, b"hi", b"")])
    body = bytearray(item * 5)
    body[number * len(item) + at + (3 if at < 22 else 1)] += 1
    with pytest.raises(MessageIllegal, match="batch"):
        list(batch_columns(bytes(body), 500))


def rows(piece: BatchItems) -> Iterator[tuple[int, bytes | memoryview, bytes]]:
    return zip(piece.flags, piece.bodies, piece.properties, strict=True)


def body_of(items: list[tuple[int, bytes, bytes]]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + len(properties).to_bytes(2, "big")
        + properties
        for flag, body, properties in items
    )
