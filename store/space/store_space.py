"""Disk space: the part of the store that allocates and deletes.

Allocation and read-ahead of segments, the watch over the disks, the clean-up of log and queues, and
the reserve are wired here, so that the flag DISK_FULL has one owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.files.local_time import local_hour
from aerobee.store.flags import Flag
from aerobee.store.format.names import ARCHIVE, CONFIG, CONSUME_QUEUE, INDEX, TIMER_LOG
from aerobee.store.log.allocate import Allocator
from aerobee.store.log.unmap import unmap_behind
from aerobee.store.log.warm import Warmer
from aerobee.store.space.archive_marks import ArchiveMarks
from aerobee.store.space.cleanup import Cleanup, CleanupHooks
from aerobee.store.space.cleanup_queues import QueueCleanup
from aerobee.store.space.reserve_file import Reserves, reserve_bytes
from aerobee.store.space.watermark import DiskWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.flags import RunningFlags
    from aerobee.store.shared import Contents, Runtime
    from aerobee.store.space.cleanup_queues import Follower

log = structlog.get_logger(__name__)


BELOW = (CONSUME_QUEUE, INDEX, CONFIG, TIMER_LOG)
"""The directories below the root that may be on disks of their own."""


class StoreSpace:
    """Allocation, clean-up, and the state of the disks."""

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        runtime: Runtime,
        flags: RunningFlags,
        *,
        root: Path,
        followers: Sequence[Follower],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """`followers` are called with the begin of the log, `on_failed` with a failed sync:
        final.
        """
        commit_log, disk = contents.commit_log, runtime.disk
        self._log = commit_log
        self._disk = disk
        self._flags = flags
        self.watch = DiskWatch(
            config,
            disk,
            commit_log.queue.directory,
            root,
            *(root / name for name in BELOW),
            on_change=self._set_disk_full,
        )
        self.allocator = Allocator(
            commit_log,
            disk,
            runtime.stats,
            on_missing=self.watch.no_segment,
            on_recovered=self.watch.segment_again,
        )
        self.warmer = Warmer(config, commit_log, disk)
        self.queues = QueueCleanup(config, contents, runtime, followers)
        self.cleanup = Cleanup(
            config,
            contents,
            self.queues,
            self.watch,
            ArchiveMarks(disk, root / ARCHIVE),
            runtime,
            CleanupHooks(local_hour, self._after_pass, on_failed),
        )
        self.reserve = Reserves(disk, root, reserve_bytes(config.mapped_file_size_commit_log_bytes))

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply settings that may change while running."""
        for part in (self.watch, self.warmer, self.queues, self.cleanup):
            part.config = config

    async def run(self) -> None:
        """Allocation, read-ahead, unmapping and clean-up, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.allocator.run)
            nursery.start_soon(self.warmer.run)
            nursery.start_soon(unmap_behind, self._log, self._disk)
            nursery.start_soon(self.cleanup.run)

    def age_ms(self, moment_ms: int) -> int:
        """How long ago a time of the wall clock was, without the time that the clock skipped."""
        return self.cleanup.age_ms(moment_ms)

    def close(self) -> None:
        """Close deleted segments that readers still had, and the reserve."""
        self.cleanup.close()
        self._disk.descriptors.release()

    async def make_room(self) -> None:
        """Free what a stop needs no more, for its small writes.

        That is the segment that was made ahead, for nothing is put from now on, and the reserve of
        each disk that is full.
        """
        starved = self._log.queue.directory if self.watch.starved else None
        try:
            await self._disk.in_thread(self.allocator.end)
            given_up = await self._disk.in_thread(self.reserve.give_up, starved)
        except OSError as error:
            log.warning("store.reserve_failed", error=str(error))
            return
        for file in given_up:
            log.info("store.reserve_released", path=str(file.path), size_bytes=file.size)

    async def _after_pass(self) -> None:
        """After each check of the disks: tell those who wait for space."""
        watch, reserve = self.watch, self.reserve
        if watch.starved and watch.available_bytes > self.allocator.segment_bytes:
            self.allocator.retry()
        if reserve.size and not reserve.held and not watch.refusing:
            try:
                await self._disk.in_thread(reserve.hold)
            except OSError as error:
                log.warning("store.reserve_failed", error=str(error))

    def _set_disk_full(self, cause: str) -> None:
        if cause:
            self._flags.set(Flag.DISK_FULL, cause)
        else:
            self._flags.clear(Flag.DISK_FULL)
