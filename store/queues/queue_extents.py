"""What consume queues reached when they were synced last, so that a start need not read each file.

An extent holds as long as its file is the one that it was taken of: of the same length, and not
changed since, as the file system's own time of change says, which nobody can set back. So a queue
that was written later, by whomever, is looked at as if nothing were known of it. The file is ours
alone; it says nothing when another broker was here since, or when it does not fit its CRC. What
changed only just before it was written could have changed again within the same time, and is not
believed.
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

__all__ = ["NO_EXTENTS", "QueueExtent", "QueueExtents", "QueueExtentsFile", "take_extent"]

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
    changed_ns: int
    """When the file changed last."""


def take_extent(
    path: Path, start: int, ends: tuple[int, int, int], queue_id: int, disk: Disk
) -> QueueExtent | None:
    """The extent of a queue to whose file nobody writes; None for one without its first message.

    `ends` are the first and the last offset, and where the last message ends. For a thread.
    Raises: OSError.
    """
    _, changed_ns = disk.size_and_change(path)
    with disk.open(path, writable=False) as handle:
        first = handle.pread(UNIT_SIZE, ends[0] * UNIT_SIZE - start)
    if len(first) != UNIT_SIZE:
        return None
    return QueueExtent(queue_id, start, *ends, UNIT.unpack_from(first)[0], changed_ns)


class QueueExtents(msgspec.Struct, frozen=True):
    """Of all queues that have one."""

    owner: str
    """What the lock file says while no other broker was here since."""
    file_size: int
    topics: dict[str, list[QueueExtent]]


NO_EXTENTS: Final = QueueExtents("", 0, {})


class _Document(msgspec.Struct):
    """The file: JSON, and what it must amount to."""

    crc: int
    extents: msgspec.Raw


class QueueExtentsFile:
    """Read at every start; written now and then, and by a clean stop. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self, owner: str) -> QueueExtents:
        """What they are for this owner of the lock; none for another. Raises: OSError."""
        if not owner or not self._disk.exists(self.path):
            return NO_EXTENTS
        try:
            document = msgspec.json.decode(self._disk.read(self.path), type=_Document)
            if crc32(document.extents) != document.crc:
                return NO_EXTENTS
            extents = msgspec.json.decode(document.extents, type=QueueExtents)
        except msgspec.DecodeError:
            return NO_EXTENTS
        if extents.owner != owner:
            return NO_EXTENTS
        told_from_others_ns = (self._disk.mtime_ms(self.path) - SAME_TIME_MS) * 1_000_000
        topics = {
            topic: [one for one in queues if one.changed_ns < told_from_others_ns]
            for topic, queues in extents.topics.items()
        }
        return msgspec.structs.replace(extents, topics=topics)

    def write(self, extents: QueueExtents) -> None:
        """Replace them. Raises: OSError."""
        # Piece by piece: to encode it all at once would hold the interpreter.
        pieces = [
            msgspec.json.encode(topic) + b":" + msgspec.json.encode(queues)
            for topic, queues in extents.topics.items()
        ]
        empty = msgspec.json.encode(msgspec.structs.replace(extents, topics={}))
        body = empty.removesuffix(b"}}") + b",".join(pieces) + b"}}"
        data = b'{"crc":%d,"extents":%b}' % (crc32(body), body)
        self._disk.write_atomically(self.path, data, backup=False)
