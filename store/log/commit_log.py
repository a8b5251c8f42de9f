"""The commit log: every message of every queue, one record behind the other, in segments.

Records flow in as bytes already encoded for their offsets; views of the mapping flow out. It knows
where the log begins and ends, what is on disk, and how to walk it; it starts no thread.

Invariants: `flushed` ≤ `max_offset`; a record never spans segments; every append leaves room for
the blank; a segment is durable before anything in a later one is promised.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.files.mapped_file_queue import MappedFileQueue
from aerobee.store.format.faults import BLANK, END, NoRecord, Stop
from aerobee.store.format.record import (
    BLANK_BYTES,
    FIXED_BYTES,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    STORE_TIME_END,
    parse,
    store_time,
)
from aerobee.store.format.walk import Walk, claimed_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from mmap import mmap
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.format.layout import Buffer
    from aerobee.store.format.record import RecordHeader

    ReadLog = Callable[[MappedFile, int, int], memoryview]

MAPPED_SEGMENTS = 8
"""How many of the last segments stay mapped: each takes a descriptor, and page tables."""

_identity = HEAD.pick("size", "magic", "physical_offset")
FIRST_LOOK_BYTES = 4_096
"""The first read of a record of unknown size: most are shorter."""


class SyncPlan(NamedTuple):
    """The range of one sync: made and completed in the loop, synced there or in a thread."""

    files: tuple[tuple[MappedFile, int], ...]
    """Segments in order, each with its `wrote` when the plan was made."""
    end_offset: int
    store_timestamp: int
    """Of the last record covered; 0 when this run appended none."""

    @property
    def is_one_file(self) -> bool:
        """Whether it takes a single system call: one segment, whose name is on disk."""
        return len(self.files) == 1 and self.files[0][0].named


class CommitLog:
    """Segments of the log. Source: store format §1.2, §2.3 (CommitLog)."""

    __slots__ = (
        "_disk",
        "flushed",
        "last_store_timestamp",
        "mapped_from",
        "max_offset",
        "new_segment",
        "queue",
        "tail",
    )

    def __init__(
        self, disk: Disk, directory: Path, segment_bytes: int, *, setting: str = ""
    ) -> None:
        """`setting` is the key of `segment_bytes`; existing segments keep their size."""
        self._disk = disk
        self.queue = MappedFileQueue(disk, directory, segment_bytes, setting=setting)
        self.tail: MappedFile | None = None
        """The segment that takes appends, mapped for writing; None until the first is needed."""
        self.max_offset = 0
        """The offset behind the last byte: where the next record goes, unless it must roll."""
        self.flushed = 0
        """Everything before this byte is on disk."""
        self.last_store_timestamp = 0
        """Store time of the last record, in ms; later ones are never smaller."""
        self.mapped_from = 0
        """Before this byte, pages may not be in memory: an earlier run wrote them, or they are not
        mapped."""
        self.new_segment: Callable[[Path, int], Handle] = disk.allocate
        """Returns the allocated file of the next segment under its name; it may have been
        prepared."""

    @property
    def segment_bytes(self) -> int:
        """Size of every segment."""
        return self.queue.file_size

    @property
    def min_offset(self) -> int:
        """The first byte that still exists."""
        return self.queue.min_offset

    # ── Appending ──

    @property
    def room_ends(self) -> int:
        """The offset behind the last byte for records in the last segment; 0 without one."""
        tail = self.tail
        return 0 if tail is None else tail.end - BLANK_BYTES

    def append(self, records: Buffer, store_timestamp: int) -> bool:
        """Append the records of one batch, or a single one, encoded for `max_offset`; False: roll
        first. Raises: as `MappedFile.append`. Hot.
        """
        tail = self.tail
        if tail is None:
            return False
        end = tail.wrote + len(records)
        if end + BLANK_BYTES > tail.size:
            return False
        tail.append(records)
        self.last_store_timestamp = tail.store_timestamp = store_timestamp
        self.max_offset = tail.start + end
        return True

    def append_each(self, records: Iterable[Buffer], store_timestamp: int) -> None:
        """Append records of any queues, encoded for `max_offset`, which end in front of
        `room_ends`; the time is that of the last one. Raises: as `MappedFile.append`. Hot.
        """
        tail = self.tail
        assert tail is not None, self.max_offset
        tail.append_each(records)
        self.last_store_timestamp = tail.store_timestamp = store_timestamp
        self.max_offset = tail.max_offset
        assert self.max_offset <= self.room_ends, tail

    def roll(self, size: int) -> None:
        """Make room for `size` bytes: end the last segment with the blank, continue in a new one.

        The segment appears before the blank does. Raises: SegmentLate, OSError; then nothing has
        changed.
        """
        old = self.queue.last
        if old is not None and self.tail is None and not old.full:
            self._take_tail(old)
            if old.wrote + size + BLANK_BYTES <= old.size:
                return
        start = self.queue.next_start()
        path = self.queue.path_of(start)
        handle = self.new_segment(path, self.segment_bytes)
        fresh = MappedFile(self._disk, path, start, self.segment_bytes, handle=handle)
        fresh.named = False
        try:
            fresh.map_for_writes()
            if old is not None and not old.full:
                old.close_with_blank()
        except OSError:
            fresh.close()
            raise
        self.queue.add(fresh)
        self._take_tail(fresh)
        self.mapped_from = max(self.mapped_from, self.queue.files[-MAPPED_SEGMENTS:][0].start)

    def begin_at(self, physical_offset: int) -> None:
        """Begin a log without a byte at this begin of a segment: the copy of a log whose older
        segments are gone. Raises: OSError; then nothing has changed.
        """
        assert not self.max_offset, self.max_offset
        assert not physical_offset % self.segment_bytes, physical_offset
        if self.queue.files and physical_offset:
            # A crash has left the first segment without a record.
            self.queue.drop_unused()
            self.tail = None
        self.queue.first_start = self.max_offset = self.flushed = physical_offset
        self.mapped_from = physical_offset

    def fill(self, physical_offset: int, data: Buffer) -> None:
        """Write bytes behind the last record of the segment; they count with the next roll. Raises:
        as `MappedFile.append`.
        """
        tail = self.tail
        assert tail is not None, physical_offset
        assert physical_offset >= tail.max_offset, (tail, physical_offset)
        tail.fill(physical_offset - tail.start, data)

    def take_back_fill(self) -> None:
        """Zero what `fill` has written and no roll has counted. Raises: OSError; then the next
        append does.
        """
        if self.tail is not None:
            self.tail.zero_tried()

    def take_back_tried(self) -> None:
        """Zero what is left of appends that failed, durably, ahead of a stop: their messages were
        refused, and the next start would count them. Raises: OSError.
        """
        if self.tail is not None and self.tail.zero_tried():
            self.tail.sync()

    def let_go(self) -> list[mmap]:
        """Close the handles of segments that are on disk, and unmap all but the last ones.

        Returns the mappings, for `Disk.forget_pages` in a thread.
        """
        mappings = []
        for file in self.queue.files[:-1]:
            # A file that is not on disk yet may be in use by the sync thread.
            if file.end > self.flushed or not file.named:
                break
            if file.end > self.mapped_from:
                file.close_handle()
            elif (mapping := file.give_up()) is not None:
                mappings.append(mapping)
        return mappings

    def _take_tail(self, file: MappedFile) -> None:
        file.prepare_writes()
        self.tail = file
        self.max_offset = file.max_offset

    # ── Durability ──

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that a power cut may take."""
        return self.max_offset - self.flushed

    def plan_sync(self) -> SyncPlan:
        """Everything appended so far that is not on disk."""
        files = tuple(
            (file, file.wrote)
            for file in reversed(self.queue.files[-1:] if self._only_tail() else self._unflushed())
        )
        return SyncPlan(files, self.max_offset, self.last_store_timestamp)

    def _only_tail(self) -> bool:
        tail = self.queue.last
        return tail is not None and self.flushed >= tail.start and tail.named

    def _unflushed(self) -> list[MappedFile]:
        """Newest first."""
        return [
            file for file in reversed(self.queue.files) if file.end > self.flushed or not file.named
        ]

    def sync(self, plan: SyncPlan) -> None:
        """Sync what the plan names, oldest segment first. For a thread. Raises: OSError."""
        for file, _ in plan.files:
            if not file.named:
                # Before its data is promised, the name of the segment must be durable.
                self._disk.sync_directory(self.queue.directory)
            file.sync()

    def complete(self, plan: SyncPlan) -> None:
        """Record that a plan was synced: advance `flushed`."""
        for file, position in plan.files:
            file.mark_flushed(position)
            file.named = True
        assert plan.end_offset <= self.max_offset, (plan, self.max_offset)
        self.flushed = max(self.flushed, plan.end_offset)

    def sync_all(self) -> None:
        """Make everything durable, blocking. Raises: OSError."""
        plan = self.plan_sync()
        self.sync(plan)
        self.complete(plan)

    # ── Reading ──

    def view(self, physical_offset: int, size: int) -> memoryview | None:
        """`size` bytes of one segment; None when they are not all there. Raises: OSError."""
        file = self.queue.find(physical_offset)
        return None if file is None else file.view(physical_offset - file.start, size)

    def record(
        self, physical_offset: int, size: int | None = None, read: ReadLog | None = None
    ) -> memoryview | None:
        """The whole record that begins there; None for any other offset.

        `read` reads bytes that may be on disk; by default the mapping is used. Raises: OSError, and
        the errors of `read`.
        """
        file = self.queue.find(physical_offset)
        if file is None:
            return None
        read = read or _mapped
        position = physical_offset - file.start
        there = file.wrote - position
        if size is None:
            if there < FIXED_BYTES:
                return None
            head = read(file, position, min(there, FIRST_LOOK_BYTES))
            if len(head) < FIXED_BYTES:
                # A segment that was just deleted is shorter for a thread that has it open.
                return None
            size, magic, named = _identity(head, 0)
            known = magic in (MAGIC_V1, MAGIC_V2) and named == physical_offset
            if not known or not 0 < size <= there:
                return None
        data = read(file, position, min(there, size))
        header = parse(data, 0, physical_offset)
        return None if isinstance(header, NoRecord) or header.size != size else data

    def store_time(self, physical_offset: int, read: ReadLog | None = None) -> int:
        """Store time of the record there, in ms; −1 when it cannot be read.

        Raises: OSError, and the errors of `read`.
        """
        file = self.queue.find(physical_offset)
        if file is None or physical_offset + STORE_TIME_END > file.max_offset:
            return -1
        head = (read or _mapped)(file, physical_offset - file.start, STORE_TIME_END)
        return store_time(head, physical_offset)

    def walk(
        self, start: int, end: int | None = None, *, crc: bool = False, from_disk: bool = False
    ) -> LogWalk:
        """Whole records from `start`, a record's begin, up to `end` or the last readable byte.

        `from_disk`: see `MappedFile.read_through`.
        """
        until = self.max_offset if end is None else end
        return LogWalk(self, start, until, crc, from_disk=from_disk)

    def following(self, file: MappedFile) -> MappedFile | None:
        """The segment after one that was read to its end; that one is unmapped if it need not stay.

        None after the last.
        """
        if file.end <= min(self.mapped_from, self.flushed):
            file.give_up()
        return self.queue.after(file)

    def parse_at(
        self, file: MappedFile, physical_offset: int, *, crc: bool = False
    ) -> RecordHeader | NoRecord:
        """One record of a segment, for a log at rest. Raises: OSError."""
        return parse(self.bytes_at(file, physical_offset), 0, physical_offset, crc)

    def bytes_at(self, file: MappedFile, physical_offset: int) -> bytes:
        """The bytes of the record there, or enough to tell that there is none, or why.

        Read, not mapped: what the disk cannot read is an error, and no SIGBUS. Raises: OSError.
        """
        position, read = physical_offset - file.start, file.open().pread
        left = file.wrote - position
        data = read(min(left, FIRST_LOOK_BYTES), position)
        size = claimed_size(data, 0, physical_offset, file.start + file.wrote)
        return data if size <= len(data) else read(size, position)

    def header_at(self, physical_offset: int) -> RecordHeader | None:
        """The whole record there; None when there is none. Raises: OSError."""
        file = self.queue.find(physical_offset)
        if file is None:
            return None
        header = self.parse_at(file, physical_offset)
        return None if isinstance(header, NoRecord) else header

    def head_crc(self, physical_offset: int) -> int:
        """The CRC of the fixed fields of the record there, whole or not; 0 outside the log.

        Also for a thread: it shares no handle. Raises: OSError.
        """
        file = self.queue.find(physical_offset)
        if file is None:
            return 0
        with self._disk.open(file.path, writable=False) as handle:
            return crc32(handle.pread(HEAD.size, physical_offset - file.start))

    # ── Start ──

    def load(self) -> None:
        """Load the existing segments, all counted as full and durable.

        Raises: StoreDamaged, OSError.
        """
        self.queue.load()
        self.max_offset = self.flushed = self.mapped_from = self.queue.max_offset
        if self.segment_bytes < 2 * BLANK_BYTES:
            raise StoreDamaged(f"{self.queue.directory}: segments of {self.segment_bytes} bytes")

    def truncate(self, physical_offset: int) -> int:
        """Make this the end: later segments are removed, the rest of its own is zeroed and synced.

        Returns the end of the old bytes behind it. Raises: OSError.
        """
        used = [f.max_offset for f in self.queue.files if f.start > physical_offset and f.in_use()]
        self.queue.truncate(physical_offset)
        reach = max([physical_offset + self.queue.zero_tail(), *used]) - physical_offset
        self.tail = None
        self.max_offset = self.flushed = physical_offset if self.queue.files else 0
        return reach

    def take_over(self) -> None:
        """Prepare the last segment for appends: reserve its blocks and map it.

        Without space for them the first append retries; reads are served meanwhile.
        """
        last = self.queue.last
        if last is not None and not last.full:
            with contextlib.suppress(OSError):
                self._take_tail(last)

    def close(self) -> None:
        """Close all segments; views stay readable."""
        self.tail = None
        self.queue.close()


def _mapped(file: MappedFile, position: int, size: int) -> memoryview:
    return file.readable()[position : position + size]


class LogWalk:
    """Walks the segments in order, as `Walk` does each; afterwards `stop` says why it ended."""

    __slots__ = ("_begin", "_crc", "_from_disk", "_log", "_until", "stop")

    def __init__(
        self, log: CommitLog, begin: int, until: int, crc: bool, *, from_disk: bool
    ) -> None:
        self._log = log
        self._from_disk = from_disk
        self._begin = begin
        self._until = until
        self._crc = crc
        self.stop = Stop(END, begin)

    def __iter__(self) -> Iterator[tuple[int, RecordHeader]]:
        at, until = self._begin, self._until
        file = self._log.queue.find(at)
        while file is not None and at < until:
            # Not further than was written: behind it may be data of an earlier run.
            end = min(until, file.max_offset)
            if self._from_disk:
                file.read_through()
            walk = Walk(file.readable()[: file.wrote], file.start, at, end, crc=self._crc)
            yield from walk
            self.stop = walk.stop
            at = walk.stop.physical_offset
            if walk.stop.kind != BLANK and at < file.end:
                return
            file = self._log.following(file)
            if file is not None:
                at = file.start
                self.stop = Stop(END, at)
