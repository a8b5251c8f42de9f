"""Messages of a batch → their records, side by side, and their units, in one pass.

What they have in common is encoded once, and nothing is made of one message but its bytes. Pure:
values in, bytes out. Source: store format §1.2, §1.3 (MessageExtEncoder).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from aerobee.store.format.properties import closed
from aerobee.store.format.record import HEAD, HEADS, HOST_FLAGS, LENGTH16, encode
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.store.format.record import BatchItem, MessageDraft

__all__ = ["BatchRecords", "encode_batch"]

_unit = UNIT.pack
_length = LENGTH16.pack
MAGIC = slice(HEAD.offset["magic"], HEAD.offset["body_crc"])
QUEUE_ID = slice(HEAD.offset["queue_id"], HEAD.offset["flag"])
SYS_FLAG = slice(HEAD.offset["sys_flag"], HEAD.offset["born_timestamp"])
COMMON = {
    family: slice(SYS_FLAG.start, layout.offset["body_length"]) for family, layout in HEADS.items()
}
"""The fields of a record's head between its own offsets and the length of its body."""
_heads = {
    family: Struct(f">i4sI4siqq{common.stop - common.start}si").pack
    for family, common in COMMON.items()
}
"""The head of a record: size, magic, CRC of the body, queue id, flag, its two offsets, what is
common, length of the body."""


class BatchRecords(NamedTuple):
    """The messages of a batch as the store needs them, in order."""

    data: bytes
    """Their records."""
    units: bytes
    """Their units of the consume queue."""
    offsets: list[int]
    """Their physical offsets."""
    properties: list[bytes]
    """Their properties; empty if no message has any."""


def encode_batch(
    empty: MessageDraft,
    items: Sequence[BatchItem],
    queue_offset: int,
    physical_offset: int,
    stored: int,
) -> BatchRecords:
    """The records of some messages, with ascending offsets. Hot.

    `empty` is a message without content: it has what they have in common.
    Raises: MessageIllegal where a number of it does not fit its field.
    """
    model = encode(empty, 0, 0, stored)
    family = model[SYS_FLAG][-1] & HOST_FLAGS
    head, common_at, head_bytes = _heads[family], COMMON[family], HEADS[family].size
    magic, queue_id, common = model[MAGIC], model[QUEUE_ID], model[common_at]
    topic, topic_and_none = model[head_bytes : -LENGTH16.size], model[head_bytes:]
    empty_bytes, at = len(model), physical_offset
    parts: list[bytes | memoryview] = []
    units, offsets, all_properties = bytearray(), [], []
    some = False
    for number, (flag, body, properties) in enumerate(items, queue_offset):
        length, code = len(body), 0
        size = empty_bytes + length
        crc = crc32(body) & 0x7FFFFFFF
        if properties:
            some = True
            code = tags_code_of(properties)
            properties = closed(properties)
            size += len(properties)
        fields = head(size, magic, crc, queue_id, flag, number, at, common, length)
        if properties:
            parts += (fields, body, topic, _length(len(properties)), properties)
        else:
            parts += (fields, body, topic_and_none)
        units += _unit(at, size, code)
        offsets.append(at)
        all_properties.append(properties)
        at += size
    return BatchRecords(b"".join(parts), bytes(units), offsets, all_properties if some else [])
