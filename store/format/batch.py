"""A batch body → its messages, column by column; columns → records side by side, and their units.

Fields that messages have in common are encoded once, and a step of the work is one call for all of
them: most batches have messages of one shape, which `struct` reads and writes without a loop of
ours. Pure: values in, bytes out. Source: remoting §4.6, store format §1.2, §1.3
(MessageExtEncoder).
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
from aerobee.store.format.record import HEAD, HEADS, HOST_FLAGS, LENGTH16
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Pack = Callable[..., bytes]

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
_body_length = Struct(">i").pack
FRONT = Struct(">i4sI4siqq")
"""Size, magic, CRC of the body, queue id, flag, and the two offsets of a record."""
assert FRONT.size == HEAD.offset["sys_flag"]
_LOWEST = 3
"""The byte of the sysFlag with the bits of the hosts."""
FIXED_BYTES_OF_COLUMNS = FRONT.size + HEAD.size - HEAD.offset["body_length"] + LENGTH16.size
"""Bytes of a record that `encode_columns` is not given."""


class BatchItems(NamedTuple):
    """Messages of a batch, column by column: a place in each is one message."""

    flags: Sequence[int]
    bodies: Sequence[bytes | memoryview]
    properties: Sequence[bytes]
    shape: tuple[int, int] | None = None
    """Lengths of body and properties, where all are known to have the same."""

    @property
    def content_bytes(self) -> int:
        """Bytes of all bodies and properties."""
        if self.shape is not None:
            return len(self.bodies) * sum(self.shape)
        return sum(map(len, self.bodies)) + sum(map(len, self.properties))

    def closed(self) -> BatchItems:
        """These items, with their properties as records have them."""
        if self.shape is not None and not self.shape[1]:
            return self
        properties = [*map(closed, self.properties)]
        tails = {*map(len, properties)}
        shape = (self.shape[0], tails.pop()) if self.shape and len(tails) == 1 else None
        return BatchItems(self.flags, self.bodies, properties, shape)

    @classmethod
    def joined(cls, pieces: Sequence[BatchItems]) -> BatchItems:
        """The messages of all pieces, in order."""
        if len(pieces) == 1:
            return pieces[0]
        flags, bodies, properties, shapes = zip(*pieces, strict=True)
        shape = shapes[0] if shapes.count(shapes[0]) == len(shapes) else None
        chained = chain.from_iterable
        return cls([*chained(flags)], [*chained(bodies)], [*chained(properties)], shape)


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
        yield from zip(piece.flags, piece.bodies, piece.properties, strict=True)


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
    tail = size - _FIXED_BYTES - length
    if length < 0 or not 0 <= tail <= PROPERTIES_BYTES_MAX:
        return None
    count = min(most, (len(raw) - at) // size)
    end = at + count * size
    # The last one tells of most that they differ.
    if count < 2 or _batch_head(raw, end - size)[0] != size:
        return None
    rows = _shape(length, tail).iter_unpack(memoryview(raw)[at:end])
    sizes, flags, lengths, bodies, tails, properties = zip(*rows, strict=True)
    if not sizes.count(size) == lengths.count(length) == tails.count(tail) == count:
        return None
    return BatchItems(flags, bodies, properties, (length, tail)), end


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
        tail = raw[body_end] << 8 | raw[body_end + 1]
        if body_end + 2 + tail != next_at or tail > PROPERTIES_BYTES_MAX:
            raise MessageIllegal(f"batch message at byte {at}: properties {tail}")
        flags.append(flag)
        bodies.append(raw[body_at:body_end])
        properties.append(raw[body_end + 2 : next_at])
        at = next_at
    return BatchItems(flags, bodies, properties), at


# ── Records ──


class CommonFields(NamedTuple):
    """The fields that the records of a run have in common in any case, as they stand in them."""

    magic: bytes
    queue_id: bytes
    topic: bytes


def encode_batch(
    model: bytes, items: BatchItems, queue_offset: int, physical_offset: int, stored: int
) -> BatchRecords:
    """The records of messages, at least one, with ascending offsets. Hot.

    `model` is the record of a message without content: it has what they have in common but for
    `stored`, their store timestamp. The properties of the items are closed.
    """
    _, magic, _, queue_id, _, _, _ = FRONT.unpack_from(model)
    layout = HEADS[model[FRONT.size + _LOWEST] & HOST_FLAGS]
    at = layout.offset["store_timestamp"]
    times = stored.to_bytes(8, "big", signed=True) + model[at + 8 : layout.offset["body_length"]]
    common = model[FRONT.size : at] + times
    fields = CommonFields(magic, queue_id, model[layout.size : -LENGTH16.size])
    numbers = range(queue_offset, queue_offset + len(items.bodies))
    crcs = [crc32(body) & 0x7FFFFFFF for body in items.bodies]
    if items.shape is not None:
        return _of_one_shape(fields, common, items, crcs, numbers, physical_offset)
    commons = [common] * len(items.bodies)
    return encode_columns(fields, commons, items, crcs, numbers, physical_offset)


def _of_one_shape(
    fields: CommonFields,
    common: bytes,
    items: BatchItems,
    crcs: list[int],
    numbers: range,
    physical_offset: int,
) -> BatchRecords:
    """A record by one call each."""
    flags, bodies, properties, shape = items
    assert shape is not None
    magic, queue_id, topic = fields
    length, tail = shape
    common, topic = common + _body_length(length), topic + _length(tail)
    size = FRONT.size + len(common) + length + len(topic) + tail
    offsets = range(physical_offset, physical_offset + len(bodies) * size, size)
    pack = _record(len(common), length, len(topic), tail)
    before = repeat(size.to_bytes(4, "big") + magic)
    front = before, crcs, repeat(queue_id), flags, numbers, offsets
    data = b"".join(map(pack, *front, repeat(common), bodies, repeat(topic), properties))
    codes = map(tags_code_of, properties) if tail else repeat(0)
    units = b"".join(map(_unit, offsets, repeat(size), codes))
    return BatchRecords(data, units, offsets, properties if tail else ())


@lru_cache(SHAPES_MAX)
def _record(common: int, body: int, topic: int, properties: int) -> Pack:
    """A whole record: its front, of which the first two fields are one, and byte strings."""
    return Struct(f">8sI4siqq{common}s{body}s{topic}s{properties}s").pack


def encode_columns(
    fields: CommonFields,
    commons: Sequence[bytes],
    items: BatchItems,
    crcs: Sequence[int],
    numbers: range,
    physical_offset: int,
) -> BatchRecords:
    """The records of messages of any shape, at least one: what is there is put between few bytes.

    `commons` have, of each, what is between its own offsets and the length of its body. The
    properties of the items are closed. Hot.
    """
    flags, bodies, properties, _ = items
    magic, queue_id, topic = fields
    lengths, tails = [*map(len, bodies)], [*map(len, properties)]
    fixed = FIXED_BYTES_OF_COLUMNS + len(topic)
    parts_bytes = zip(map(len, commons), lengths, tails, strict=True)
    sizes = [fixed + common + length + tail for common, length, tail in parts_bytes]
    offsets = [*accumulate(sizes[:-1], initial=physical_offset)]
    fronts = map(FRONT.pack, sizes, repeat(magic), crcs, repeat(queue_id), flags, numbers, offsets)
    contents = map(_body_length, lengths), bodies, repeat(topic), map(_length, tails), properties
    parts = zip(fronts, commons, *contents, strict=False)
    data = b"".join(chain.from_iterable(parts))
    some = any(properties)
    codes = map(tags_code_of, properties) if some else repeat(0)
    units = b"".join(map(_unit, offsets, sizes, codes))
    return BatchRecords(data, units, offsets, properties if some else ())
