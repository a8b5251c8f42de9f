"""One index file: any number of readers, one writer.

Keys in as hashes, physical offsets of candidates out. The part that is being built is in memory
until `write`: the slots, because their pages are accessed at random and a page on disk would block
the loop; and the entries that are not in the file yet. A file is thus behind its builder, and
consistent only after a `write`: after a crash it counts only if it is full and the checkpoint
covers it. Threads may search while another writes: entries come first, then the head, then the
slots, so no slot leads behind the head. Source: store format §1.4 (IndexFile).
"""

from __future__ import annotations

import sys
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.format.index import (
    INDEX_ENTRY,
    INDEX_HEAD,
    INDEX_SLOT,
    TIME_DIFF_MAX,
    IndexEntry,
    IndexHead,
    IndexShape,
)
from aerobee.store.index.index_shape import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle

_BLOCK: Final = 1_024
"""Slots that are written together: a page of the file, whose first one also has the head."""
_HEAD_SLOTS: Final = INDEX_HEAD.size // INDEX_SLOT.size
_RUN: Final = 64
"""The most blocks of one write; swapping their bytes holds the GIL for 60 µs."""
_SWAPPED: Final = sys.byteorder == "little"
_HEAD_BYTES: Final = INDEX_HEAD.size
_pack_entry = INDEX_ENTRY.pack


class Key(NamedTuple):
    """One key of one message."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


class RecentChain(NamedTuple):
    """The chain of one hash in the file that is being built."""

    file: IndexFile
    head: IndexHead
    newest: int
    first: int
    """The first entry that may be only in memory."""
    entries: bytearray
    """Unwritten entries; it grows."""


class IndexFile:
    """A file on disk. `head` is that of the last `read_head` or `write`."""

    __slots__ = ("disk", "fits", "head", "path", "shape")

    def __init__(
        self, disk: Disk, path: Path, shape: IndexShape, head: IndexHead | None = None
    ) -> None:
        self.disk = disk
        self.path = path
        self.shape = shape
        """Slots and entries: the configured ones of a new file, and its own of an existing one."""
        self.fits = True
        """Whether the length of an existing file fits any shape."""
        self.head = head or IndexHead()

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.head}>"

    @property
    def full(self) -> bool:
        """Whether no entry fits any more."""
        return self.head.index_count >= self.shape.entries

    @property
    def empty(self) -> bool:
        """Whether there is no entry."""
        return self.head.index_count <= 1

    @property
    def sound(self) -> bool:
        """Whether the head is plausible."""
        head = self.head
        return (
            self.fits
            and 0 <= head.hash_slot_count < head.index_count <= self.shape.entries
            and head.hash_slot_count <= self.shape.slots
            and 0 <= head.begin_physical_offset <= head.end_physical_offset
            and head.begin_timestamp >= 0
        )

    def read_head(self) -> None:
        """Take the head and the shape from the file. Raises: OSError."""
        with self.disk.open(self.path, writable=False) as handle:
            self.take(handle)

    def take(self, handle: Handle) -> None:
        """The head and the shape of a file that is open. Raises: OSError."""
        head = INDEX_HEAD.read(whole(handle, _HEAD_BYTES, 0))
        # Java counts from 1 before it has written the head.
        self.head = head._replace(index_count=max(1, head.index_count))
        shape = shape_of(handle, self.head, self.shape)
        self.fits = shape is not None
        self.shape = shape or self.shape

    def entries_of(self, physical_offset: int) -> int:
        """How many of the newest entries are keys of that message. Raises: OSError."""
        with self.disk.open(self.path, writable=False) as handle:
            number = last = self.head.index_count - 1
            while number and _entry(handle, self.shape, number).physical_offset == physical_offset:
                number -= 1
        return last - number

    def follows(self, before: IndexHead) -> bool:
        """Whether it follows a file with that head: begins at its end or later, and is dated so.

        The first entry is dated against the file before, to the second. Raises: OSError.
        """
        if self.head.begin_physical_offset < before.end_physical_offset:
            return False
        if self.empty:
            return True
        with self.disk.open(self.path, writable=False) as handle:
            dated_s = _entry(handle, self.shape, 1).time_diff_s
        return dated_s == _seconds(before.end_timestamp, self.head.begin_timestamp)


def whole(handle: Handle, size: int, position: int) -> bytes:
    """The bytes there; zeros behind the end of a file that is too short."""
    return handle.pread(size, position).ljust(size, b"\0")


def _seconds(begin_ms: int, stored_ms: int) -> int:
    """How an entry is dated in a file that begins at that time; 0 means no such time."""
    return min((stored_ms - begin_ms) // 1_000, TIME_DIFF_MAX) if 0 < begin_ms < stored_ms else 0


def _entry(handle: Handle, shape: IndexShape, number: int) -> IndexEntry:
    return INDEX_ENTRY.read(whole(handle, INDEX_ENTRY.size, shape.entry_position(number)))


class UnwrittenEntries(NamedTuple):
    """Entries of an index file that are only in memory."""

    first: int
    """Number of the first of them."""
    entries: bytearray


class IndexBuilder:
    """Adds keys to the last file. All but `add` and the numbers block: for a thread.

    Invariant: `count` is one past the last entry; slots and the head agree with it at every await.
    """

    __slots__ = (
        "_dirty",
        "_handle",
        "_slots",
        "_unwritten",
        "begin_physical_offset",
        "begin_timestamp",
        "count",
        "end_physical_offset",
        "end_timestamp",
        "file",
        "slots_used",
    )

    def __init__(self, file: IndexFile, handle: Handle) -> None:
        """Takes the handle of an allocated file. Raises: OSError."""
        self.file = file
        self._handle = handle
        head = file.head
        self.begin_timestamp = head.begin_timestamp
        self.end_timestamp = head.end_timestamp
        self.begin_physical_offset = head.begin_physical_offset
        self.end_physical_offset = head.end_physical_offset
        self.slots_used = head.hash_slot_count
        self.count = head.index_count
        self._unwritten = UnwrittenEntries(head.index_count, bytearray())
        """Replaced in one step."""
        self._slots = memoryview(file.disk.memory(file.shape.slots * INDEX_SLOT.size)).cast("i")
        self._dirty = bytearray((file.shape.slots + _HEAD_SLOTS) // _BLOCK + 1)
        """A flag per block: whether it differs from the file."""

    @classmethod
    def create(cls, file: IndexFile) -> IndexBuilder:
        """Make the file; it begins where its head says. Raises: OSError."""
        file.disk.mkdir(file.path.parent)
        # With its head when its name appears: a Java broker takes a file whose end is 0 for older
        # than the checkpoint, keeps it in a recovery that drops the one before, and fills it from
        # far in front of its place.
        handle = file.disk.allocate(file.path, file.shape.size, INDEX_HEAD.write(file.head))
        try:
            return cls(file, handle)
        except BaseException:
            handle.close()
            raise

    @classmethod
    def resume(cls, file: IndexFile) -> IndexBuilder:
        """Continue a file that is not full, of any broker. Raises: OSError."""
        handle = file.disk.open(file.path)
        try:
            file.disk.fill(handle, file.shape.size)
            builder = cls(file, handle)
            builder._read_slots()
        except BaseException:
            handle.close()
            raise
        return builder

    def _read_slots(self) -> None:
        step = _BLOCK * _RUN
        for first in range(0, len(self._slots), step):
            wanted = min(step, len(self._slots) - first) * INDEX_SLOT.size
            data = self._handle.pread(wanted, self.file.shape.slot_position(first))
            if data.count(0) < len(data):
                piece = _turned(data)
                self._slots[first : first + len(piece)] = memoryview(piece)

    @property
    def full(self) -> bool:
        """Whether no entry fits any more."""
        return self.count >= self.file.shape.entries

    @property
    def unwritten(self) -> int:
        """Entries that are only in memory."""
        return self.count - self._unwritten.first

    def recent(self, key_hash: int) -> RecentChain:
        """The unwritten keys of this file, for a query; for the loop."""
        newest = self._slots[key_hash % len(self._slots)]
        return RecentChain(self.file, self.head, newest, *self._unwritten)

    @property
    def head(self) -> IndexHead:
        """The head as it is now."""
        return IndexHead(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.slots_used,
            self.count,
        )

    def add(self, keys: Sequence[Key | tuple[int, int, int]]) -> int:
        """Add keys in order until the file is full; returns how many. Hot."""
        slots = self._slots
        slot_count = len(slots)
        dirty = self._dirty
        entries = self._unwritten.entries
        count = first = self.count
        begin = self.begin_timestamp
        physical_offset, stored = self.end_physical_offset, self.end_timestamp
        seconds, dated = 0, -1
        for key_hash, physical_offset, stored in islice(keys, self.file.shape.entries - count):
            slot = key_hash % slot_count
            previous = slots[slot]
            if not 0 < previous < count:
                previous = 0
                self.slots_used += 1
            if stored != dated:
                # The time of a file's first entry is relative to the file before.
                seconds = _seconds(begin, stored)
                dated = stored
            entries += _pack_entry(key_hash, physical_offset, seconds, previous)
            slots[slot] = count
            dirty[(slot + _HEAD_SLOTS) // _BLOCK] = 1
            if count <= 1:
                self.begin_timestamp = begin = stored
                dated = -1
                self.begin_physical_offset = physical_offset
            count += 1
        self.count = count
        self.end_physical_offset, self.end_timestamp = physical_offset, stored
        return count - first

    def write(self) -> None:
        """Write what is only in memory; `add` must not run meanwhile. For a thread.

        Raises: OSError; then all of it is written again by the next call.
        """
        handle, shape = self._handle, self.file.shape
        if not self.unwritten:
            return
        first, entries = self._unwritten
        assert len(entries) == self.unwritten * INDEX_ENTRY.size
        handle.pwrite(bytes(entries), shape.entry_position(first))
        head = self.head
        handle.pwrite(INDEX_HEAD.write(head), 0)
        for begin_block, end_block in _runs(
            [block for block, differs in enumerate(bytes(self._dirty)) if differs]
        ):
            begin = max(0, begin_block * _BLOCK - _HEAD_SLOTS)
            end = end_block * _BLOCK - _HEAD_SLOTS
            piece = memoryview(_turned(self._slots[begin:end].tobytes())).cast("B")
            handle.pwrite(piece, shape.slot_position(begin))
        self.file.head = head
        self._unwritten = UnwrittenEntries(self.count, bytearray())
        self._dirty = bytearray(len(self._dirty))

    def sync(self) -> None:
        """Block until what was written is on disk. For a thread. Raises: OSError."""
        self.file.disk.sync(self._handle)

    def close(self) -> None:
        """Close the file; what was not written is lost."""
        self._handle.close()


def _turned(data: bytes) -> array[int]:
    """Swap slots between the byte order of the file and that of the machine."""
    piece = array("i", data)
    if _SWAPPED:
        piece.byteswap()
    return piece


def _runs(blocks: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together as (first, one past the last), no more than a write may carry."""
    begin = -1
    end = -1
    for block in blocks:
        if block != end or end - begin >= _RUN:
            if begin >= 0:
                yield begin, end
            begin = block
        end = block + 1
    if begin >= 0:
        yield begin, end
