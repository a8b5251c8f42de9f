"""Saves the extents of consume queues, so that a start need not read each queue.

They are taken after a thorough round of the queue flush, when everything is on disk, and written
when many queues have no valid one: the few others are read quickly at a start.
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

log = structlog.get_logger(__name__)

FEW: Final = 64
"""The save happens with so many queues without a valid extent, or …"""
SHARE: Final = 16
"""… with this share of all queues."""


class ExtentSaves:
    """The file of extents of one store."""

    def __init__(self, queues: ConsumeQueues, disk: Disk, path: Path) -> None:
        self._queues = queues
        self._disk = disk
        self._file = QueueExtentsFile(disk, path)
        self.crc = 0
        """The checksum of the file, which the recovery point has; 0 while none is valid."""

    def load(self, crc: int) -> QueueExtents:
        """The extents of the last run, if its last recovery point has this checksum. Raises:
        OSError.
        """
        extents = self._file.load(crc)
        self.crc = 0 if extents is NO_EXTENTS else crc
        return extents

    async def save(self) -> bool:
        """Update the file if that is worth it; no queue files are written meanwhile.

        Returns whether it did: then the next recovery point is needed. Without it a start reads the
        queues, and nothing is lost.
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
            pairs = [(queue, queue.take_extent()) for queue in some]
            takes = [(queue, take) for queue, take in pairs if take is not None]
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
        """Runs in a thread. Raises: OSError."""
        return [take(self._disk) for take in takes]

    def _write(self, topics: dict[str, list[QueueExtent]]) -> int:
        """Runs in a thread. Raises: OSError."""
        return self._file.write(QueueExtents(self._queues.file_size, topics))


def lacks(queue: ConsumeQueue) -> bool:
    """Whether a queue could have an extent and has none, or an outdated one."""
    extent = queue.extent
    if extent is not None:
        return extent.min_offset != queue.min_offset
    return queue.synced > 0 and not queue.stopped
