"""Walks many whole records at once, into columns: numpy looks at thousands with each step.

Bytes of a segment flow in; where the records and their parts lie flows out, then a `Stop`. A record
is whole when its size, its magic, the physical offset it names and its lengths agree. Invariant:
what is whole here is whole for `record.parse`, and the other way round. Source: store format §1.2.
Only for those who have numpy: no server imports this.
"""

from __future__ import annotations

from functools import lru_cache
from struct import error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from aerobee.store.format.faults import END, Stop
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX
from aerobee.store.format.record import (
    BORN_HOST_IPV6,
    FIXED_BYTES,
    HEAD,
    HEADS,
    LENGTH8,
    LENGTH16,
    MAGIC_V1,
    MAGIC_V2,
    NOT_QUEUED,
    STORE_HOST_IPV6,
    TOPIC_BYTES_MAX_V1,
)
from aerobee.store.format.walk import stop_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_size_at = HEAD.pick("size")
_KINDS = {"i": ">i4", "I": ">u4", "q": ">i8"}
"""The numpy types of the formats that a record's head has for numbers."""
_IPV6_BYTES = HEADS[BORN_HOST_IPV6].size - HEAD.size
"""So much longer is a head for each host with IPv6."""
_LENGTH_BYTES = HEAD.size - HEAD.offset["body_length"]
_REST_MIN = LENGTH8.size + LENGTH16.size
"""The least size of the fields behind a body."""


class Heads(NamedTuple):
    """Fields of many whole records, and where in the buffer their parts lie."""

    starts: Ints
    ends: Ints
    bodies: Ints
    topics: Ints
    topic_ends: Ints
    stored: Ints
    """Store times in ms."""
    sys_flags: Ints
    whole: Bools

    def chosen(self, which: slice | Bools) -> Heads:
        """Some of them."""
        return Heads(
            self.starts[which],
            self.ends[which],
            self.bodies[which],
            self.topics[which],
            self.topic_ends[which],
            self.stored[which],
            self.sys_flags[which],
            self.whole[which],
        )


class RecordRun(NamedTuple):
    """Whole records one behind the other, and why there is no further one."""

    heads: Heads
    names: list[bytes]
    """Topic of each record."""
    stop: Stop


def records_in(
    data: bytes, base: int, segment_end: int, at: int = 0, until: int | None = None
) -> RecordRun:
    """Pass whole records from `data[at]` on, while they begin before `data[until]`.

    `base` is the physical offset of `data[0]`, `segment_end` that of the end of the segment. Never
    raises, whatever the bytes. Hot: millions of records per GiB.
    """
    until = len(data) if until is None else until
    limit = len(data)
    starts: list[int] = []
    add = starts.append
    try:
        while at < until:
            (size,) = _size_at(data, at)
            following = at + size
            if size < FIXED_BYTES or following > limit:
                break
            add(at)
            at = following
    except error:
        # Less than a size is left.
        pass
    begins = np.array(starts, dtype=np.int64)
    heads = heads_of(data, begins, np.append(begins[1:], at), begins + base)
    names = _names(data, heads)
    count = len(names)
    if count < len(starts):
        at = starts[count]
        heads = heads.chosen(slice(count))
    if at >= until:
        return RecordRun(heads, names, Stop(END, base + at))
    return RecordRun(heads, names, stop_at(data, at, base + at, segment_end))


def heads_of(data: bytes, starts: Ints, ends: Ints, physical_offsets: Ints) -> Heads:
    """Look at records of at least 91 bytes that lie wholly in `data`; `whole` says which are sound.

    `physical_offsets` are those that they must name.
    """
    at = starts
    if not len(at):
        none = np.empty(0, dtype=np.int64)
        return Heads(none, none, none, none, none, none, none, np.empty(0, dtype=bool))
    magic = _column(data, "magic")[at]
    long = magic == MAGIC_V2
    whole = (long | (magic == MAGIC_V1)) & (
        _column(data, "physical_offset")[at] == physical_offsets
    )
    whole &= _column(data, "size")[at] == ends - at
    sys_flags = field_at(data, "sys_flag", at)
    born_v6 = (sys_flags & BORN_HOST_IPV6 != 0) * _IPV6_BYTES
    bodies = at + HEAD.size + born_v6 + (sys_flags & STORE_HOST_IPV6 != 0) * _IPV6_BYTES
    whole &= bodies <= ends - _REST_MIN
    bodies = np.where(whole, bodies, at + HEAD.size)
    lengths = _field(data, 0, ">i4")[bodies - _LENGTH_BYTES].astype(np.int64)
    topics = bodies + lengths
    whole &= (lengths >= 0) & (topics <= ends - _REST_MIN)
    # From here on positions of unsound records lead to their own first bytes: any are as good.
    topics = np.where(whole, topics, at)
    octets = np.frombuffer(data, dtype=np.uint8)
    sizes = octets[topics].astype(np.int64)
    whole &= long | (sizes <= TOPIC_BYTES_MAX_V1)
    if long.any():
        sizes = np.where(long, _field(data, 0, ">u2")[topics], sizes)
    topics = topics + 1 + long
    topic_ends = topics + sizes
    rest = ends - topic_ends - 2
    whole &= (sizes > 0) & (rest >= 0) & (rest <= PROPERTIES_BYTES_MAX)
    lengths_16 = _field(data, 0, ">u2")[np.where(whole, topic_ends, at)]
    whole &= lengths_16 == rest
    stored = field_at(data, "store_timestamp", np.where(whole, at + born_v6, at))
    return Heads(at, ends, bodies, topics, topic_ends, stored, sys_flags, whole)


def _field(data: bytes, offset: int, kind: str) -> NDArray[np.int64]:
    """A view that holds, at n, the number at `data[n + offset]`."""
    width = int(kind[2])
    count = len(data) - offset - width + 1
    if count <= 0:
        return np.empty(0, kind)
    # As wide as the data allows; the caller asks for positions inside only.
    return np.ndarray((count,), kind, data, offset, (1,))


def _column(data: bytes, name: str) -> NDArray[np.int64]:
    """A view that holds, at n, this number of the head of a record at `data[n]`."""
    return _field(data, HEAD.offset[name], _KINDS[HEAD.codes[name]])


def field_at(data: bytes, name: str, starts: Ints) -> Ints:
    """A number of each record's head, by its name; those behind a host are for IPv4."""
    return _column(data, name)[starts].astype(np.int64)


def _names(data: bytes, heads: Heads) -> list[bytes]:
    """The topics of the first records, up to the first that is not whole."""
    count = len(heads.starts)
    if not heads.whole.all():
        count = int(heads.whole.argmin())
    begins = heads.topics[:count].tolist()
    names = [
        data[at:end] for at, end in zip(begins, heads.topic_ends[:count].tolist(), strict=True)
    ]
    if not all(map(_is_name, set(names))):
        wrong = next(number for number, name in enumerate(names) if not _is_name(name))
        del names[wrong:]
    return names


@lru_cache(maxsize=16_384)
def _is_name(raw: bytes) -> bool:
    """Whether a broker can have stored a topic of that name."""
    try:
        return bool(raw.decode()) and 0 not in raw
    except UnicodeDecodeError:
        return False


def crc_faults(data: bytes, heads: Heads) -> list[int]:
    """Which of the records (by number) do not have the body that their CRC is of. Hot."""
    crcs = _column(data, "body_crc")[heads.starts].tolist()
    # As Java: an empty body is not looked at.
    ends = (heads.topics - 1 - (_column(data, "magic")[heads.starts] == MAGIC_V2)).tolist()
    view = memoryview(data)
    return [
        number
        for number, (at, end, crc) in enumerate(zip(heads.bodies.tolist(), ends, crcs, strict=True))
        if at < end and crc32(view[at:end]) & 0x7FFFFFFF != crc
    ]


def visible(heads: Heads) -> Bools:
    """Records that consumers can get to see: not the prepared or rolled back ones of old brokers.

    Newer brokers park those in a topic of their own.
    """
    neither: Bools = heads.sys_flags & NOT_QUEUED == 0
    return neither
