"""Reads the files of a store directory by descriptor, while a broker may write and delete.

Paths in, bytes and positions out. Nothing is written, locked or mapped: bytes that were read do
not change under their reader, and a file that shrinks is an error instead of a SIGBUS.
Source: spark §9, store format §1.1.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from aerobee.errors import ConfigurationError
from aerobee.spark.storefiles.segments import Segment, Split
from aerobee.store.format.faults import BAD_SIZE, BLANK, END, MORE, ZEROS, Fault
from aerobee.store.format.names import CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, segment_start
from aerobee.store.format.record import FIXED_BYTES, RecordHeader, parse
from aerobee.store.format.record_arrays import Heads, records_in
from aerobee.store.format.sparse import data_ranges, used_end
from aerobee.store.format.walk import HEAD_BYTES_MAX, candidates_in, claimed_size, fault_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.format.record_arrays import Ints

WINDOW_BYTES = 8 << 20
"""The size of a read of a segment, if its records are smaller."""
FIRST_WINDOW_BYTES = 64 << 10
"""A smaller size after damage, of which there may be much."""
BLANK_WITHIN = 16 << 20
"""The longest distance of a blank from the end of its segment: no message is larger."""


class OpenFile:
    """A file opened for reading, as `SparseFile`. Every method may raise OSError."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def pread(self, size: int, position: int) -> bytes:
        """Read bytes of the file, fewer only if it is shorter."""
        pieces = []
        while size > 0 and (piece := os.pread(self.fd, size, position)):
            pieces.append(piece)
            position += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def data_ranges(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end) that may hold other bytes than zeros."""
        return data_ranges(
            lambda at: os.lseek(self.fd, at, os.SEEK_DATA),
            lambda at: os.lseek(self.fd, at, os.SEEK_HOLE),
            begin,
            end,
        )

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class SegmentFile:
    """One segment, opened for reading; it can be read to its end even after it is deleted.

    A broker frees what it has deleted piece by piece, but not under this lock.
    """

    def __init__(self, segment: Segment) -> None:
        """Open the segment. Raises: FileNotFoundError, also where it is being freed; OSError."""
        self.segment = segment
        self._file = OpenFile(segment.path)
        with contextlib.suppress(OSError):
            # Some file systems know no such locks.
            fcntl.flock(self._file.fd, fcntl.LOCK_SH)
        short = os.fstat(self._file.fd).st_size < segment.size
        if short and not os.path.exists(segment.path):
            self._file.close()
            raise FileNotFoundError(errno.ENOENT, "was deleted meanwhile", segment.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def read(self, begin: int, end: int) -> bytes:
        """Read the bytes at physical offsets [begin, end), fewer if the file is shorter.

        Raises: OSError.
        """
        return self._file.pread(end - begin, begin - self.segment.start)

    def modified_s(self) -> float:
        """The time of the last write to the file, in seconds since the epoch. Raises: OSError."""
        return os.fstat(self._file.fd).st_mtime

    def header_at(self, position: int) -> RecordHeader | None:
        """The whole record at a physical offset; None for anything else. Raises: OSError."""
        data = self._claimed(position)
        header = parse(data, 0, position) if len(data) >= FIXED_BYTES else None
        return header if isinstance(header, RecordHeader) else None

    def fault(self, position: int) -> Fault:
        """Describe the bytes at a physical offset without a whole record. Raises: OSError."""
        return fault_at(self._claimed(position), 0, position, self.segment.end)

    def _claimed(self, position: int) -> bytes:
        """The bytes that are needed to describe them."""
        end = self.segment.end
        head = self.read(position, min(position + HEAD_BYTES_MAX, end))
        size = claimed_size(head, 0, position, end)
        return head if size <= len(head) else self.read(position, position + size)

    def damage(self, position: int) -> Fault:
        """As `fault`, where a record is required: zeros are damage, too. Raises: OSError."""
        fault = self.fault(position)
        return fault._replace(kind=BAD_SIZE) if fault.kind in (ZEROS, BLANK) else fault

    def size_at(self, position: int) -> int:
        """The record size in the first bytes; 0 after the end. Raises: OSError."""
        return int.from_bytes(self.read(position, position + 4), "big", signed=True)

    def next_whole(self, begin: int, end: int) -> tuple[int, RecordHeader] | None:
        """The first whole record that begins in [begin, end). Raises: OSError."""
        start = self.segment.start
        for position in candidates_in(self._file, begin - start, end - start, start):
            header = self.header_at(position)
            if header is not None:
                return position, header
        return None

    def used_behind(self, begin: int) -> int:
        """The distance to the last byte that is not zero. Raises: OSError."""
        start = self.segment.start
        return used_end(self._file, begin - start, self.segment.size) + start - begin


class Fragment(NamedTuple):
    """Whole records, their physical offsets and topics, in ascending order within `data`."""

    data: bytes
    heads: Heads
    places: Ints
    names: list[bytes]


def ignore_damage(_fault: Fault, _following: int | None) -> None:
    """An `on_damage` for readers that only skip damage."""


class Passage:
    """Iterates the records that a split owns; reports damage to `on_damage`, then skips it.

    `on_damage` gets the fault and the position of the next whole record, if the data has one; an
    error that it raises ends the iteration. Exactly one of the splits of a segment reports a fault.
    Afterwards `at` is the position after the last record, where the next split continues, and None
    if nothing follows. Raises: OSError.
    """

    def __init__(
        self,
        file: SegmentFile,
        split: Split,
        on_damage: Callable[[Fault, int | None], None] = ignore_damage,
    ) -> None:
        self.at: int | None = None
        self._file = file
        self._split = split
        self._on_damage = on_damage

    def __iter__(self) -> Iterator[Fragment]:
        split = self._split
        self.at = self._begin()
        size = WINDOW_BYTES
        while self.at is not None and self.at < split.end:
            at = self.at
            length = min(size, split.limit - at)
            data = self._file.read(at, at + length)
            walked = records_in(data, at, split.segment.end, until=min(split.end - at, len(data)))
            if walked.names:
                yield Fragment(data, walked.heads, walked.heads.starts + at, walked.names)
            stop = walked.stop
            self.at = at = stop.physical_offset
            size = max(stop.size, min(2 * size, WINDOW_BYTES))
            if stop.kind == BLANK:
                self.at = None
            elif stop.kind not in (MORE, END) or at + stop.size > split.limit or len(data) < length:
                self._pass_over(at)
                size = min(FIRST_WINDOW_BYTES, WINDOW_BYTES)
        if self.at is not None and self.at < split.limit and not split.last:
            self._see_next(self.at)

    def _begin(self) -> int | None:
        """The position of the first owned record."""
        split = self._split
        segment, begin = split.segment, split.begin
        if begin == segment.start:
            return begin
        sure = split.limit < segment.end or begin <= segment.end - BLANK_WITHIN
        if sure and not split.first:
            place = self._file.next_whole(begin, split.end)
            return None if place is None else place[0]
        # Before it there may be a blank, after which a reused segment has old whole records; or
        # damage that no other split reports.
        low = max(begin - BLANK_WITHIN, segment.start)
        before = Passage(
            self._file,
            Split(segment, low, begin, split.limit),
            self._damage_before if split.first else ignore_damage,
        )
        for _ in before:
            pass
        return before.at

    def _damage_before(self, fault: Fault, following: int | None) -> None:
        if following is None or following > self._split.begin:
            self._on_damage(fault, following)

    def _pass_over(self, at: int) -> None:
        limit = self._split.limit
        following = self._file.next_whole(at + 1, limit)
        self.at = None if following is None else following[0]
        self._on_damage(self._file.damage(at), self.at)

    def _see_next(self, at: int) -> None:
        """A record that follows the last one belongs to the next split."""
        if self._file.header_at(at) is None and self._file.fault(at).kind != BLANK:
            self._pass_over(at)


# ── The segments ──


def all_segments(root: str | Path) -> list[Segment]:
    """List every segment file of the log below a store root, in order.

    Raises: ConfigurationError without a log, OSError.
    """
    directory = Path(root) / COMMIT_LOG
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"path: {root} holds no directory {COMMIT_LOG}: {_advice(root)}"
        ) from None
    segments = []
    for name in names:
        start = segment_start(name)
        if start is None:
            continue
        # The broker has deleted it since the listing: it was older than the others.
        with contextlib.suppress(FileNotFoundError):
            path = directory / name
            segments.append(Segment(str(path), start, path.stat().st_size))
    return segments


def _advice(root: str | Path) -> str:
    """Where the log may be instead."""
    stores = sorted(str(path) for path in Path(root).glob("broker-*") if _is_store(path))
    if stores:
        return f"it has the stores of several brokers, name one: {', '.join(stores)}"
    if _is_store(Path(root)):
        return (
            "where its log has a directory of its own (storePathCommitLog), lead there: "
            f"{shlex.join(['ln', '-s', 'LOGDIR', str(Path(root) / COMMIT_LOG)])}, which the broker "
            "does not look at"
        )
    return "give the root of a store (storePathRootDir) or of a copy of it"


def _is_store(path: Path) -> bool:
    return any((path / name).exists() for name in (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT))


def segments_of(root: str | Path) -> list[Segment]:
    """List the segments with records, without empty ones that were created ahead.

    Raises: ConfigurationError without a log, OSError.
    """
    segments = all_segments(root)
    while segments and not _in_use(segments[-1]):
        segments.pop()
    return segments


class LogFiles:
    """The whole log: finds the segment of a physical offset and keeps the last one open."""

    def __init__(self, root: str) -> None:
        """List the segments. Raises: ConfigurationError without a log, OSError."""
        self._segments = all_segments(root)
        self._starts = [segment.start for segment in self._segments]
        self._file: SegmentFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def segment_of(self, position: int) -> Segment | None:
        """The segment with a physical offset; None without one."""
        number = bisect_right(self._starts, position) - 1
        if number < 0 or position >= self._segments[number].end:
            return None
        return self._segments[number]

    def opened(self, segment: Segment) -> SegmentFile:
        """Open that segment, until the next call. Raises: FileNotFoundError, OSError."""
        if self._file is None or self._file.segment != segment:
            self.close()
            self._file = SegmentFile(segment)
        return self._file

    def header_at(self, position: int) -> RecordHeader | None:
        """The whole record at a physical offset; None for anything else. Raises: OSError."""
        segment = self.segment_of(position)
        if segment is None:
            return None
        try:
            return self.opened(segment).header_at(position)
        except FileNotFoundError:
            return None


def _in_use(segment: Segment) -> bool:
    """Whether the segment has a whole record."""
    try:
        with SegmentFile(segment) as file:
            return file.next_whole(segment.start, segment.end) is not None
    except FileNotFoundError:
        return False


def first_store_time(segment: Segment) -> int | None:
    """Store time in ms of the first record of a segment; None if it is incomplete.

    Raises: FileNotFoundError, OSError.
    """
    with SegmentFile(segment) as file:
        header = file.header_at(segment.start)
        return None if header is None else header.store_timestamp
