"""The units of one consume queue: read, and found again at a start.

Invariants: `min_offset` ≤ `end_offset` ≤ `next_offset`; in bytes `tail_position` ≤ `written` ≤ end,
and `synced` ≤ `written`. Physical offsets strictly increase along the units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.names import segment_name
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE, is_blank, units_in_use
from aerobee.store.queues.queue_files import QueueFiles
from aerobee.store.queues.unit_cache import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.open_files import OpenFiles
    from aerobee.store.format.unit import Unit
    from aerobee.store.queues.queue_extents import QueueExtent
    from aerobee.store.queues.unit_cache import UnitCache

    ReadUnits = Callable[[OpenFiles, Path, int, int], bytes]

RECENT_BYTES = 1 << 20
"""Units of this run, no further from the end, are probably in the page cache."""
CHUNK_BYTES = 64_000
RECOVER_FILES = 3
LOOK_UNITS = 400
"""So many units are examined one by one, since they are read at once."""

_iter_units = UNIT.iter_unpack


class QueueUnits(QueueFiles):
    """The units of a queue, in files and in memory, and its offsets."""

    __slots__ = (
        "_cache",
        "begun",
        "end_offset",
        "extent",
        "max_physical_offset",
        "min_offset",
        "named",
        "next_offset",
        "queue_id",
        "stopped",
        "synced",
        "tail",
        "tail_position",
        "topic",
        "unlisted",
        "written",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_size: int,
        disk: Disk,
        open_files: OpenFiles,
        cache: UnitCache,
    ) -> None:
        super().__init__(directory, file_size, disk, open_files)
        self._cache = cache
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.end_offset = 0
        """The queue offset behind the last unit: the queue's max offset."""
        self.next_offset = 0
        """The queue offset the next message gets; beyond `end_offset` while dispatch is behind."""
        self.max_physical_offset = -1
        """End in the log of the last message that has a unit; -1 without one."""
        self.stopped = False
        """A unit is missing: nothing is added any more, the next start rebuilds the queue."""
        self.begun = 0
        """Where the units of this run begin, in bytes."""
        self.tail = bytearray()
        self.tail_position = 0
        self.written = 0
        self.synced = 0
        self.named = False
        """Whether the names of its files and folders are surely on disk."""
        self.extent: QueueExtent | None = None
        """The extent that is valid as long as its file does not change."""
        self.unlisted = False
        """Whether its directory was not listed yet."""

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} {self.min_offset}…{self.end_offset}>"

    # ── Reading ──

    def units(
        self, queue_offset: int, count: int, read: ReadUnits | None = None
    ) -> bytes | bytearray:
        """Up to `count` units from `queue_offset`, never beyond the end of the file they begin in.

        Empty when there is no file for them. `read` reads units that may be on disk; by default the
        read blocks. Raises: OSError, and the errors of `read`.
        """
        position = queue_offset * UNIT_SIZE
        size = count * UNIT_SIZE
        room = self.file_size - position % self.file_size
        if size > room:
            size = room
        at = position - self.tail_position
        if at >= 0:
            return self.tail[at : at + size]
        data = self._read(position, min(size, -at), read)
        if len(data) == -at and size > -at:
            return data + self.tail[: size + at]
        return data

    def unit(self, queue_offset: int, read: ReadUnits | None = None) -> Unit | None:
        """One unit; None when there is none."""
        if not self.min_offset <= queue_offset < self.end_offset:
            return None
        data = self.units(queue_offset, 1, read)
        return UNIT.read(data) if len(data) == UNIT_SIZE else None

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the next file."""
        per_file = self.file_size // UNIT_SIZE
        return queue_offset + per_file - queue_offset % per_file

    def _read(self, position: int, size: int, read: ReadUnits | None = None) -> bytes:
        """Units that are written; fewer than `size` bytes where the file ends. Hot."""
        if read is not None and size <= BLOCK_BYTES:
            number, at = divmod(position, BLOCK_BYTES)
            data = self._block(number, read)[at : at + size]
            if data and len(data) < size:
                data += self._block(number + 1, read)[: size - len(data)]
            if len(data) == size:
                return data
        return self._read_file(position, size, read)

    def _block(self, number: int, read: ReadUnits) -> bytes:
        """A whole block of written units of one file; empty where there is none."""
        data = self._cache.kept.get((self, number))
        if data is None:
            begin = number * BLOCK_BYTES
            end = begin + BLOCK_BYTES
            if end > self.written or begin % self.file_size + BLOCK_BYTES > self.file_size:
                return b""
            data = self._read_file(begin, BLOCK_BYTES, read)
            if len(data) == BLOCK_BYTES:
                self._cache.keep(self, number, data)
        return data

    def _take(self, starts: list[int]) -> list[Path]:
        self._cache.kept.clear()
        return super()._take(starts)

    def _read_file(self, position: int, size: int, read: ReadUnits | None) -> bytes:
        start = position - position % self.file_size
        path = self._paths.get(start)
        if path is None:
            return b""
        if read is None or self._recent(position):
            return self._open.get(path).pread(size, position - start)
        return read(self._open, path, position - start, size)

    def _recent(self, position: int) -> bool:
        return position >= self.begun and self.tail_position - position <= RECENT_BYTES

    # ── Where it stands ──

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of units that are only in memory."""
        return self.end_offset * UNIT_SIZE - self.written

    @property
    def has_news(self) -> bool:
        """Whether units were added in this run."""
        return self.end_offset * UNIT_SIZE > self.begun

    @property
    def unsafe_bytes(self) -> int:
        """Bytes of units that a power cut may take, written or not."""
        return self.end_offset * UNIT_SIZE - self.synced

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of written units that a power cut may take."""
        return self.written - self.synced

    # ── Start ──

    def holds(self, extent: QueueExtent, file_size: int) -> bool:
        """Use an extent, or only its file name if that has changed; False: `load` must read the
        directory.

        Raises: OSError.
        """
        path = self.directory / segment_name(extent.start)
        size, inode, changed_ns = self._disk.identity(path)
        if size != file_size:
            return False
        self._paths[extent.start] = path
        if (inode, changed_ns) == (extent.inode, extent.changed_ns):
            self.extent = extent
        else:
            # There can be no other file unless this one is full.
            self.unlisted = True
        return True

    def doubt(self) -> None:
        """Load it as if there had been no extent. Raises: OSError."""
        if self.extent is not None or self.unlisted:
            self.extent, self.unlisted = None, False
            self._paths.clear()
            self.load()

    def begins_before(self, physical_offset: int) -> bool:
        """Whether its first message may be before this byte of the log."""
        return self.extent is None or self.extent.first_physical_offset < physical_offset

    def _reach(self, extent: QueueExtent) -> None:
        end = extent.end_offset * UNIT_SIZE
        self.min_offset = extent.min_offset
        self.end_offset = self.next_offset = extent.end_offset
        self.written = self.synced = self.tail_position = self.begun = end
        self.max_physical_offset = extent.max_physical_offset

    def recover(self, *, scan: bool) -> None:
        """Find the end: by binary search after a clean stop, unit by unit (`scan`) after a crash.

        With `scan`, everything behind the first invalid unit is zeroed; files behind it and files
        without a unit are removed. Source: store format §5.3. Raises: OSError.
        """
        if self.extent is not None and not scan:
            self._reach(self.extent)
            return
        self.doubt()
        self._drop_wrong_sizes()
        files = self.files
        end = files[0] if files else 0
        for start in files[-RECOVER_FILES:] if scan else files[-1:]:
            used = self._scan(start) if scan else self._halve(start)
            end = start + used
            if used < self.file_size:
                break
        if not scan and len(files) > 1 and end == files[-1]:
            end = files[-2] + self.file_size
        self._end_at(end, zero=scan)

    def recover_from(self, synced: int, written: int, min_physical_offset: int) -> None:
        """Find the ends after a crash, knowing what was safe; reads only the rest.

        Units of messages before byte `synced` of the log are on disk, those before `written` are in
        the files; both are trusted. Units behind these are removed, and units in between are read
        and will be written and synced again. Raises: OSError.
        """
        if self.extent is not None and not self.begins_before(min_physical_offset):
            self._reach(self.extent)
            return
        if self._is_whole(synced, written, min_physical_offset):
            self.extent, self.unlisted = None, False
            return
        self.doubt()
        self._drop_wrong_sizes()
        start = next(reversed(self._paths), 0)
        end = start + self._last_use(start) if self._paths else 0
        self.end_offset, self.tail_position = end // UNIT_SIZE, end
        self.min_offset = next(iter(self._paths), end) // UNIT_SIZE
        first = self._first_at_or_after(synced)
        kept = self._units_before(first, written)
        self._end_at(first * UNIT_SIZE + len(kept), zero=True)
        if kept and self._paths:
            self.tail, self.tail_position = bytearray(kept), first * UNIT_SIZE
            self.written = self.tail_position
            self.synced = min(self.synced, self.written)
        self.correct_min_offset(min_physical_offset)

    def _is_whole(self, synced: int, written: int, min_physical_offset: int) -> bool:
        """The fast path: one file, read once, with nothing in it to remove.

        Most queues are like that when there are many. Their ends are final then. Raises: OSError.
        """
        if len(self._paths) != 1:
            return False
        [(start, path)] = self._paths.items()
        if start % self.file_size or self._sizes.get(start, self.file_size) != self.file_size:
            return False
        with self._disk.open(path, writable=False) as handle:
            [*ranges] = handle.data_ranges(0, self.file_size)
            if not ranges or ranges[-1][1] > CHUNK_BYTES:
                return False
            units = handle.pread(ranges[-1][1], 0)
        end = -(-len(units.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE
        if not UNIT_SIZE <= end <= len(units) or (self.unlisted and end == self.file_size):
            return False
        first, size, _ = UNIT.unpack_from(units)
        if is_blank(first, size) or first < min_physical_offset:
            return False
        last, last_size, _ = UNIT.unpack_from(units, end - UNIT_SIZE)
        if last_size <= 0:
            return False
        # Units that may not be on disk are examined, from the end on.
        at, before = end, written
        while at:
            physical, size, _ = UNIT.unpack_from(units, at - UNIT_SIZE)
            if physical < synced:
                break
            if physical >= before or size <= 0:
                return False
            at, before = at - UNIT_SIZE, physical
        self.min_offset = start // UNIT_SIZE
        self.end_offset = self.next_offset = (start + end) // UNIT_SIZE
        self.written = self.synced = self.tail_position = start + at
        self.tail = bytearray(units[at:end])
        self.begun = start + end
        self.max_physical_offset = last + last_size
        return True

    def _units_before(self, queue_offset: int, physical_offset: int) -> bytes:
        """The valid units from there on, in one piece, of messages before that byte of the log."""
        data = bytearray()
        last = -1
        while units := self.units(queue_offset, CHUNK_BYTES // UNIT_SIZE):
            for index, (physical, size, _) in enumerate(_iter_units(units)):
                if not last < physical < physical_offset or size <= 0:
                    return bytes(data + units[: index * UNIT_SIZE])
                last = physical
            data += units
            queue_offset += len(units) // UNIT_SIZE
        return bytes(data)

    def _scan(self, start: int) -> int:
        """Bytes of valid units at the begin of a file; physical offsets must increase."""
        last = -1
        for position in range(start, start + self.file_size, CHUNK_BYTES):
            size = min(CHUNK_BYTES, start + self.file_size - position)
            for index, (physical, length, _) in enumerate(_iter_units(self._read(position, size))):
                if physical < 0 or length <= 0 or (physical <= last and length != 0x7FFFFFFF):
                    return position - start + index * UNIT_SIZE
                last = physical if length != 0x7FFFFFFF else last
        return self.file_size

    def _halve(self, start: int) -> int:
        """Bytes of valid units at the begin of a file, all of them contiguous."""
        ranges = list(self._open.get(self._paths[start]).data_ranges(0, self.file_size))
        # There is no unit in a hole, so the last of them is near the end of the data.
        low, high = 0, -(-ranges[-1][1] // UNIT_SIZE) if ranges else 0
        middle = high - LOOK_UNITS
        while high - low > LOOK_UNITS:
            physical, size, _ = UNIT.unpack_from(self._read(start + middle * UNIT_SIZE, UNIT_SIZE))
            if physical >= 0 and size > 0:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        units = self._read(start + low * UNIT_SIZE, (high - low) * UNIT_SIZE)
        return low * UNIT_SIZE + units_in_use(units) * UNIT_SIZE

    def _end_at(self, end: int, *, zero: bool) -> None:
        """Make byte `end` the end: no file behind it, none without a unit, nothing in memory."""
        self._cache.kept.clear()
        self.remove_files_from(end)
        zeroed = zero and self._paths and end % self.file_size and self._zero(end)
        if self._only_blanks(end):
            self.remove_files_from(0)
        self.end_offset = self.next_offset = end // UNIT_SIZE
        first = next(iter(self._paths), end)
        self.min_offset = max(min(self.min_offset, self.end_offset), first // UNIT_SIZE)
        self.written = self.synced = self.tail_position = self.begun = end
        if zeroed and self._paths:
            # So that the next sync includes the zeros.
            self.synced -= UNIT_SIZE
        self.tail = bytearray()
        self.extent = None
        self.max_physical_offset = self._last_message_end()

    def _only_blanks(self, end: int) -> bool:
        """Whether there is no message before `end`: blanks alone look like one to other brokers."""
        last = self._read(end - UNIT_SIZE, UNIT_SIZE) if self._paths else b""
        return not last or last == BLANK

    def _last_message_end(self) -> int:
        last = self.unit(self.end_offset - 1)
        if last is None or is_blank(last.physical_offset, last.size):
            return -1
        return last.physical_offset + last.size

    def truncate(self, physical_offset: int) -> None:
        """Drop every unit of a message at or behind this byte of the log.

        Units in memory must have been written. Source: store format §5.4. Raises: OSError.
        """
        if self.max_physical_offset <= physical_offset:
            return
        assert not self.unwritten_bytes, self
        self._end_at(self._first_at_or_after(physical_offset) * UNIT_SIZE, zero=True)

    def _first_at_or_after(self, physical_offset: int, low: int | None = None) -> int:
        """The first queue offset whose message is there or later; the end if none is."""
        if low is None:
            low = next(iter(self._paths), self.min_offset * UNIT_SIZE) // UNIT_SIZE
        high = self.end_offset
        # Mostly it is the very first.
        middle = low
        while low < high:
            unit = UNIT.read(self.units(middle, 1))
            # A power cut leaves holes where units were never synced: they count as later than all
            # others.
            blank = is_blank(unit.physical_offset, unit.size)
            if unit.size > 0 and (blank or unit.physical_offset < physical_offset):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Make the first unit whose message is still in the log the minimum.

        Never goes back. A queue without one becomes empty: min = max. Source: store format §5.5.
        """
        first = self._first_at_or_after(min_physical_offset)
        self.min_offset = max(self.min_offset, first)

    def destroy(self) -> None:
        """Remove all files and forget all units. Raises: OSError."""
        self.remove_files_from(0)
        self.min_offset = 0
        self._end_at(0, zero=False)
