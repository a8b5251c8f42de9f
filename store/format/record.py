"""A commit-log record, encoded and decoded; the blank that ends a file.

Pure: values in, bytes out, and back. A record is 91 bytes + body + topic + properties (V1, two IPv4
hosts), 12 more per IPv6 host, 1 more as V2. Source: store format §1.2, §5.2 (MessageExtEncoder,
CommitLog.checkMessageAndReturnSize).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

from aerobee.store.errors import MessageIllegal, PropertiesTooLong
from aerobee.store.errors import RecordDamaged as RecordDamaged
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
from aerobee.store.format.layout import Buffer, Layout, host4, host6, i8, i16, i32, i64, u32
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, closed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""Topic length in two bytes; written only for a topic of more than 127 bytes."""
BLANK_MAGIC = 0xCBD43194
BLANK_BYTES = 8
"""Room every append leaves at the end of a file, so that the blank always fits."""
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
HOST_FLAGS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
COMPRESSED: Final = 0x1
"""The bit of the sysFlag of a body that its producer has compressed."""
CRC_MASK: Final = 0x7FFF_FFFF
"""The bits of the CRC-32 of a body that a record has."""
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
NOT_QUEUED: Final = TRANSACTION_PREPARED & TRANSACTION_ROLLBACK
"""The bit of prepared and of rolled-back records: they take no queue offset, and have no unit."""
TOPIC_BYTES_MAX_V1: Final = 127
TOPIC_BYTES_MAX = 255


class Head(NamedTuple):
    """The fixed fields in front of the body."""

    size: i32
    magic: u32
    body_crc: u32
    queue_id: i32
    flag: i32
    queue_offset: i64
    physical_offset: i64
    sys_flag: i32
    born_timestamp: i64
    born_host: host4
    store_timestamp: i64
    store_host: host4
    reconsume_times: i32
    prepared_transaction_offset: i64
    body_length: i32


class Start(NamedTuple):
    """The common fields of a record and the blank."""

    size: i32
    magic: u32


class Length8(NamedTuple):
    """Topic length of V1."""

    length: i8


class Length16(NamedTuple):
    """Length of the properties, and of the topic in V2."""

    length: i16


START = Layout(Start, size=BLANK_BYTES)
LENGTH8 = Layout(Length8, size=1)
LENGTH16 = Layout(Length16, size=2)
HEAD = Layout(Head, size=88)
HEADS = {
    0: HEAD,
    BORN_HOST_IPV6: Layout(Head, size=100, hosts={"born_host": host6}),
    STORE_HOST_IPV6: Layout(Head, size=100, hosts={"store_host": host6}),
    HOST_FLAGS: Layout(Head, size=112, hosts={"born_host": host6, "store_host": host6}),
}
"""By the two address-family bits of the sysFlag."""
FIXED_BYTES = HEAD.size + LENGTH8.size + LENGTH16.size
_HEADS_BY_HOSTS = {
    (8, 8): (0, HEADS[0]),
    (20, 8): (BORN_HOST_IPV6, HEADS[BORN_HOST_IPV6]),
    (8, 20): (STORE_HOST_IPV6, HEADS[STORE_HOST_IPV6]),
    (20, 20): (HOST_FLAGS, HEADS[HOST_FLAGS]),
}


def store_timestamp_at(sys_flag: int) -> int:
    """Position of the store timestamp within a record, by its address family."""
    return HEADS[sys_flag & HOST_FLAGS].offset["store_timestamp"]


class MessageDraft(msgspec.Struct):
    """A message to be stored: all fields but those that the log assigns.

    Hosts are packed address and i32 port (8 or 20 bytes); times in ms. `tags_code` is for the
    consume queue and not part of the record.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0


class Record(NamedTuple):
    """One decoded record; `body` is a slice of the buffer."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | memoryview
    topic: str
    properties: bytes

    @property
    def is_whole(self) -> bool:
        """Whether the body is the one that was stored."""
        return crc32(self.body) & CRC_MASK == self.body_crc


@lru_cache(maxsize=4_096)
def topic_bytes(topic: str) -> tuple[int, bytes]:
    """Magic and length-prefixed bytes of a topic. Raises: MessageIllegal."""
    raw = topic.encode("utf-8", "replace")
    if not raw or len(raw) > TOPIC_BYTES_MAX:
        raise MessageIllegal(f"topic of {len(raw)} bytes, 1 to {TOPIC_BYTES_MAX} can be stored")
    if len(raw) <= TOPIC_BYTES_MAX_V1:
        return MAGIC_V1, LENGTH8.pack(len(raw)) + raw
    return MAGIC_V2, LENGTH16.pack(len(raw)) + raw


def encode(
    draft: MessageDraft,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> bytes:
    """The whole record, with its offsets in the log and its queue.

    The address-family bits of the sysFlag follow the hosts, whatever the producer sent.
    Raises: MessageIllegal, PropertiesTooLong.
    """
    body = draft.body
    properties = closed(draft.properties)
    born_host = draft.born_host
    store_host = draft.store_host
    body_length = len(body)
    properties_length = len(properties)
    magic, topic = topic_bytes(draft.topic)
    if properties_length > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLong(
            f"{properties_length} bytes of properties, {PROPERTIES_BYTES_MAX} fit"
        )
    family, layout = _HEADS_BY_HOSTS[len(born_host), len(store_host)]
    try:
        head = layout.pack(
            layout.size + 2 + body_length + len(topic) + properties_length,
            magic,
            crc32(body) & CRC_MASK,
            draft.queue_id,
            draft.flag,
            queue_offset,
            physical_offset,
            draft.sys_flag & ~HOST_FLAGS | family,
            draft.born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            draft.reconsume_times,
            draft.prepared_transaction_offset,
            body_length,
        )
    except struct.error as error:
        raise MessageIllegal(f"a number that no field of a record holds: {error}") from None
    length = properties_length.to_bytes(2, "big")
    return b"".join((head, body, topic, length, properties))


def blank(remaining: int) -> bytes:
    """The 8 bytes that close a file whose last `remaining` ≥ 8 bytes stay unused."""
    assert remaining >= BLANK_BYTES, remaining
    return START.pack(remaining, BLANK_MAGIC)


# ── Reading ──


class RecordHeader(msgspec.Struct, gc=False):
    """The fields of a whole record that dispatch, recovery and the tools need."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


GLANCES = {
    family: (
        head.pick(
            *("size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset"),
            *("sys_flag", "store_timestamp", "body_length"),
        ),
        head.size,
    )
    for family, head in HEADS.items()
}
_glance, _HEAD_BYTES = GLANCES[0]
_new = tuple.__new__
_ZEROS = NoRecord(ZEROS)
_BLANK = NoRecord(BLANK)
_BAD_MAGIC = NoRecord(BAD_MAGIC)
_BAD_SIZE = NoRecord(BAD_SIZE)
_WRONG_OFFSET = NoRecord(WRONG_OFFSET)
_BAD_LENGTHS = NoRecord(BAD_LENGTHS)
_CRC = NoRecord(CRC)
_start = START.unpack_from
_size = HEAD.pick("size")
_queue_offset = HEAD.pick("queue_offset")
_physical_offset = HEAD.pick("physical_offset")
_families = HEAD.pick("physical_offset", "sys_flag")
_store_times = {family: head.pick("store_timestamp") for family, head in HEADS.items()}
STORE_TIME_END: Final = store_timestamp_at(BORN_HOST_IPV6) + 8
"""So many bytes of a record are enough for `store_time`, whatever its hosts are."""
_TOPICS: dict[bytes, str] = {}
_TOPICS_MAX = 16_384


def parse(
    buffer: Buffer, at: int, physical_offset: int, crc: bool = False
) -> RecordHeader | NoRecord:
    """The header of the whole record at `buffer[at]`, or why there is none.

    `physical_offset` is the one that the record must have. Never reads beyond the buffer and never
    raises, whatever the bytes. Hot.
    """
    try:
        size, magic, body_crc, queue_id, queue_offset, named, sys_flag, stored, length = _glance(
            buffer, at
        )
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return _no_magic(size, magic)
        topic_at = at + _HEAD_BYTES + length
        if sys_flag & HOST_FLAGS:
            glance, head_bytes = GLANCES[sys_flag & HOST_FLAGS]
            *_, stored, length = glance(buffer, at)
            topic_at = at + head_bytes + length
    except struct.error:
        return _short(buffer, at)
    end = at + size
    if named != physical_offset or length < 0 or topic_at >= end or end > len(buffer):
        if size < FIXED_BYTES or end > len(buffer):
            return _BAD_SIZE
        return _BAD_LENGTHS if named == physical_offset else _WRONG_OFFSET
    if crc and length and crc32(buffer[topic_at - length : topic_at]) & CRC_MASK != body_crc:
        return _CRC
    rest = bytes(buffer[topic_at:end])
    if magic == MAGIC_V1:
        topic_end = 1 + rest[0]
        if topic_end > 1 + TOPIC_BYTES_MAX_V1:
            return _BAD_LENGTHS
        name = rest[1:topic_end]
    else:
        topic_end = 2 + int.from_bytes(rest[:2])
        name = rest[2:topic_end]
    properties = rest[topic_end + 2 :]
    length = len(properties)
    if (
        topic_end + 2 > len(rest)
        or rest[topic_end] << 8 | rest[topic_end + 1] != length
        or length > PROPERTIES_BYTES_MAX
    ):
        return NoRecord(BAD_LENGTHS, size)
    topic = _TOPICS.get(name) or _topic(name)
    if topic is None:
        return _BAD_LENGTHS
    return RecordHeader(size, topic, queue_id, queue_offset, sys_flag, stored, properties)


def parse_run(
    headers: list[RecordHeader],
    data: bytes,
    at: int,
    base: int,
    until: int,
    most: int,
    crc: bool,
) -> int:
    """Append the headers of ordinary records side by side from `data[at]` on, until there are
    `most`, or the next begins at `until` or behind; returns where they end. Hot.

    `base` is the physical offset of `data[0]`. Ordinary: V1, IPv4 hosts, a topic seen before. A
    header is appended only where `parse` returns the same; at the first record of which that is not
    certain the caller calls `parse`. Never raises. It takes two thirds of a walk's CPU.
    """
    limit, last = len(data), until - base
    topics, append = _TOPICS, headers.append
    try:
        for _ in range(len(headers), most):
            if at >= last:
                break
            size, magic, body_crc, queue_id, queue_offset, named, sys_flag, stored, length = (
                _glance(data, at)
            )
            topic_at = at + _HEAD_BYTES + length
            end = at + size
            if (
                magic != MAGIC_V1
                or sys_flag & HOST_FLAGS
                or named != base + at
                or length < 0
                or end > limit
            ):
                break
            topic_length = data[topic_at]
            topic_end = topic_at + 1 + topic_length
            topic = topics.get(data[topic_at + 1 : topic_end])
            properties_length = end - topic_end - 2
            if (
                topic is None
                or topic_length > TOPIC_BYTES_MAX_V1
                or data[topic_end] << 8 | data[topic_end + 1] != properties_length
                or properties_length > PROPERTIES_BYTES_MAX
                or (
                    crc
                    and length
                    and crc32(data[topic_at - length : topic_at]) & CRC_MASK != body_crc
                )
            ):
                break
            properties = data[topic_end + 2 : end]
            append(RecordHeader(size, topic, queue_id, queue_offset, sys_flag, stored, properties))
            at = end
    except (struct.error, IndexError):
        # Less than a head is left, or a topic would begin behind the end.
        pass
    return at


def _no_magic(size: int, magic: int) -> NoRecord:
    if magic == BLANK_MAGIC:
        return _BLANK
    return _BAD_MAGIC if size or magic else _ZEROS


def _short(buffer: Buffer, at: int) -> NoRecord:
    """Fewer bytes left than a record's head: at most the blank fits."""
    if len(buffer) - at < BLANK_BYTES:
        return _BAD_SIZE
    size, magic = _start(buffer, at)
    return _BAD_SIZE if magic in (MAGIC_V1, MAGIC_V2) else _no_magic(size, magic)


def _topic(raw: bytes) -> str | None:
    """A topic from its bytes, cached; None for one that no broker can have stored (a torn
    record).
    """
    if not raw or 0 in raw:
        return None
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(_TOPICS) >= _TOPICS_MAX:
        _TOPICS.clear()
    _TOPICS[raw] = topic
    return topic


def read(buffer: Buffer, at: int = 0) -> Record:
    """The record at `buffer[at]`, its body a slice of the buffer; the CRC is not checked.

    Raises: RecordDamaged for anything but a whole record.
    """
    if len(buffer) - at < FIXED_BYTES:
        raise RecordDamaged(f"no record at {at}: {len(buffer) - at} bytes left")
    header = parse(buffer, at, *_physical_offset(buffer, at))
    if isinstance(header, NoRecord):
        raise RecordDamaged(f"no record at {at}: {header.kind}")
    layout = HEADS[header.sys_flag & HOST_FLAGS]
    head = layout.unpack_from(buffer, at)
    body_at = at + layout.size
    body = buffer[body_at : body_at + head[-1]]
    if isinstance(body, bytearray):
        body = bytes(body)
    # As Record(…) does it, in half of its time.
    return _new(Record, head[:-1] + (body, header.topic, header.properties))  # noqa: RUF005  (half of the time)


def records(views: Iterable[Buffer]) -> Iterator[Record]:
    """Each record of views of whole records, as `read` gives it. Raises: RecordDamaged."""
    for view in views:
        at, end = 0, len(view)
        while at < end:
            record = read(view, at)
            yield record
            at += record.size


def starts(views: Iterable[Buffer]) -> Iterator[tuple[Buffer, int]]:
    """Where each record begins in views of whole records: its view, and its place in that.

    The rest of a view behind a size that no record has is left out.
    """
    for view in views:
        at, last = 0, len(view) - FIXED_BYTES
        while at <= last:
            yield view, at
            (size,) = _size(view, at)
            at = at + size if size >= FIXED_BYTES else len(view)


def queue_offsets(views: Iterable[Buffer]) -> list[int]:
    """The queue offset of each record in views of whole records."""
    return [_queue_offset(view, at)[0] for view, at in starts(views)]


def named_offset(buffer: Buffer, at: int = 0) -> int:
    """The physical offset that the record at `buffer[at]` names."""
    offset: int = _physical_offset(buffer, at)[0]
    return offset


def store_time(head: Buffer, physical_offset: int) -> int:
    """Store time, in ms, of the record that begins with these STORE_TIME_END bytes; −1 where it
    names another physical offset.
    """
    named, sys_flag = _families(head, 0)
    if named != physical_offset:
        return -1
    stored: int = _store_times[sys_flag & HOST_FLAGS](head, 0)[0]
    return stored
