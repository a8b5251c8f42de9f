"""One consume queue: units of 20 bytes that locate the messages of a queue in the log.

New units are in memory, where readers see them at once; the flush service writes them to the files.
A crash loses units in memory: recovery builds them again from the log. Files are sparse and created
together with their first unit, since an all-zero file is one phantom message to other brokers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.names import file_start, segment_name
from aerobee.store.format.queue_reader import Queue
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE
from aerobee.store.queues.queue_extents import take_extent
from aerobee.store.queues.queue_units import QueueUnits
from aerobee.store.queues.unit_search import UnitSearch
from aerobee.store.results import UnitStatus

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.queues.queue_extents import TakeExtent

KEEP_BYTES = 4_000
"""Written units that stay in memory, so that readers at the end never read the disk."""

_pack = UNIT.pack
ADDED = UnitStatus.ADDED
REPEATED = UnitStatus.REPEATED
GAP = UnitStatus.GAP


class TailWrite(NamedTuple):
    """Units to be written to one file: what a thread needs, and nothing that the loop may
    change.
    """

    queue: ConsumeQueue
    path: Path
    position: int
    """Of the first unit, within the file, in bytes."""
    data: bytes
    creates: bool
    end: int
    """The value of `written` after it."""

    def blanks(self) -> bytes:
        """The filling of a new file in front of its first unit (fillPreBlank)."""
        return BLANK * (self.position // UNIT_SIZE) if self.creates else b""


class ConsumeQueue(QueueUnits):
    """Units of (topic, queue id). Source: store format §1.3, §4, §5.3 (ConsumeQueue)."""

    # ── Adding ──

    def append(
        self, queue_offset: int, physical_offset: int, size: int, tags_code: int
    ) -> UnitStatus:
        """Add the unit of one message at the end; readers see it at once. Hot.

        Repeated ones are ignored, by physical offset and by queue offset. With a gap nothing is
        added: a unit of the wrong message would be worse.
        """
        end = physical_offset + size
        if queue_offset != self.end_offset or end <= self.max_physical_offset:
            return self._append_unexpected(queue_offset, physical_offset, size, tags_code)
        self.tail += _pack(physical_offset, size, tags_code)
        self.max_physical_offset = end
        self.end_offset = queue_offset + 1
        return ADDED

    def extend(self, queue_offset: int, physical_offset: int, end: int, units: bytes) -> bool:
        """Add the units of messages that lie side by side in the log, up to `end`. Hot.

        False, and nothing is added: they are not the next ones, and must be added one by one.
        """
        if queue_offset != self.end_offset or physical_offset < self.max_physical_offset:
            return False
        self.tail += units
        self.max_physical_offset = end
        self.end_offset = queue_offset + len(units) // UNIT_SIZE
        return True

    def _append_unexpected(
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
        """Set the number of the first message of this queue, which has no message and no file."""
        self.min_offset = self.end_offset = queue_offset
        self.next_offset = max(self.next_offset, queue_offset)
        self.written = self.synced = self.tail_position = queue_offset * UNIT_SIZE
        self.begun = self.written

    def end_before(self, physical_offset: int) -> int:
        """Its end when the log was dispatched up to there; 0 before its first message.

        Units added since may not have been written.
        """
        if self.max_physical_offset <= physical_offset:
            return self.end_offset if self.max_physical_offset >= 0 else 0
        written = self.written // UNIT_SIZE
        end = self._first_at_or_after(physical_offset, written)
        return end if end > written or self._paths else 0

    # ── To the files ──

    def take_writes(self) -> list[TailWrite]:
        """The writes for all units in memory, one per file, in order."""
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
        """Record that a write is done; all but the last written units are dropped from memory."""
        self.written = write.end
        self.extent = None
        if write.creates:
            self.named = False
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
        """Everything written before this byte is on disk, and so are the names of its files."""
        self.synced = max(self.synced, position)
        self.named = True

    def take_extent(self) -> TakeExtent | None:
        """The values that a thread needs to take its extent; None unless one file has all of it,
        and room.
        """
        end = self.end_offset * UNIT_SIZE
        if not self.synced == self.written == end or len(self._paths) != 1:
            return None
        if self.min_offset == self.end_offset or not end % self.file_size or self.stopped:
            return None
        [(start, path)] = self._paths.items()
        ends = self.min_offset, self.end_offset, self.max_physical_offset
        return partial(take_extent, path, start, ends, self.queue_id)

    # ── While running: the search and the removal of files are for a thread ──

    def unit_search(self) -> UnitSearch:
        """The values that a thread needs to search the written units."""
        high = max(self.min_offset, self.written // UNIT_SIZE)
        queue = Queue(
            self.topic, self.queue_id, str(self.directory), self.file_size, tuple(self._paths)
        )
        return UnitSearch(queue, self.min_offset, high)

    def raise_min_offset(self, first: int, searched: UnitSearch, min_physical_offset: int) -> None:
        """Apply the result of a search; units that were not written then are searched here.

        Raises: OSError.
        """
        if first == searched.high:
            first = self._first_at_or_after(min_physical_offset, first)
        self.min_offset = max(self.min_offset, first)

    def take_expired(self) -> list[Path]:
        """Remove the files before `min_offset` from the queue, the oldest first; they stay on disk.

        Never the last one, and none that a sync still has to open.
        """
        limit = min(self.min_offset * UNIT_SIZE, self.synced) - self.file_size
        return self._take([start for start in list(self._paths)[:-1] if start <= limit])

    def take_all(self) -> list[Path]:
        """Remove every file from the queue, which must not be used any more; they stay on disk."""
        return self._take(list(self._paths))
