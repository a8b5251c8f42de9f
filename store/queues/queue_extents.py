"""Extents of consume queues at their last sync, so that a start need not read each file.

An extent is valid as long as its file has the same length, inode and time of change (ctime), which
nobody can set back. So a queue that was written later is read as if it had no extent.
The file is ours alone, and valid only while the recovery point has its checksum: one that is
damaged, older or of another directory is ignored. A change just before the extent was taken could
be followed by another one with the same time, so such an extent is not trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from aerobee.store.format.unit import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.files.disk import Disk

    TakeExtent = Callable[[Disk], "QueueExtent | None"]

SAME_TIME_MS: Final = 50
"""File systems take their times from a clock that ticks every 10 ms or faster."""


class QueueExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue with one file, which has room for more, all of it on disk."""

    queue_id: int
    start: int
    """Of the file, in bytes of the queue."""
    min_offset: int
    end_offset: int
    max_physical_offset: int
    first_physical_offset: int
    """Of the message at `min_offset`."""
    inode: int
    """Of the file."""
    changed_ns: int
    """When the file changed last."""


def take_extent(
    path: Path, start: int, ends: tuple[int, int, int], queue_id: int, disk: Disk
) -> QueueExtent | None:
    """The extent of a queue whose file nobody writes; None without its first message.

    `ends` are the first and the last offset, and where the last message ends. For a thread.
    Raises: OSError.
    """
    _, inode, changed_ns = disk.identity(path)
    with disk.open(path, writable=False) as handle:
        first = handle.pread(UNIT_SIZE, ends[0] * UNIT_SIZE - start)
    if len(first) != UNIT_SIZE:
        return None
    return QueueExtent(queue_id, start, *ends, UNIT.unpack_from(first)[0], inode, changed_ns)


class QueueExtents(msgspec.Struct, frozen=True):
    """The extents of all queues that have one."""

    file_size: int
    topics: dict[str, list[QueueExtent]]


NO_EXTENTS: Final = QueueExtents(0, {})


class QueueExtentsFile:
    """Read at every start; written now and then, and by a clean stop. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self, crc: int) -> QueueExtents:
        """The extents with this checksum; none if the file has another. Raises: OSError."""
        if not crc or not self._disk.exists(self.path):
            return NO_EXTENTS
        data = self._disk.read(self.path)
        if crc32(data) != crc:
            return NO_EXTENTS
        try:
            extents = msgspec.json.decode(data, type=QueueExtents)
        except msgspec.DecodeError:
            # Of an earlier version.
            return NO_EXTENTS
        told_from_others_ns = (self._disk.mtime_ms(self.path) - SAME_TIME_MS) * 1_000_000
        topics = {
            topic: [queue for queue in queues if queue.changed_ns < told_from_others_ns]
            for topic, queues in extents.topics.items()
        }
        return msgspec.structs.replace(extents, topics=topics)

    def write(self, extents: QueueExtents) -> int:
        """Replace the file; returns the checksum. Raises: OSError."""
        # In pieces: encoding all of it at once would hold the GIL.
        pieces = [
            msgspec.json.encode(topic) + b":" + msgspec.json.encode(queues)
            for topic, queues in extents.topics.items()
        ]
        empty = msgspec.json.encode(msgspec.structs.replace(extents, topics={}))
        data = empty.removesuffix(b"}}") + b",".join(pieces) + b"}}"
        self._disk.write_atomically(self.path, data, backup=False)
        return crc32(data)
