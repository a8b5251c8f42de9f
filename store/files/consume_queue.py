"""One consume queue: units of 20 bytes that say where the messages of a queue lie in the log.

New units go to a tail in memory, which readers see at once; the flush service writes the tail to
the files. A crash loses tails: recovery builds them again from the log. Files are sparse and are
made together with their first unit, since an all-zero file is one phantom message to other brokers.

Laws: `min_offset` ≤ `end_offset` ≤ `next_offset`; in bytes `tail_position` ≤ `written` ≤ end, and
`synced` ≤ `written`. Physical offsets strictly increase along the units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.files.queue_files import CHUNK_BYTES, QueueFiles
from aerobee.store.files.unit_search import UnitSearch
from aerobee.store.format.names import file_start, segment_name
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE, is_blank, units_in_use
from aerobee.store.results import UnitStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.open_files import OpenFiles

    ReadUnits = Callable[[OpenFiles, Path, int, int], bytes]

__all__ = ["KEEP_BYTES", "RECENT_BYTES", "ConsumeQueue", "TailWrite"]

KEEP_BYTES = 4_000
"""Written units that stay in memory, so that readers at the end never ask the disk."""
RECENT_BYTES = 1 << 20
"""Units of this run, no further from the end, are believed to be in the page cache."""
RECOVER_FILES = 3
LOOK_UNITS = 400
"""So many are looked at one by one, as they are read at once."""

_pack = UNIT.pack
_iter_units = UNIT.iter_unpack
ADDED = UnitStatus.ADDED
REPEATED = UnitStatus.REPEATED
GAP = UnitStatus.GAP


class TailWrite(NamedTuple):
    """Units on their way to one file: what a thread needs, and nothing that the loop may change."""

    queue: ConsumeQueue
    path: Path
    position: int
    """Of the first unit, within the file, in bytes."""
    data: bytes
    creates: bool
    end: int
    """What `written` becomes."""

    def blanks(self) -> bytes:
        """What fills a new file in front of its first unit (fillPreBlank)."""
        return BLANK * (self.position // UNIT_SIZE) if self.creates else b""


class ConsumeQueue(QueueFiles):
    """Units of (topic, queue id). Source: store format §1.3, §4, §5.3 (ConsumeQueue)."""

    __slots__ = (
        "begun",
        "end_offset",
        "max_physical_offset",
        "min_offset",
        "next_offset",
        "queue_id",
        "stopped",
        "synced",
        "tail",
        "tail_position",
        "topic",
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
    ) -> None:
        super().__init__(directory, file_size, disk, open_files)
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.end_offset = 0
        """One past the last unit: the queue's max offset."""
        self.next_offset = 0
        """The queue offset the next message gets; beyond `end_offset` while dispatch is behind."""
        self.max_physical_offset = -1
        """End in the log of the last message that has a unit; -1 without one."""
        self.stopped = False
        """A unit is missing: nothing is added any more, the next start rebuilds."""
        self.begun = 0
        """Where the units of this run begin, in bytes."""
        self.tail = bytearray()
        self.tail_position = 0
        self.written = 0
        self.synced = 0

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} {self.min_offset}…{self.end_offset}>"

    # ── Adding ──

    def append(
        self, queue_offset: int, physical_offset: int, size: int, tags_code: int
    ) -> UnitStatus:
        """Add the unit of one message at the end; readers see it at once. Hot.

        Repeated ones are ignored, by place in the log and by queue offset. With a gap nothing is
        added: an entry in the wrong place would be worse.
        """
        end = physical_offset + size
        if queue_offset != self.end_offset or end <= self.max_physical_offset:
            return self._append_out_of_line(queue_offset, physical_offset, size, tags_code)
        self.tail += _pack(physical_offset, size, tags_code)
        self.max_physical_offset = end
        self.end_offset = queue_offset + 1
        return ADDED

    def _append_out_of_line(
        self, queue_offset: int, physical_offset: int, size: int, tags_code: int
    ) -> UnitStatus:
        if physical_offset + size <= self.max_physical_offset or queue_offset < self.end_offset:
            return REPEATED
        if self.end_offset or self._paths or self.stopped:
            return GAP
        # The first unit of a queue may have any number: the file is filled in front of it.
        self.begin_at(queue_offset)
        return self.append(queue_offset, physical_offset, size, tags_code)

    def begin_at(self, queue_offset: int) -> None:
        """The first message of this queue, which has none and no file, gets that number."""
        self.min_offset = self.end_offset = queue_offset
        self.next_offset = max(self.next_offset, queue_offset)
        self.written = self.synced = self.tail_position = queue_offset * UNIT_SIZE
        self.begun = self.written

    # ── Reading ──

    def units(
        self, queue_offset: int, count: int, read: ReadUnits | None = None
    ) -> bytes | bytearray:
        """Up to `count` units from `queue_offset`, never beyond the end of the file they begin in.

        Empty when there is no file for them. `read` is the way to those that may be on disk; they
        are waited for without it. Raises: OSError, and what `read` raises.
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

    def unit(self, queue_offset: int, read: ReadUnits | None = None) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of one unit; None when there is none."""
        if not self.min_offset <= queue_offset < self.end_offset:
            return None
        data = self.units(queue_offset, 1, read)
        return UNIT.unpack_from(data) if len(data) == UNIT_SIZE else None

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the next file."""
        per_file = self.file_size // UNIT_SIZE
        return queue_offset + per_file - queue_offset % per_file

    def _read(self, position: int, size: int, read: ReadUnits | None = None) -> bytes:
        start = position - position % self.file_size
        path = self._paths.get(start)
        if path is None:
            return b""
        if read is None or self._recent(position):
            return self._open.get(path).pread(size, position - start)
        return read(self._open, path, position - start, size)

    def _recent(self, position: int) -> bool:
        return position >= self.begun and self.tail_position - position <= RECENT_BYTES

    # ── To the files ──

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of units that are only in memory."""
        return self.end_offset * UNIT_SIZE - self.written

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of written units that a power cut may take."""
        return self.written - self.synced

    def take_writes(self) -> list[TailWrite]:
        """What must be written for everything added so far, one piece per file, in order."""
        pieces = []
        position, end = self.written, self.end_offset * UNIT_SIZE
        while position < end:
            start = file_start(position, self.file_size)
            stop = min(end, start + self.file_size)
            at = position - self.tail_position
            data = bytes(self.tail[at : at + stop - position])
            creates = start not in self._paths
            path = self.directory / segment_name(start) if creates else self._paths[start]
            pieces.append(TailWrite(self, path, position - start, data, creates, stop))
            position = stop
        return pieces

    def mark_written(self, write: TailWrite) -> None:
        """The piece is in its file; all but the last written units leave the memory."""
        self.written = write.end
        if write.creates:
            self._paths[write.end - len(write.data) - write.position] = write.path
        surplus = self.written - KEEP_BYTES - self.tail_position
        if surplus > 0:
            del self.tail[:surplus]
            self.tail_position += surplus

    def unsynced_paths(self) -> list[Path]:
        """Files with written bytes that were never synced."""
        first = file_start(self.synced, self.file_size)
        return [path for start, path in self._paths.items() if first <= start < self.written]

    def mark_synced(self, position: int) -> None:
        """Everything written before this byte is on disk."""
        self.synced = max(self.synced, position)

    # ── Start ──

    def recover(self, *, scan: bool) -> None:
        """Find the end: by halving after a clean stop, unit by unit (`scan`) after a crash.

        With `scan`, what lies behind the first invalid unit is zeroed; files behind it and files
        without a unit are removed. Source: store format §5.3. Raises: OSError.
        """
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
        """Find the ends after a crash, knowing what was safe; looks at no more than what was not.

        Units of messages before byte `synced` of the log are on disk, those before `written` are in
        the files; both are believed. What comes behind goes, and what lies in between is looked at
        and will be written and synced again. Raises: OSError.
        """
        if self._is_whole(synced, min_physical_offset):
            return
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

    def _is_whole(self, physical_offset: int, min_physical_offset: int) -> bool:
        """The quick way: one file, read once, with nothing behind the first byte of the log, and
        nothing in front of the second.

        Most queues are so when there are many. The ends are settled then. Raises: OSError.
        """
        if len(self._paths) != 1:
            return False
        [(start, path)] = self._paths.items()
        if self._sizes.get(start, self.file_size) != self.file_size:
            return False
        with self._disk.open(path, writable=False) as handle:
            [*ranges] = handle.data_ranges(0, self.file_size)
            if not ranges or ranges[-1][1] > CHUNK_BYTES:
                return False
            units = handle.pread(ranges[-1][1], 0)
        end = -(-len(units.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE
        if not UNIT_SIZE <= end <= len(units):
            return False
        first, size, _ = UNIT.unpack_from(units)
        if is_blank(first, size) or first < min_physical_offset:
            return False
        last, size, _ = UNIT.unpack_from(units, end - UNIT_SIZE)
        if size <= 0 or last >= physical_offset:
            return False
        end += start
        self.min_offset = start // UNIT_SIZE
        self.end_offset = self.next_offset = end // UNIT_SIZE
        self.written = self.synced = self.tail_position = self.begun = end
        self.max_physical_offset = last + size
        return True

    def _units_before(self, queue_offset: int, physical_offset: int) -> bytes:
        """The valid units from there on, in one piece, of messages before that byte of the log."""
        found = bytearray()
        last = -1
        while units := self.units(queue_offset, CHUNK_BYTES // UNIT_SIZE):
            for index, (physical, size, _) in enumerate(_iter_units(units)):
                if not last < physical < physical_offset or size <= 0:
                    return bytes(found + units[: index * UNIT_SIZE])
                last = physical
            found += units
            queue_offset += len(units) // UNIT_SIZE
        return bytes(found)

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
        """Bytes of valid units at the begin of a file, all of them in one piece."""
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
        self._remove_files_from(end)
        zeroed = zero and self._paths and end % self.file_size and self._zero(end)
        if self._only_blanks(end):
            self._remove_files_from(0)
        self.end_offset = self.next_offset = end // UNIT_SIZE
        first = next(iter(self._paths), end)
        self.min_offset = max(min(self.min_offset, self.end_offset), first // UNIT_SIZE)
        self.written = self.synced = self.tail_position = self.begun = end
        if zeroed and self._paths:
            # So that the next sync takes the zeros with it.
            self.synced -= UNIT_SIZE
        self.tail = bytearray()
        self.max_physical_offset = self._last_message_end()

    def _only_blanks(self, end: int) -> bool:
        """Whether there is no message before `end`: blanks alone look like one to other brokers."""
        last = self._read(end - UNIT_SIZE, UNIT_SIZE) if self._paths else b""
        return not last or last == BLANK

    def _last_message_end(self) -> int:
        last = self.unit(self.end_offset - 1)
        return -1 if last is None or is_blank(last[0], last[1]) else last[0] + last[1]

    def truncate(self, physical_offset: int) -> None:
        """Drop every unit of a message at or behind this byte of the log.

        Units in memory must have been written. Source: store format §5.4. Raises: OSError.
        """
        if self.max_physical_offset <= physical_offset:
            return
        assert not self.unwritten_bytes, self
        self._end_at(self._first_at_or_after(physical_offset) * UNIT_SIZE, zero=True)

    def _first_at_or_after(self, physical_offset: int, low: int | None = None) -> int:
        """The first queue offset whose message lies there or later; the end when none does."""
        if low is None:
            low = next(iter(self._paths), self.min_offset * UNIT_SIZE) // UNIT_SIZE
        high = self.end_offset
        # Mostly it is the very first.
        middle = low
        while low < high:
            found = UNIT.unpack_from(self.units(middle, 1))
            # A power cut leaves holes where units were never synced: later than all others.
            if found[1] > 0 and (is_blank(found[0], found[1]) or found[0] < physical_offset):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """The first unit whose message is still in the log becomes the minimum.

        Never goes back. A queue without one becomes empty: min = max. Source: store format §5.5.
        """
        first = self._first_at_or_after(min_physical_offset)
        self.min_offset = max(self.min_offset, first)

    # ── While running: the search and the removal of files are for a thread ──

    def unit_search(self) -> UnitSearch:
        """What a thread needs to search the written units."""
        high = max(self.min_offset, self.written // UNIT_SIZE)
        return UnitSearch(dict(self._paths), self.file_size, self.min_offset, high)

    def raise_min_offset(self, first: int, searched: UnitSearch, min_physical_offset: int) -> None:
        """Take over what a search has found; units that were not written then are looked at here.

        Raises: OSError.
        """
        if first == searched.high:
            first = self._first_at_or_after(min_physical_offset, first)
        self.min_offset = max(self.min_offset, first)

    def take_expired(self) -> list[Path]:
        """Files in front of `min_offset` leave the queue, the oldest first; they stay on disk.

        Never the last one, and none that a sync still has to open.
        """
        limit = min(self.min_offset * UNIT_SIZE, self.synced) - self.file_size
        return self._take([start for start in list(self._paths)[:-1] if start <= limit])

    def take_all(self) -> list[Path]:
        """Every file leaves the queue, which must not be used any more; they stay on disk."""
        return self._take(list(self._paths))

    def destroy(self) -> None:
        """Remove all files and forget all units. Raises: OSError."""
        self._remove_files_from(0)
        self.min_offset = 0
        self._end_at(0, zero=False)
