"""The timer log: a unit per timer, appended in memory, written to its files by each save.

Files are sparse and written through the descriptor, so a full disk is an error and nothing worse.
Unwritten units are read from memory, the rest like other data that may be on disk.

Invariant: `synced` ≤ `written` ≤ `end`; units never span files. Source: store format §1.1, §1.8.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.files.mapped_file_queue import MappedFileQueue
from aerobee.store.format.names import CONFIG, TIMER_CHECK, TIMER_LOG, TIMER_WHEEL
from aerobee.store.format.timer import TIMER, TIMER_UNIT, TimerUnit, blank_of
from aerobee.store.timers.timer_chain import ChainUnits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.open_files import OpenFiles

    ReadLog = Callable[[OpenFiles, MappedFile, int, int], memoryview]

UNIT_BYTES: Final = TIMER_UNIT.size
BLANK_ROOM: Final = 16
BLOCK_BYTES: Final = 1_260 * UNIT_BYTES
"""The size of a read, just under 64 KiB: units of one second are often adjacent."""
PREVIOUS_AT: Final = TIMER_UNIT.offset["previous"]
PREVIOUS_BYTES: Final = 8
_read_unit = TIMER_UNIT.unpack_from


class UnitsToWrite(NamedTuple):
    """Units to be written by a save: taken in the loop, written in a thread."""

    position: int
    data: bytes


class TimerLog:
    """Units by position. For the loop, but for `write` and `sync`."""

    __slots__ = ("_disk", "_known", "_tail", "end", "queue", "read_file", "synced", "written")

    def __init__(self, disk: Disk, directory: Path, file_bytes: int, read_file: ReadLog) -> None:
        """`read_file` reads bytes that may be on disk; it may raise NotInMemory."""
        self._disk = disk
        self.queue = MappedFileQueue(disk, directory, file_bytes, setting="mappedFileSizeTimerLog")
        self.read_file = read_file
        self._tail = bytearray()
        self._known = (0, b"")
        """The block that was read last, and its position."""
        self.written = 0
        self.end = 0
        self.synced = 0

    @property
    def begin(self) -> int:
        """The first position that still exists."""
        return self.queue.min_offset

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that are only in memory."""
        return self.end - self.written

    # ── Units ──

    def may_be_unit(self, position: int) -> bool:
        """Whether a unit can begin there, or could before the file was deleted. Hot."""
        at = position % self.queue.file_size
        fits = at % UNIT_BYTES == 0 and at <= self.queue.file_size - UNIT_BYTES - BLANK_ROOM
        return fits and 0 <= position <= self.end - UNIT_BYTES

    def append(self, unit: TimerUnit) -> int:
        """Append a unit; returns its position. Hot."""
        file_bytes = self.queue.file_size
        remaining = file_bytes - self.end % file_bytes
        if remaining < UNIT_BYTES + BLANK_ROOM:
            self._tail += blank_of(remaining) if remaining >= BLANK_ROOM else bytes(remaining)
            self.end += remaining
        position = self.end
        self._tail += TIMER_UNIT.pack(*unit)
        self.end = position + UNIT_BYTES
        return position

    def unit(self, position: int) -> TimerUnit | None:
        """The unit that begins there; None for any other position. Raises: NotInMemory, OSError."""
        if position < self.begin or not self.may_be_unit(position):
            return None
        start, data = self._block(position)
        unit = TimerUnit(*_read_unit(data, position - start))
        if unit.size != UNIT_BYTES or not unit.magic & TIMER or unit.previous >= position:
            return None
        return unit

    def chained(self, position: int, first: int, most: int) -> ChainUnits:
        """The unit there and those that it leads to, the newest first, down to `first`. Hot.

        At most those of one read: none only where no unit begins. Raises: NotInMemory, OSError.
        """
        positions: list[int] = []
        units: list[tuple[int, ...]] = []
        if position < self.begin:
            return ChainUnits(positions, units)
        start, data = self._block(position)
        low = max(start, first)
        may_be_unit = self.may_be_unit
        while position >= low and len(units) < most and may_be_unit(position):
            unit = _read_unit(data, position - start)
            size, previous, magic, *_ = unit
            if size != UNIT_BYTES or not magic & TIMER or previous >= position:
                break
            positions.append(position)
            units.append(unit)
            position = previous
        return ChainUnits(positions, units)

    def _block(self, position: int) -> tuple[int, bytes | bytearray]:
        """Bytes with the unit that may begin there, and the position of the first."""
        start, data = self._known
        if 0 <= position - start <= len(data) - UNIT_BYTES:
            return self._known
        if position >= self.written:
            return self.written, self._tail
        file = self.queue.find(position)
        assert file is not None, position
        at = (position - file.start) // BLOCK_BYTES * BLOCK_BYTES
        size = min(BLOCK_BYTES, file.size - at, self.written - file.start - at)
        data = bytes(self.read_file(self.queue.open_files, file, at, size))
        self._known = file.start + at, data
        return self._known

    def units(self, begin: int) -> Iterator[tuple[int, TimerUnit]]:
        """All units from that position on. Raises: NotInMemory, OSError."""
        position = begin
        while position < self.end:
            unit = self.unit(position)
            if unit is None:
                # The blank, or an invalid unit: continue with the next file.
                position += self.queue.file_size - position % self.queue.file_size
            else:
                yield position, unit
                position += UNIT_BYTES

    def newest(self, most: int) -> Iterator[TimerUnit]:
        """The last units of the last file. Raises: NotInMemory, OSError."""
        start = self.end - self.end % self.queue.file_size
        for position in range(max(start, self.end - most * UNIT_BYTES), self.end, UNIT_BYTES):
            if (unit := self.unit(position)) is not None:
                yield unit

    def last_unit(self) -> TimerUnit | None:
        """The newest one; None when there is none. Raises: NotInMemory, OSError."""
        position = self.end - UNIT_BYTES
        if self.end and not self.end % self.queue.file_size:
            position = self._last_of(self.end - self.queue.file_size)
        return self.unit(position)

    def _last_of(self, start: int) -> int:
        """Where the last unit of a full file stands."""
        room = (self.queue.file_size - BLANK_ROOM) // UNIT_BYTES
        return start + (room - 1) * UNIT_BYTES

    # ── The files ──

    def load(self) -> None:
        """Load the files, all of them counted as full; `cut` follows.

        Raises: StoreDamaged naming a file that does not belong here, OSError.
        """
        self.queue.load()
        for file, following in pairwise(self.queue.files):
            if file.end != following.start:
                raise StoreDamaged(
                    f"{self.queue.path_of(file.end)} is missing: restore it from a copy, or move "
                    f"{TIMER_LOG}, {TIMER_WHEEL} and {CONFIG}/{TIMER_CHECK} away, and all timers "
                    "are read from the log again, those that were delivered too"
                )
        self._set_end(self.queue.max_offset)

    def cut(self, end: int) -> None:
        """Make `end` the end: what follows is zeroed. Raises: OSError."""
        end = max(self.begin, min(end, self.queue.max_offset))
        end -= end % self.queue.file_size % UNIT_BYTES
        if self.queue.files:
            self.queue.truncate(end)
            self.queue.zero_tail()
        self._set_end(end)

    def _set_end(self, end: int) -> None:
        self._tail = bytearray()
        self._known = (0, b"")
        self.written = self.end = self.synced = end

    def take_unwritten(self) -> UnitsToWrite:
        """Everything that is only in memory, copied."""
        for file in self.queue.files[:-1]:
            if file.end <= self.synced:
                file.close_handle()
        if self.queue.last is not None:
            # Here, because two threads would open it twice.
            self.queue.last.open()
        return UnitsToWrite(self.written, bytes(self._tail))

    def write(self, units: UnitsToWrite) -> list[MappedFile]:
        """Write them to their files; returns the new files. For a thread. Raises: OSError."""
        made: list[MappedFile] = []
        try:
            self._write(units.position, memoryview(units.data), made)
        except OSError:
            # The next save creates them again.
            for file in made:
                file.close()
            raise
        return made

    def _write(self, position: int, rest: memoryview, made: list[MappedFile]) -> None:
        while rest:
            file = next((f for f in made if f.end > position), None) or self.queue.find(position)
            if file is None:
                file = self._make(position - position % self.queue.file_size)
                made.append(file)
            piece = rest[: file.end - position]
            file.open().pwrite(piece, position - file.start)
            position += len(piece)
            rest = rest[len(piece) :]

    def _make(self, start: int) -> MappedFile:
        directory, size = self.queue.directory, self.queue.file_size
        self._disk.mkdir(directory)
        path = self.queue.path_of(start)
        handle = self._disk.create(path, size)
        return MappedFile(self._disk, path, start, size, used=size, handle=handle)

    def take_over(self, units: UnitsToWrite, made: list[MappedFile]) -> None:
        """Record that they are in their files."""
        for file in made:
            self.queue.add(file)
        self.written = units.position + len(units.data)
        # A new object, because a walk may use the old one.
        self._tail = self._tail[len(units.data) :]
        self._known = (0, b"")

    def sync(self, begin: int, end: int) -> None:
        """Sync the files with these bytes, names included. For a thread. Raises: OSError."""
        files = [f for f in self.queue.files if f.start < end and f.end > begin]
        if files and any(file.start >= begin for file in files):
            self._disk.sync_directory(self.queue.directory)
        for file in files:
            file.sync()

    def expired(self, min_physical_offset: int) -> MappedFile | None:
        """The first file, if the log has no record of its newest unit any more. It is not removed.

        Raises: NotInMemory, OSError.
        """
        files = self.queue.files
        if len(files) < 2 or files[0].end > self.synced:
            return None
        unit = self.unit(self._last_of(files[0].start))
        gone = unit is None or unit.physical_offset < min_physical_offset
        return files[0] if gone else None

    def relink(self, links: Sequence[tuple[int, int]]) -> None:
        """Link units to others in front of them, or to none, durably; no save may run.

        `links` are pairs of positions, the one in front first. For a thread. Raises: OSError.
        """
        changed: dict[MappedFile, None] = {}
        for previous, position in links:
            data = previous.to_bytes(PREVIOUS_BYTES, "big", signed=True)
            at = position + PREVIOUS_AT
            if position >= self.written:
                at -= self.written
                self._tail[at : at + PREVIOUS_BYTES] = data
                continue
            file = self.queue.find(position)
            if file is not None:
                # Otherwise it was deleted meanwhile, as were the messages of its units.
                file.open().pwrite(data, at - file.start)
                changed[file] = None
        self._known = (0, b"")
        for file in changed:
            file.sync()

    def drop_first(self) -> None:
        """Remove the first file, which was deleted from the disk."""
        self._known = (0, b"")
        self.queue.take_first().close()

    def close(self) -> None:
        """Close the files."""
        self.queue.close()
