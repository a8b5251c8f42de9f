"""A batch body → its messages, column by column → their records, side by side, and their units.

What messages have in common is encoded once, and a step of the work is one call for all of them:
most batches have messages of one shape, which `struct` reads and writes without a loop of ours.
Pure: values in, bytes out. Source: remoting §4.6, store format §1.2, §1.3 (MessageExtEncoder).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from aerobee.store.errors import MessageIllegal
from aerobee.store.format.layout import Layout, i32, u32
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, closed
from aerobee.store.format.record import HEAD, HEADS, HOST_FLAGS, LENGTH16, store_timestamp_at
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Pack = Callable[..., bytes]

__all__ = [
    "BATCH_HEAD",
    "BatchItems",
    "BatchRecords",
    "batch_columns",
    "batch_item_size",
    "batch_items",
    "encode_batch",
]

SHAPES_MAX = 256
"""Shapes of messages whose packers are kept."""
PIECE = 500
"""Messages that `batch_items` reads at once."""


class BatchHead(NamedTuple):
    """The fixed fields of one message in a batch body; `magic` and `body_crc` are 0."""

    size: i32
    magic: u32
    body_crc: u32
    flag: i32
    body_length: i32


BATCH_HEAD = Layout(BatchHead, size=20)
_batch_head = BATCH_HEAD.unpack_from
_FIXED_BYTES = BATCH_HEAD.size + LENGTH16.size
_unit = UNIT.pack
_length = LENGTH16.pack
MAGIC = slice(HEAD.offset["magic"], HEAD.offset["body_crc"])
QUEUE_ID = slice(HEAD.offset["queue_id"], HEAD.offset["flag"])
SYS_FLAG = slice(HEAD.offset["sys_flag"], HEAD.offset["born_timestamp"])
COMMON = {
    family: slice(SYS_FLAG.start, layout.offset["body_length"]) for family, layout in HEADS.items()
}
"""The fields of a record's head between its own offsets and the length of its body."""
_HEAD_FORMATS = {
    family: f">i4sI4siqq{common.stop - common.start}si" for family, common in COMMON.items()
}
"""The head of a record: size, magic, CRC of the body, queue id, flag, its two offsets, what is
common, length of the body."""
_heads = {family: Struct(form).pack for family, form in _HEAD_FORMATS.items()}


class BatchItems(NamedTuple):
    """Messages of a batch, column by column: a place in each is one message."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]

    def closed(self) -> BatchItems:
        """The same, with the properties as records have them."""
        if not any(self.properties):
            return self
        return self._replace(properties=[*map(closed, self.properties)])

    @classmethod
    def joined(cls, pieces: Sequence[BatchItems]) -> BatchItems:
        """The messages of all pieces, in order."""
        if len(pieces) == 1:
            return pieces[0]
        flags, bodies, properties = zip(*pieces, strict=True)
        chained = chain.from_iterable
        return cls([*chained(flags)], [*chained(bodies)], [*chained(properties)])


class BatchRecords(NamedTuple):
    """The messages of a batch as the store needs them, in order."""

    data: bytes
    """Their records."""
    units: bytes
    """Their units of the consume queue."""
    offsets: Sequence[int]
    """Their physical offsets."""
    properties: Sequence[bytes]
    """Their properties; empty if no message has any."""


# ── Reading ──


def batch_item_size(body_length: int, properties_length: int) -> int:
    """Bytes of one message in a batch body."""
    return _FIXED_BYTES + body_length + properties_length


def batch_items(body: bytes | memoryview) -> Iterator[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message in a batch body.

    Raises: MessageIllegal where a length contradicts what is left.
    """
    for piece in batch_columns(body, PIECE):
        yield from zip(*piece, strict=True)


def batch_columns(body: bytes | memoryview, most: int) -> Iterator[BatchItems]:
    """The messages of a batch body, in pieces of at most `most`. Hot.

    Raises: MessageIllegal where a length contradicts what is left.
    """
    raw, at = bytes(body), 0
    while at < len(raw):
        items, at = _alike(raw, at, most) or _each(raw, at, most)
        yield items


@lru_cache(SHAPES_MAX)
def _shape(body_length: int, properties_length: int) -> Struct:
    """A message of a batch body: size, flag, and two pairs of length and bytes."""
    return Struct(f">i8xii{body_length}sH{properties_length}s")


def _alike(raw: bytes, at: int, most: int) -> tuple[BatchItems, int] | None:
    """Messages that all have the shape of the first one, and where they end; None: they differ."""
    if len(raw) - at < _FIXED_BYTES:
        return None
    size, _, _, _, length = _batch_head(raw, at)
    more = size - _FIXED_BYTES - length
    if length < 0 or not 0 <= more <= PROPERTIES_BYTES_MAX:
        return None
    count = min(most, (len(raw) - at) // size)
    end = at + count * size
    # The last one tells of most that they differ.
    if count < 2 or _batch_head(raw, end - size)[0] != size:
        return None
    rows = _shape(length, more).iter_unpack(memoryview(raw)[at:end])
    sizes, flags, lengths, bodies, mores, properties = zip(*rows, strict=True)
    if not sizes.count(size) == lengths.count(length) == mores.count(more) == count:
        return None
    return BatchItems(flags, bodies, properties), end


def _each(raw: bytes, at: int, most: int) -> tuple[BatchItems, int]:
    """Messages of any shape, and where they end. Raises: MessageIllegal."""
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    end = len(raw)
    while at < end and len(flags) < most:
        body_at = at + BATCH_HEAD.size
        if end < body_at + 2:
            raise MessageIllegal(f"batch ends within the head of a message at byte {at}")
        size, _, _, flag, length = _batch_head(raw, at)
        body_end = body_at + length
        next_at = at + size
        if length < 0 or not body_end + 2 <= next_at <= end:
            raise MessageIllegal(f"batch message at byte {at}: size {size}, body {length}")
        more = raw[body_end] << 8 | raw[body_end + 1]
        if body_end + 2 + more != next_at or more > PROPERTIES_BYTES_MAX:
            raise MessageIllegal(f"batch message at byte {at}: properties {more}")
        flags.append(flag)
        bodies.append(raw[body_at:body_end])
        properties.append(raw[body_end + 2 : next_at])
        at = next_at
    return BatchItems(flags, bodies, properties), at


# ── Records ──


@lru_cache(SHAPES_MAX)
def _whole(family: int, body_length: int, topic_length: int, properties_length: int) -> Pack:
    """A record: its head, the body, the topic and the length of the properties, and these."""
    head = _HEAD_FORMATS[family]
    return Struct(f"{head}{body_length}s{topic_length}s{properties_length}s").pack


def _common(model: bytes, family: int, stored: int) -> bytes:
    """The fields between a record's own offsets and the length of its body."""
    common, at = COMMON[family], store_timestamp_at(family)
    return (
        model[common.start : at]
        + stored.to_bytes(8, "big", signed=True)
        + model[at + 8 : common.stop]
    )


def encode_batch(
    model: bytes, items: BatchItems, queue_offset: int, physical_offset: int, stored: int
) -> BatchRecords:
    """The records of messages, at least one, with ascending offsets. Hot.

    `model` is the record of a message without content: it has what they have in common but for
    `stored`, their store timestamp. The properties of the items are closed.
    """
    family = model[SYS_FLAG][-1] & HOST_FLAGS
    flags, bodies, properties = items
    topic = model[HEADS[family].size : -LENGTH16.size]
    lengths, mores = [*map(len, bodies)], [*map(len, properties)]
    count, length, more = len(bodies), lengths[0], mores[0]
    alike = lengths.count(length) == mores.count(more) == count
    offsets: Sequence[int]
    sizes: Iterable[int]
    if alike:
        size = len(model) + length + more
        offsets, sizes = range(physical_offset, physical_offset + count * size, size), repeat(size)
    else:
        sizes = [len(model) + length + more for length, more in zip(lengths, mores, strict=True)]
        offsets = [*accumulate(sizes[:-1], initial=physical_offset)]
    fields = (
        sizes,
        repeat(model[MAGIC]),
        [crc32(body) & 0x7FFFFFFF for body in bodies],
        repeat(model[QUEUE_ID]),
        flags,
        range(queue_offset, queue_offset + count),
        offsets,
        repeat(_common(model, family, stored)),
        lengths,
    )
    if alike:
        topic += _length(more)
        pack = _whole(family, length, len(topic), more)
        data = b"".join(map(pack, *fields, bodies, repeat(topic), properties))
    else:
        heads = map(_heads[family], *fields)
        rest = repeat(topic), map(_length, mores), properties
        parts = zip(heads, bodies, *rest, strict=False)
        data = b"".join(chain.from_iterable(parts))
    some = any(properties)
    codes = map(tags_code_of, properties) if some else repeat(0)
    units = b"".join(map(_unit, offsets, sizes, codes))
    return BatchRecords(data, units, offsets, properties if some else [])
