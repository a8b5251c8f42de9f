"""Stored messages → their records in another queue, in one pass.

A message that has waited is stored again as it is: its flags, times, hosts, body and the checksum
of its body are taken over as bytes, so that a body which changed in between is found out. New are
queue, offsets, store timestamp, and the properties that are given. Pure: bytes in, bytes out.
Source: store format §1.2 (ScheduleMessageService, TimerMessageStore, MessageExtEncoder).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aerobee.store.errors import RecordDamaged
from aerobee.store.format.batch import BatchRecords
from aerobee.store.format.properties import closed
from aerobee.store.format.record import (
    HEAD,
    HEADS,
    HOST_FLAGS,
    LENGTH16,
    MAGIC_V1,
    MAGIC_V2,
    TRANSACTION_PREPARED,
    read,
    topic_bytes,
)
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.format.layout import Buffer

Head: TypeAlias = tuple[int, int, int, int, int, int, int, bytes, int, bytes, int]
"""The head of a record, with the fields that a copy keeps in two pieces: size, magic, checksum of
the body, queue id, flag, queue offset, physical offset; sysFlag, born timestamp, born host; store
timestamp; store host, how often it was consumed again, the offset of its transaction; length of
the body."""


class Stored(NamedTuple):
    """A stored message, as its copies need it."""

    size: int
    queue_offset: int
    physical_offset: int
    head: Head
    topic: bytes
    body: Buffer
    properties: bytes


def _head_of(family: int) -> struct.Struct:
    """The layout of a `Head`, by the hosts."""
    at = HEADS[family].offset
    born = at["store_timestamp"] - at["sys_flag"]
    kept = at["body_length"] - at["store_host"]
    head = struct.Struct(f">iIIiiqq{born}sq{kept}si")
    assert head.size == HEADS[family].size
    return head


_heads = {family: _head_of(family) for family in HEADS}
_packs = {family: (head.pack, head.size) for family, head in _heads.items()}
_head = _heads[0].unpack_from
_HEAD_BYTES = HEAD.size
_MAGICS = (MAGIC_V1, MAGIC_V2)
_LOWEST = 3
"""The byte of the sysFlag with the bits of the hosts and of transactions."""
_new = tuple.__new__
_unit = UNIT.pack
_length = LENGTH16.pack


def stored(buffer: Buffer, at: int = 0) -> Stored:
    """The message at `buffer[at]`, its body a slice of the buffer; no checksum is looked at. Hot.

    Raises: RecordDamaged for anything but a whole record that has a place in a queue.
    """
    try:
        head = _head(buffer, at)
        body_at = at + _HEAD_BYTES
        bits = head[7][_LOWEST]
        if bits & HOST_FLAGS:
            layout = _heads[bits & HOST_FLAGS]
            head = layout.unpack_from(buffer, at)
            body_at = at + layout.size
    except struct.error:
        raise _damaged(buffer, at) from None
    size, magic, _, _, _, queue_offset, physical_offset, _, _, _, length = head
    topic_at = body_at + length
    end = at + size
    if length < 0 or not topic_at < end <= len(buffer) or bits & TRANSACTION_PREPARED:
        raise _damaged(buffer, at)
    rest = bytes(buffer[topic_at:end])
    if magic == MAGIC_V1:
        begin = 1
        topic_end = 1 + rest[0]
    else:
        begin = 2
        topic_end = 2 + int.from_bytes(rest[:2])
    properties = rest[topic_end + 2 :]
    if (
        magic not in _MAGICS
        or topic_end + 2 > len(rest)
        or rest[topic_end] << 8 | rest[topic_end + 1] != len(properties)
    ):
        raise _damaged(buffer, at)
    topic, body = rest[begin:topic_end], buffer[body_at:topic_at]
    # As Stored(…) does it, in half of its time.
    return _new(Stored, (size, queue_offset, physical_offset, head, topic, body, properties))


def _damaged(buffer: Buffer, at: int) -> RecordDamaged:
    """Why there is no message."""
    try:
        read(buffer, at)
    except RecordDamaged as error:
        return error
    return RecordDamaged(f"the record at {at} has no place in a queue")


def stored_messages(views: Iterable[Buffer]) -> tuple[list[Stored], RecordDamaged | None]:
    """The messages in views of whole records, up to a damaged one."""
    found = []
    try:
        for view in views:
            at, end = 0, len(view)
            while at < end:
                message = stored(view, at)
                found.append(message)
                at += message.size
    except RecordDamaged as error:
        return found, error
    return found, None


def copy_bytes(topic: str, message: Stored, properties: bytes) -> int:
    """The size of a copy. Raises: MessageIllegal."""
    _, _, _, _, _, _, _, born, _, _, _ = message.head
    _, head_bytes = _packs[born[_LOWEST] & HOST_FLAGS]
    named = len(topic_bytes(topic)[1])
    return head_bytes + len(message.body) + named + LENGTH16.size + len(closed(properties))


def encode_copies(
    messages: Iterable[tuple[Stored, bytes]],
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    room: int,
) -> BatchRecords:
    """The records of messages with these properties, with ascending offsets. Hot.

    As many of the first as fit into `room` bytes. Raises: MessageIllegal for a topic that no record
    can name.
    """
    magic, topic_field = topic_bytes(topic)
    at, end = physical_offset, physical_offset + room
    parts: list[Buffer] = []
    units, offsets, all_properties = bytearray(), [], []
    for number, (message, properties) in enumerate(messages, queue_offset):
        _, _, crc, _, flag, _, _, born, _, kept, length = message.head
        pack, head_bytes = _packs[born[_LOWEST] & HOST_FLAGS]
        properties = closed(properties)
        size = head_bytes + length + len(topic_field) + LENGTH16.size + len(properties)
        if at + size > end:
            break
        head = pack(
            *(size, magic, crc, queue_id, flag, number, at, born, store_timestamp, kept, length)
        )
        parts += (head, message.body, topic_field, _length(len(properties)), properties)
        units += _unit(at, size, tags_code_of(properties))
        offsets.append(at)
        all_properties.append(properties)
        at += size
    return BatchRecords(b"".join(parts), bytes(units), offsets, all_properties)
