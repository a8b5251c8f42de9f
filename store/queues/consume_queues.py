"""All consume queues: found by (topic, queue id), loaded, recovered and truncated together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from aerobee.store.files.open_files import OpenFiles
from aerobee.store.files.sync_thread import side_by_side
from aerobee.store.format.names import is_queue_name
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.queues.consume_queue import ConsumeQueue
from aerobee.store.queues.queue_extents import NO_EXTENTS
from aerobee.store.queues.unit_cache import UnitCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.queues.consume_queue import TailWrite
    from aerobee.store.queues.queue_extents import QueueExtents
    from aerobee.store.results import UnitStatus

log = structlog.get_logger(__name__)


SLICE = 500
"""Queues that are visited, or written, in one step: some 2 ms of the loop."""
WRITTEN_AGAIN = 64
"""The most queues that are written again before the end of a start."""


def slices_of(queues: list[ConsumeQueue]) -> Iterator[list[ConsumeQueue]]:
    """The queues in slices."""
    return (queues[at : at + SLICE] for at in range(0, len(queues), SLICE))


class UnsyncedFiles(NamedTuple):
    """Files with written bytes that were never synced, and directories with such names."""

    files: list[Path]
    directories: list[Path]


class ConsumeQueues:
    """The table of queues below one directory. Source: store format §1.1 (ConsumeQueueStore).

    All files have one size, as other brokers need it: that of existing files, else the configured
    one.
    """

    __slots__ = (
        *("_cache", "_disk", "_open", "directory", "file_size", "removed", "table", "unsynced"),
    )

    def __init__(self, disk: Disk, directory: Path, file_size: int) -> None:
        self._disk = disk
        self._open = OpenFiles(disk)
        self._cache = UnitCache()
        self.directory = directory
        self.file_size = -(-file_size // UNIT_SIZE) * UNIT_SIZE
        """Rounded up to whole units."""
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        self.removed = 0
        """Counts the queues that left the table: a sum of ends from before counts them as well."""
        self.unsynced: dict[ConsumeQueue, None] = {}
        """Queues with bytes in their files that were never synced."""

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message."""
        return self.table.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created in memory when it is new; its file is created with its first unit."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self._add(topic, queue_id, self.directory / topic / str(queue_id))
        return queue

    def _add(self, topic: str, queue_id: int, directory: Path) -> ConsumeQueue:
        queue = ConsumeQueue(
            topic, queue_id, directory, self.file_size, self._disk, self._open, self._cache
        )
        self.table[topic, queue_id] = queue
        return queue

    def put(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
    ) -> UnitStatus:
        """Add the unit of one message found in the log."""
        queue = self.obtain(topic, queue_id)
        status = queue.append(queue_offset, physical_offset, size, tags_code)
        queue.next_offset = max(queue.next_offset, queue.end_offset)
        return status

    # ── Start ──

    def load(self, extents: QueueExtents = NO_EXTENTS) -> None:
        """Load the existing queues; plain files and names that are not numbers are ignored.

        Queues with a valid extent are not read. Raises: OSError.
        """
        disk = self._disk
        sizes: Counter[int] = Counter()
        for topic in disk.folders(self.directory):
            known = {extent.queue_id: extent for extent in extents.topics.get(topic, ())}
            folder = self.directory / topic
            for name in disk.folders(folder):
                if not is_queue_name(name):
                    continue
                queue = self._add(topic, int(name), folder / name)
                extent = known.get(queue.queue_id)
                if extent is not None and queue.holds(extent, extents.file_size):
                    sizes[extents.file_size] += 1
                else:
                    sizes.update(queue.load())
        self._agree_on_size(sizes)
        if self.file_size != extents.file_size:
            self.doubt()

    def doubt(self) -> None:
        """Read every queue at its recovery, whatever its extent says. Raises: OSError."""
        for queue in self.table.values():
            queue.doubt()

    def _agree_on_size(self, sizes: Counter[int]) -> None:
        """Take the size that most files have; others are damaged and built again."""
        whole = {size: count for size, count in sizes.items() if size and not size % UNIT_SIZE}
        if not whole:
            return
        usual = max(whole, key=lambda size: (whole[size], size == self.file_size, size))
        if usual != self.file_size:
            log.warning(
                "store.size_kept",
                setting="mappedFileSizeConsumeQueue",
                path=str(self.directory),
                file_bytes=usual,
                configured_bytes=self.file_size,
            )
            self.file_size = usual
            for queue in self.table.values():
                queue.file_size = usual

    def recover(self, *, scan: bool) -> None:
        """Find the end of every queue; see `ConsumeQueue.recover`. Raises: OSError."""
        for queue in self.table.values():
            queue.recover(scan=scan)
            queue.named = not scan and bool(queue.files)
            if queue.unsynced_bytes:
                # A cut leaves zeros that the next sync has to include.
                self.unsynced[queue] = None

    def recover_from(
        self, synced: int, written: int, min_physical_offset: int, *, killed: bool
    ) -> None:
        """Find all ends after a crash, when it is known what was safe; then the first offsets.

        Not `killed`: a file may have lost written data without a new time of change. See
        `ConsumeQueue.recover_from`. Raises: OSError.
        """
        if not killed:
            self.doubt()
        for queue in self.table.values():
            queue.recover_from(synced, written, min_physical_offset)

    @property
    def units(self) -> int:
        """The sum of the ends of all queues that have a message.

        A queue that lost all its messages keeps its numbers in memory only, and does not count.
        """
        return sum(
            queue.end_offset for queue in self.table.values() if queue.max_physical_offset >= 0
        )

    def max_physical_offset(self) -> int:
        """How far into the log the units of all queues reach; −1 without any."""
        return max((queue.max_physical_offset for queue in self.table.values()), default=-1)

    @property
    def unwritten_count(self) -> int:
        """How many queues have units that are only in memory, or are to be written again."""
        return sum(queue.unwritten_bytes > 0 for queue in self.table.values())

    @property
    def unsafe_count(self) -> int:
        """How many queues have units that a power cut may take."""
        return sum(queue.unsafe_bytes > 0 for queue in self.table.values())

    def write_in_front_of(self, physical_offset: int, *, again: bool) -> None:
        """Write the units that the walk up to there has found, and with `again` those that were in
        files.

        Few queues are written at once; thousands can wait until the broker serves. Raises: OSError.
        """
        again = again or self.unwritten_count <= WRITTEN_AGAIN
        writes = self.unwritten(
            queue
            for queue in self.table.values()
            if again or queue.has_news or queue.max_physical_offset > physical_offset
        )
        self.write(writes)
        self.mark_written(writes)

    def truncate(self, physical_offset: int) -> None:
        """Drop every unit of a message at or behind this byte of the log. Raises: OSError."""
        for queue in self.table.values():
            queue.truncate(physical_offset)
        # A cut leaves zeros that the next sync has to include.
        self.unsynced = {queue: None for queue in self.table.values() if queue.unsynced_bytes}

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Adjust the min offsets after the log lost its oldest segments. Raises: OSError."""
        for queue in self.table.values():
            if queue.begins_before(min_physical_offset):
                queue.correct_min_offset(min_physical_offset)

    def destroy(self) -> None:
        """Remove every file of every queue: the log has none of their messages. Raises: OSError."""
        for queue in self.table.values():
            queue.destroy()

    def take_out(self, topic: str, queue_id: int) -> None:
        """Take a queue out of the table; its files are the caller's to remove."""
        del self.table[topic, queue_id]
        self.removed += 1

    def drop(self, topic: str, queue_id: int) -> None:
        """Remove a queue and its files during a start. Raises: OSError."""
        queue = self.table.pop((topic, queue_id))
        self.unsynced.pop(queue, None)
        queue.destroy()

    # ── To the files ──

    def all(self) -> list[ConsumeQueue]:
        """Every queue there is now."""
        return list(self.table.values())

    def slices(self) -> Iterator[list[ConsumeQueue]]:
        """Every queue, in slices."""
        return slices_of(self.all())

    def unwritten(self, queues: Iterable[ConsumeQueue] | None = None) -> list[TailWrite]:
        """The writes for units in memory, of these queues or of all, queue by queue."""
        return [
            write
            for queue in (self.all() if queues is None else queues)
            if queue.end_offset * UNIT_SIZE != queue.written
            for write in queue.take_writes()
        ]

    def write(self, writes: Iterable[TailWrite]) -> None:
        """Write units to their files. For a thread. Raises: OSError; it can be repeated."""
        new: dict[ConsumeQueue, list[TailWrite]] = {}
        for write in writes:
            if write.creates:
                new.setdefault(write.queue, []).append(write)
                continue
            # Nothing waits for the disk here, so more threads would only wait for each other.
            with self._disk.open(write.path) as handle:
                handle.pwrite(write.data, write.position)
        side_by_side(self._create, list(new.values()))

    def _create(self, writes: list[TailWrite]) -> None:
        """Make the new files of one queue, in order."""
        self._disk.mkdir(writes[0].path.parent, sync=False)
        for write in writes:
            units = write.blanks() + write.data
            # An all-zero file after a power cut would be one message to other brokers.
            self._disk.create(write.path, self.file_size, units, sync=True).close()

    def unsynced_of(self, queues: Iterable[ConsumeQueue]) -> UnsyncedFiles:
        """The files that a sync of these queues has to reach."""
        files: list[Path] = []
        directories: dict[Path, None] = {}
        for queue in queues:
            files += (paths := queue.unsynced_paths())
            if paths and not queue.named:
                topic = queue.directory.parent
                directories |= {queue.directory: None, topic: None, self.directory: None}
        return UnsyncedFiles(files, list(directories))

    def sync(self, unsynced: UnsyncedFiles) -> None:
        """Make files and their names durable. For a thread. Raises: OSError."""
        side_by_side(self._sync_file, unsynced.files)
        side_by_side(self._disk.sync_directory, unsynced.directories)

    def _sync_file(self, path: Path) -> None:
        with self._disk.open(path) as handle:
            self._disk.sync(handle)

    def write_all(self, *, sync: bool) -> None:
        """Write, and with `sync` make durable, everything, blocking. Raises: OSError."""
        writes = self.unwritten()
        self.write(writes)
        self.mark_written(writes)
        if sync:
            behind = [queue for queue in self.table.values() if queue.unsynced_bytes]
            self.sync(self.unsynced_of(behind))
            self.mark_synced((queue, queue.written) for queue in behind)

    def mark_written(self, writes: Iterable[TailWrite]) -> None:
        """Record that these are in their files."""
        for write in writes:
            write.queue.mark_written(write)
            self.unsynced[write.queue] = None

    def mark_synced(self, ends: Iterable[tuple[ConsumeQueue, int]]) -> None:
        """Record that these queues are on disk up to there, in bytes."""
        for queue, position in ends:
            queue.mark_synced(position)
            if not queue.unsynced_bytes:
                self.unsynced.pop(queue, None)

    def close(self) -> None:
        """Close handles for reading."""
        self._open.close()
