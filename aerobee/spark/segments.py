"""Bytes of log segments → places of whole records, and what is wrong where there is none.

Words only: the hands are `store_files`. A record is whole when its size, its magic, the physical
offset it names and its lengths agree; each such check is made for thousands of records at a time.
Law: what is whole here is whole for `store.format.record.parse`, and the other way round.
Source: spark §9, store format §1.2.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from aerobee.store.format.properties import PROPERTIES_BYTES_MAX
from aerobee.store.format.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BORN_HOST_IPV6,
    FIXED_BYTES,
    HEAD,
    HEADS,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_IPV6,
    TOPIC_BYTES_MAX_V1,
    TRANSACTION_PREPARED,
    explain,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

__all__ = [
    "BAD_LENGTHS",
    "BAD_MAGIC",
    "BAD_SIZE",
    "BLANK",
    "CRC",
    "HEAD_BYTES_MAX",
    "MORE",
    "TAIL",
    "WRONG_OFFSET",
    "ZEROS",
    "Fault",
    "Heads",
    "Segment",
    "Split",
    "Stop",
    "Walked",
    "candidates",
    "claimed_size",
    "crc_faults",
    "fault_at",
    "field_at",
    "heads_of",
    "holes_between",
    "magics",
    "named_place",
    "records_in",
    "splits_of",
    "visible",
]

BAD_MAGIC = "badMagic"
BAD_SIZE = "badSize"
WRONG_OFFSET = "wrongOffset"
BAD_LENGTHS = "badLengths"
CRC = "crc"
TAIL = "tail"
ZEROS = "zeros"
BLANK = "blank"
"""No faults: where nothing was written, and where a segment ends."""
MORE = "more"

HEAD_BYTES_MAX = 112
"""The fixed fields in front of the body, with IPv6 hosts."""
SMALL_BYTES = 64 << 10
TEXT_BYTES_MAX = 1 << 17
"""More than topic and properties can have."""
_MAGIC = MAGIC_V1.to_bytes(4, "big")[:3]
"""What both versions of a record have behind their size."""
_size_at = Struct(">i").unpack_from
_start_at = Struct(">iI").unpack_from
_place_at = Struct(">q").unpack_from


class Segment(NamedTuple):
    """One file of the log: bytes [start, start + size) of it."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The physical offset behind its last byte."""
        return self.start + self.size

    @property
    def name(self) -> str:
        """20 digits."""
        return PurePath(self.path).name


class Split(NamedTuple):
    """A part of a segment: the records that begin in [begin, end), wherever they end.

    `limit` is where the data of the segment ends; behind it nothing is read.
    """

    segment: Segment
    begin: int
    end: int
    limit: int
    first: bool = False
    """Whether what lies in front of it is not read."""
    last: bool = False
    """Whether what lies behind it is not read."""


class Fault(NamedTuple):
    """What is wrong at a physical offset; `detail` in words."""

    kind: str
    position: int
    detail: str


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


class Stop(NamedTuple):
    """Why a walk ended at a place in the buffer: MORE, BLANK, ZEROS, a fault, or "" for its bound.

    With MORE, `need` is how many bytes from that place on it takes to go on.
    """

    kind: str
    at: int
    detail: str = ""
    need: int = 0


class Walked(NamedTuple):
    """Whole records one behind the other, and why there is no further one."""

    heads: Heads
    names: list[bytes]
    """Topic of each record."""
    stop: Stop


# ── Records ──


def records_in(
    data: bytes, base: int, segment_end: int, at: int = 0, until: int | None = None
) -> Walked:
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
        return Walked(heads, names, Stop("", at))
    return Walked(heads, names, _stop(data, base, segment_end, at))


def heads_of(data: bytes, starts: Ints, ends: Ints, places: Ints) -> Heads:
    """Look at records of at least 91 bytes that lie wholly in `data`; `whole` says which are sound.

    `places` are the physical offsets that they must name.
    """
    at = starts
    if not len(at):
        none = np.empty(0, dtype=np.int64)
        return Heads(none, none, none, none, none, none, none, np.empty(0, dtype=bool))
    magic = _field(data, 4, ">u4")[at]
    long = magic == MAGIC_V2
    whole = (long | (magic == MAGIC_V1)) & (_field(data, 28, ">i8")[at] == places)
    whole &= _field(data, 0, ">i4")[at] == ends - at
    sys_flags = _field(data, 36, ">i4")[at].astype(np.int64)
    born_v6 = (sys_flags & BORN_HOST_IPV6 != 0) * 12
    bodies = at + 88 + born_v6 + (sys_flags & STORE_HOST_IPV6 != 0) * 12
    whole &= bodies <= ends - 3
    bodies = np.where(whole, bodies, at + 88)
    lengths = _field(data, 0, ">i4")[bodies - 4].astype(np.int64)
    topics = bodies + lengths
    whole &= (lengths >= 0) & (topics <= ends - 3)
    # From here on places of unsound records lead to their own first bytes: any are as good.
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
    said = _field(data, 0, ">u2")[np.where(whole, topic_ends, at)]
    whole &= said == rest
    stored = _field(data, 56, ">i8")[np.where(whole, at + born_v6, at)].astype(np.int64)
    return Heads(at, ends, bodies, topics, topic_ends, stored, sys_flags, whole)


def _field(data: bytes, offset: int, kind: str) -> NDArray[np.int64]:
    """A view that holds, at n, the number at `data[n + offset]`."""
    width = int(kind[2])
    count = len(data) - offset - width + 1
    if count <= 0:
        return np.empty(0, kind)
    # As wide as the data allows; the caller asks for places inside only.
    return np.ndarray((count,), kind, data, offset, (1,))


def field_at(data: bytes, offset: int, kind: str, starts: Ints) -> Ints:
    """A number of each record: that at `offset` behind its start, of a numpy type such as `>i4`."""
    return _field(data, offset, kind)[starts].astype(np.int64)


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


def _stop(data: bytes, base: int, segment_end: int, at: int) -> Stop:
    """Why there is no whole record at `data[at]`, or that more bytes are needed to tell."""
    left = len(data) - at
    rest = segment_end - base - at
    need = min(rest, FIXED_BYTES)
    if left >= need:
        need = claimed_size(data, base + at, segment_end, at)
    if left < need:
        return Stop(MORE, at, need=need)
    fault = fault_at(data[at : at + max(need, HEAD_BYTES_MAX)], base + at, segment_end)
    return Stop(fault.kind, at, fault.detail)


def claimed_size(data: bytes, position: int, segment_end: int, at: int = 0) -> int:
    """How many bytes from `data[at]` on it takes to tell whether a whole record is there.

    0 when the first 91 bytes tell already. A wrong size must not make anybody read a GiB.
    """
    left = len(data) - at
    if left < FIXED_BYTES:
        return 0
    size, magic = _start_at(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= segment_end - position:
        return 0
    if size <= SMALL_BYTES:
        return int(size)
    if left < HEAD_BYTES_MAX:
        return HEAD_BYTES_MAX
    head = HEADS[HEAD.read(data, at).sys_flag & HOST_FLAGS]
    fields = head.read(data, at)
    text_bytes = size - head.size - fields.body_length
    can_be = fields.body_length >= 0 and 0 < text_bytes <= TEXT_BYTES_MAX
    return int(size) if can_be and fields.physical_offset == position else 0


def fault_at(data: bytes, position: int, segment_end: int) -> Fault:
    """What is wrong with the bytes at a physical offset: the first that holds of the kinds.

    `data` begins there and has `claimed_size` bytes, but 112 at least.
    """
    rest = segment_end - position
    if len(data) < BLANK_BYTES:
        return Fault(BAD_SIZE, position, f"{len(data)} bytes left, a segment ends with a blank")
    size, magic = _start_at(data, 0)
    if not size and not magic:
        return Fault(ZEROS, position, "size 0 and magic 0")
    if magic == BLANK_MAGIC:
        if size == rest:
            return Fault(BLANK, position, "the segment ends")
        return Fault(BAD_SIZE, position, f"the blank says {size} bytes, {rest} are left")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Fault(BAD_MAGIC, position, f"magic {magic:#010x}")
    if not FIXED_BYTES <= size <= rest:
        return Fault(BAD_SIZE, position, f"size {size}, {rest} bytes left in the segment")
    if len(data) < FIXED_BYTES:
        return Fault(BAD_SIZE, position, f"size {size}, but the file ends after {len(data)} bytes")
    place = named_place(data, 0)
    if place != position:
        return Fault(WRONG_OFFSET, position, f"names physical offset {place}")
    if not claimed_size(data, position, segment_end):
        return Fault(BAD_LENGTHS, position, f"size {size} and the length of the body disagree")
    if len(data) < size:
        return Fault(BAD_SIZE, position, f"size {size}, but the file ends after {len(data)} bytes")
    if isinstance(parse(data[:size], 0, position), int):
        return Fault(BAD_LENGTHS, position, explain(data[:size], 0, position))
    return Fault(CRC, position, "body CRC")


def crc_faults(data: bytes, heads: Heads) -> list[int]:
    """Which of the records (by number) do not have the body that their CRC is of. Hot."""
    crcs = _field(data, 8, ">u4")[heads.starts].tolist()
    # As Java: an empty body is not looked at.
    ends = (heads.topics - 1 - (_field(data, 4, ">u4")[heads.starts] == MAGIC_V2)).tolist()
    view = memoryview(data)
    return [
        number
        for number, (at, end, crc) in enumerate(zip(heads.bodies.tolist(), ends, crcs, strict=True))
        if at < end and crc32(view[at:end]) & 0x7FFFFFFF != crc
    ]


def magics(data: bytes, at: int = 0) -> Iterator[int]:
    """Places from `data[at]` on where the magic says that a record begins.

    Records that begin in the last 35 bytes are not seen.
    """
    found = data.find(_MAGIC, at + 4)
    last = len(data) - 36
    while 0 <= found - 4 <= last:
        if data[found + 3] in (0xA7, 0xAB):
            yield found - 4
        found = data.find(_MAGIC, found + 1)


def named_place(data: bytes, at: int) -> int:
    """The physical offset that the record at `data[at]` names."""
    place: int = _place_at(data, at + 28)[0]
    return place


def candidates(data: bytes, base: int, at: int = 0) -> Iterator[int]:
    """Physical offsets where magic and place say that a record begins.

    `base` is that of `data[0]`. Whether the record is whole is for `parse`.
    """
    for begin in magics(data, at):
        if named_place(data, begin) == base + begin:
            yield base + begin


# ── What is wanted ──


def visible(heads: Heads) -> Bools:
    """Records that consumers can get to see: not the prepared or rolled back ones of old brokers.

    Newer brokers park those in a topic of their own.
    """
    neither: Bools = heads.sys_flags & TRANSACTION_PREPARED == 0
    return neither


def splits_of(segment: Segment, begin: int, end: int, limit: int, split_bytes: int) -> list[Split]:
    """Splits of about `split_bytes` that own the records beginning in [begin, end)."""
    begin, end = max(begin, segment.start), min(end, limit)
    # Cuts lie at multiples from the segment's start, so that they do not move with the bounds.
    first = segment.start + (begin - segment.start) // split_bytes * split_bytes
    cuts = [begin, *range(first + split_bytes, end, split_bytes), end]
    return [
        Split(segment, low, high, limit, first=low == begin, last=high == end)
        for low, high in pairwise(cuts)
        if low < high
    ]


def holes_between(segments: Sequence[Segment]) -> Iterator[tuple[Segment, Segment]]:
    """Neighbours that are none: a segment between them is missing."""
    return ((one, two) for one, two in pairwise(segments) if one.end != two.start)
