"""Keeps the extents of consume queues on disk, so that a start need not look into each of them.

They are taken behind a thorough round of the queue flush, which has left everything on disk, and
written when many queues have none that holds: the few others are looked at in no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.store.queues.consume_queues import slices_of
from aerobee.store.queues.queue_extents import NO_EXTENTS, QueueExtents, QueueExtentsFile

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.queues.queue_extents import QueueExtent, TakeExtent

__all__ = ["FEW", "SHARE", "ExtentSaves", "lacks"]

log = structlog.get_logger(__name__)

FEW: Final = 64
"""So many queues, or …"""
SHARE: Final = 16
"""… this part of them may be without an extent that holds."""


class ExtentSaves:
    """The file of extents of one store."""

    def __init__(self, queues: ConsumeQueues, disk: Disk, path: Path) -> None:
        self._queues = queues
        self._disk = disk
        self._file = QueueExtentsFile(disk, path)
        self.crc = 0
        """The checksum of the file, which the recovery point names; 0 while none counts."""

    def load(self, crc: int) -> QueueExtents:
        """Those of the last run, whose last recovery point names this checksum. Raises: OSError."""
        extents = self._file.load(crc)
        self.crc = 0 if extents is NO_EXTENTS else crc
        return extents

    async def save(self) -> bool:
        """Bring the file up to date if that is worth it; nothing is written to queue files now.

        Whether it did: then the next recovery point counts. A start that finds none looks into the
        queues: nothing is lost without it.
        """
        queues = self._queues.all()
        wanted: list[ConsumeQueue] = []
        for some in slices_of(queues):
            wanted += [queue for queue in some if lacks(queue)]
            await trio.lowlevel.checkpoint()
        if len(wanted) <= max(FEW, len(queues) // SHARE):
            return False
        try:
            await self._save(queues, wanted)
        except OSError as error:
            log.warning("flush.delayed", file="queueextents", error=str(error))
            return False
        return True

    async def _save(self, queues: list[ConsumeQueue], wanted: list[ConsumeQueue]) -> None:
        for some in slices_of(wanted):
            found = [(queue, queue.take_extent()) for queue in some]
            takes = [(queue, take) for queue, take in found if take is not None]
            extents = await self._disk.in_thread(self._take, [take for _, take in takes])
            for (queue, _), extent in zip(takes, extents, strict=True):
                queue.extent = extent
        topics: dict[str, list[QueueExtent]] = {}
        for some in slices_of(queues):
            for queue in some:
                if queue.extent is not None:
                    topics.setdefault(queue.topic, []).append(queue.extent)
            await trio.lowlevel.checkpoint()
        self.crc = await self._disk.in_thread(self._write, topics)

    def _take(self, takes: list[TakeExtent]) -> list[QueueExtent | None]:
        """For a thread. Raises: OSError."""
        return [take(self._disk) for take in takes]

    def _write(self, topics: dict[str, list[QueueExtent]]) -> int:
        """For a thread. Raises: OSError."""
        return self._file.write(QueueExtents(self._queues.file_size, topics))


def lacks(queue: ConsumeQueue) -> bool:
    """Whether a queue could have an extent and has none, or one that begins elsewhere."""
    extent = queue.extent
    if extent is not None:
        return extent.min_offset != queue.min_offset
    return queue.synced > 0 and not queue.stopped
