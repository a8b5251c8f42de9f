"""Walks the log: whole records in order, and the reason where they end.

Bytes of a segment in; record headers out, then a `Stop`. Nothing here reads a file: the commit log,
the index, the tools and Spark bring the bytes. For many records at once there is `record_arrays`,
which fills columns of the same declared layout; it stops where `record.parse` must decide, so both
see the same records. Source: store format §1.2 (CommitLog.checkMessageAndReturnSize).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.faults import (
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_SIZE,
    BLANK,
    CRC,
    END,
    MORE,
    WRONG_OFFSET,
    ZEROS,
    Fault,
    NoRecord,
    Stop,
)
from aerobee.store.format.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    FIXED_BYTES,
    HEAD,
    HEADS,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    START,
    named_offset,
    parse,
    parse_run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.store.format.layout import Buffer
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.format.sparse import SparseFile

HEAD_BYTES_MAX = max(head.size for head in HEADS.values())
"""The fixed fields in front of the body, with IPv6 hosts."""
CANDIDATE_BYTES = HEAD.offset["sys_flag"]
"""The bytes of a record that `candidates` needs."""
SMALL_BYTES = 64 << 10
TEXT_BYTES_MAX = 1 << 17
"""More than topic and properties can have."""
SEARCH_BYTES = 1 << 20
SEARCH_FIRST_BYTES = 16 << 10
"""The first read is small: mostly the next record is near."""
_ZEROS = bytes(SEARCH_BYTES + CANDIDATE_BYTES)
_MAGIC_AT = HEAD.offset["magic"]
_MAGIC = MAGIC_V1.to_bytes(4, "big")[:3]
"""The bytes after the size that both versions of a record have."""
_LAST_OF_MAGIC = (MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF)
_start_at = START.unpack_from


class Walk:
    """Iterates (physical offset, record header) of whole records; then `stop` says why it ended.

    `base` is the physical offset of `data[0]`; the records that begin in [begin, until) are given.
    `segment_end` is the physical offset where their segment ends, if that is not the end of `data`.
    """

    __slots__ = ("_base", "_begin", "_crc", "_data", "_segment_end", "_until", "stop")

    def __init__(
        self,
        data: Buffer,
        base: int,
        begin: int,
        until: int,
        *,
        segment_end: int | None = None,
        crc: bool = False,
    ) -> None:
        self._data = data
        self._base = base
        self._begin = begin
        self._until = until
        self._segment_end = base + len(data) if segment_end is None else segment_end
        self._crc = crc
        self.stop = Stop(END, begin)

    def __iter__(self) -> Iterator[tuple[int, RecordHeader]]:
        data, base, at, until, crc = self._data, self._base, self._begin, self._until, self._crc
        while at < until:
            header = parse(data, at - base, at, crc)
            if isinstance(header, NoRecord):
                self.stop = self._stop(at, header)
                return
            yield at, header
            at += header.size
        self.stop = Stop(END, at)

    def runs(self, most: int) -> Iterator[tuple[int, list[RecordHeader]]]:
        """The records in runs of up to `most`, with the physical offset of the first. Hot."""
        base, at, until, crc = self._base, self._begin, self._until, self._crc
        data = bytes(self._data)
        begin = at
        run: list[RecordHeader] = []
        while at < until:
            at = base + parse_run(run, data, at - base, base, until, most, crc)
            if at < until and len(run) < most:
                header = parse(data, at - base, at, crc)
                if isinstance(header, NoRecord):
                    if run:
                        yield begin, run
                    self.stop = self._stop(at, header)
                    return
                run.append(header)
                at += header.size
            if len(run) >= most or at >= until:
                yield begin, run
                begin, run = at, []
        self.stop = Stop(END, at)

    def _stop(self, at: int, fault: NoRecord) -> Stop:
        data, base, segment_end = self._data, self._base, self._segment_end
        end = base + len(data)
        if end < segment_end and (need := _needed(data, at - base, at, segment_end)) > end - at:
            return Stop(MORE, at, need)
        return Stop(fault.kind, at, fault.size)


def resumes_at(stop: Stop, readable_end: int, segment_end: int) -> int:
    """Where the next record may begin, for a caller that skips damage.

    `readable_end` is the physical offset behind the last byte written to the segment.
    """
    if stop.kind == BLANK:
        return segment_end
    return stop.physical_offset + stop.size if stop.size else readable_end


def stop_at(data: bytes, at: int, physical_offset: int, segment_end: int) -> Stop:
    """Why no whole record is at `data[at]`, or that more bytes are needed to tell."""
    need = _needed(data, at, physical_offset, segment_end)
    if len(data) - at < need:
        return Stop(MORE, physical_offset, need)
    kind, _, _ = fault_at(data, at, physical_offset, segment_end)
    return Stop(kind, physical_offset)


def _needed(data: Buffer, at: int, physical_offset: int, segment_end: int) -> int:
    need = min(segment_end - physical_offset, FIXED_BYTES)
    if len(data) - at >= need:
        return claimed_size(data, at, physical_offset, segment_end)
    return need


def claimed_size(data: Buffer, at: int, physical_offset: int, segment_end: int) -> int:
    """How many bytes from `data[at]` on are needed to tell whether a whole record is there.

    0 when the first 91 bytes tell already. A wrong size must not cause a read of a GiB.
    """
    left = len(data) - at
    if left < FIXED_BYTES:
        return 0
    size, magic = _start_at(data, at)
    rest = segment_end - physical_offset
    if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= rest:
        return 0
    if size <= SMALL_BYTES:
        return int(size)
    if left < HEAD_BYTES_MAX:
        return HEAD_BYTES_MAX
    head = HEADS[HEAD.read(data, at).sys_flag & HOST_FLAGS]
    fields = head.read(data, at)
    text_bytes = size - head.size - fields.body_length
    can_be = fields.body_length >= 0 and 0 < text_bytes <= TEXT_BYTES_MAX
    return int(size) if can_be and fields.physical_offset == physical_offset else 0


def fault_at(data: Buffer, at: int, physical_offset: int, segment_end: int | None = None) -> Fault:
    """The fault of the bytes at a physical offset: the first of the kinds that holds.

    For reports and rare decisions. The record lies in `data` as far as the file has it; without
    `segment_end` the segment ends with `data`. The kind is END where a whole record is.
    """
    if segment_end is None:
        segment_end = physical_offset + len(data) - at
    kind, detail = _fault(data, at, physical_offset, segment_end)
    return Fault(kind, physical_offset, detail)


def _fault(data: Buffer, at: int, physical_offset: int, segment_end: int) -> tuple[str, str]:
    left, rest = len(data) - at, segment_end - physical_offset
    if left < BLANK_BYTES:
        return BAD_SIZE, f"{left} bytes left, a segment ends with a blank"
    size, magic = _start_at(data, at)
    if not size and not magic:
        return ZEROS, "size 0 and magic 0"
    if magic == BLANK_MAGIC:
        if size == rest:
            return BLANK, "the segment ends"
        return BAD_SIZE, f"the blank says {size} bytes, {rest} are left"
    if magic not in (MAGIC_V1, MAGIC_V2):
        return BAD_MAGIC, f"magic {magic:#010x}"
    if not FIXED_BYTES <= size <= rest:
        return BAD_SIZE, f"size {size}, {rest} bytes left in the segment"
    if left < FIXED_BYTES:
        return BAD_SIZE, f"size {size}, but the file ends after {left} bytes"
    named = named_offset(data, at)
    if named != physical_offset:
        return WRONG_OFFSET, f"names physical offset {named}"
    if not claimed_size(data, at, physical_offset, segment_end):
        return BAD_LENGTHS, f"size {size} and the length of the body disagree"
    if left < size:
        return BAD_SIZE, f"size {size}, but the file ends after {left} bytes"
    header = parse(data, at, physical_offset)
    if isinstance(header, NoRecord):
        text = "lengths do not add up" if header.size else "body length or topic"
        return BAD_LENGTHS, text
    if isinstance(parse(data, at, physical_offset, crc=True), NoRecord):
        return CRC, "body CRC"
    return END, "a whole record"


# ── Searching ──


def magics(data: bytes, at: int = 0) -> Iterator[int]:
    """Where in `data`, from `data[at]` on, the magic says that a record begins.

    Records that begin in the last 35 bytes are not seen.
    """
    place = data.find(_MAGIC, at + _MAGIC_AT)
    last = len(data) - CANDIDATE_BYTES
    while 0 <= place - _MAGIC_AT <= last:
        if data[place + 3] in _LAST_OF_MAGIC:
            yield place - _MAGIC_AT
        place = data.find(_MAGIC, place + 1)


def candidates(data: bytes, base: int, at: int = 0) -> Iterator[int]:
    """Physical offsets where magic and named offset say that a record begins.

    `base` is that of `data[0]`. Whether the record is whole is for `parse`.
    """
    for begin in magics(data, at):
        if named_offset(data, begin) == base + begin:
            yield base + begin


def candidates_in(file: SparseFile, begin: int, end: int, start: int) -> Iterator[int]:
    """Candidates between two positions of a segment file that begins at physical offset `start`.

    Raises: OSError.
    """
    step = SEARCH_FIRST_BYTES
    # Reading makes holes look like data to later calls, so all ranges are asked for first.
    for low, high in list(file.data_ranges(begin, end)):
        at = low
        while at < high:
            size = min(step, high - at)
            piece = file.pread(size + CANDIDATE_BYTES - 1, at)
            # Comparing is ten times as fast as searching.
            if piece != _ZEROS[: len(piece)]:
                yield from candidates(piece, start + at)
            at += size
            step = min(2 * step, SEARCH_BYTES)
