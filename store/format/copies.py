"""Stored messages → their records in another queue, in one pass.

A message that has waited is stored again as it is: its flags, times, hosts, body and the checksum
of its body are taken over as bytes, so that a body which changed in between is found out. New are
queue, offsets, store timestamp, and the properties that are given. Pure: bytes in, bytes out.
Source: store format §1.2 (ScheduleMessageService, TimerMessageStore, MessageExtEncoder).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.errors import RecordDamaged
from aerobee.store.format.batch import (
    FIXED_BYTES_OF_COLUMNS,
    BatchItems,
    BatchRecords,
    CommonFields,
    encode_columns,
)
from aerobee.store.format.faults import NoRecord
from aerobee.store.format.properties import closed
from aerobee.store.format.record import (
    FIXED_BYTES,
    HEAD,
    HEADS,
    HOST_FLAGS,
    NOT_QUEUED,
    parse,
    topic_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aerobee.store.format.layout import Buffer


class StoredMessage(NamedTuple):
    """A stored message, as its copies need it."""

    size: int
    queue_offset: int
    physical_offset: int
    flag: int
    body_crc: int
    born: bytes
    """The bytes of its sysFlag, born timestamp and born host."""
    kept: bytes
    """The bytes of its store host, the number of its tries, the offset of its transaction."""
    topic: str
    body: bytes | memoryview
    properties: bytes


class Pieces(NamedTuple):
    """Where a copy takes its bytes from, by the hosts."""

    length: Callable[[Buffer, int], tuple[int]]
    """The length of the body."""
    born_at: int
    born_end: int
    kept_at: int
    kept_end: int
    size: int


def _pieces_of(family: int) -> Pieces:
    layout = HEADS[family]
    at = layout.offset
    return Pieces(
        layout.pick("body_length"),
        at["sys_flag"],
        at["store_timestamp"],
        at["store_host"],
        at["body_length"],
        layout.size,
    )


_pieces = {family: _pieces_of(family) for family in HEADS}
_numbers = HEAD.pick("body_crc", "flag", "physical_offset")
_new = tuple.__new__
_STORED_BYTES = 8


def stored(buffer: Buffer, at: int = 0) -> StoredMessage:
    """The message at `buffer[at]`, its body a slice of the buffer. Hot.

    Raises: RecordDamaged for anything but a whole record that has a place in a queue, and the body
    that it was stored with: its copy has the same CRC.
    """
    if len(buffer) - at < FIXED_BYTES:
        raise RecordDamaged(f"no record at {at}: {len(buffer) - at} bytes left")
    crc, flag, physical_offset = _numbers(buffer, at)
    header = parse(buffer, at, physical_offset, crc=True)
    if isinstance(header, NoRecord):
        raise RecordDamaged(f"no record at {at}: {header.kind}")
    if header.sys_flag & NOT_QUEUED:
        raise RecordDamaged(f"the record at {at} has no place in a queue")
    pieces = _pieces[header.sys_flag & HOST_FLAGS]
    body_at = at + pieces.size
    head = bytes(buffer[at:body_at])
    body_end = body_at + pieces.length(buffer, at)[0]
    # As Stored(…) does it, in half of its time.
    return _new(
        StoredMessage,
        (
            header.size,
            header.queue_offset,
            physical_offset,
            flag,
            crc,
            head[pieces.born_at : pieces.born_end],
            head[pieces.kept_at : pieces.kept_end],
            header.topic,
            buffer[body_at:body_end],
            header.properties,
        ),
    )


def stored_messages(views: Iterable[Buffer]) -> tuple[list[StoredMessage], RecordDamaged | None]:
    """The messages in views of whole records, up to a damaged one."""
    messages = []
    try:
        for view in views:
            at, end = 0, len(view)
            while at < end:
                message = stored(view, at)
                messages.append(message)
                at += message.size
    except RecordDamaged as error:
        return messages, error
    return messages, None


def copy_bytes(topic: str, message: StoredMessage, properties: bytes) -> int:
    """The size of a copy. Raises: MessageIllegal."""
    fixed = FIXED_BYTES_OF_COLUMNS + len(message.born) + _STORED_BYTES + len(message.kept)
    return fixed + len(message.body) + len(topic_bytes(topic)[1]) + len(closed(properties))


def encode_copies(
    messages: Sequence[tuple[StoredMessage, bytes]],
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
    magic, name = topic_bytes(topic)
    stored_at = store_timestamp.to_bytes(_STORED_BYTES, "big", signed=True)
    commons = [message.born + stored_at + message.kept for message, _ in messages]
    items = BatchItems(
        [message.flag for message, _ in messages],
        [message.body for message, _ in messages],
        [closed(properties) for _, properties in messages],
    )
    crcs = [message.body_crc for message, _ in messages]
    numbers = range(queue_offset, queue_offset + len(messages))
    number = queue_id.to_bytes(4, "big", signed=True)
    fields = CommonFields(magic.to_bytes(4, "big"), number, name)
    records = encode_columns(fields, commons, items, crcs, numbers, physical_offset)
    if len(records.data) <= room:
        return records
    # Each ends where the next one begins; all but the last, which does not fit.
    fitting = max(bisect_right(records.offsets, physical_offset + room) - 1, 0)
    if not fitting:
        return BatchRecords(b"", b"", [], [])
    first = messages[:fitting]
    return encode_copies(
        first, topic, queue_id, queue_offset, physical_offset, store_timestamp, room
    )
