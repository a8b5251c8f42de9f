"""When consume queues reach the disk, and the checkpoint that says so.

Units flow in from dispatch, into memory; a round writes them, syncs their files, then writes the
checkpoint. What cannot be written now is tried again; a sync that failed is final for the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.errors import SyncFailed
from aerobee.store.files.consume_queues import slices_of
from aerobee.store.services.flush import PAGE_BYTES, SLOW_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.checkpoint_file import CheckpointFile
    from aerobee.store.files.commit_log import CommitLog
    from aerobee.store.files.consume_queue import ConsumeQueue, TailWrite
    from aerobee.store.files.consume_queues import ConsumeQueues
    from aerobee.store.files.disk import Disk
    from aerobee.store.services.dispatch import Dispatcher
    from aerobee.store.services.flush import LogFlush
    from aerobee.store.services.recovery_points import RecoveryPoints, Taken
    from aerobee.store.stats import StoreStats

__all__ = ["QueueFlush"]

UNWRITTEN_UNITS_MAX = 200_000
"""Units in memory that start a round before its time."""
WRITE_TRIES = 30

log = structlog.get_logger(__name__)


class QueueFlush:
    """Writes consume queues, makes them durable, then the checkpoint. Source: store format §3.3."""

    def __init__(
        self,
        config: StoreConfig,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        log_flush: LogFlush,
        commit_log: CommitLog,
        checkpoint: CheckpointFile,
        disk: Disk,
        clock: Clock,
        stats: StoreStats,
        *,
        points: RecoveryPoints,
        one_round: trio.Lock,
        on_failed: Callable[[OSError], None],
        on_stuck: Callable[[OSError | None], None],
    ) -> None:
        """`on_stuck` tells that units cannot be written, and with None that they can again.

        `one_round` is held during a round: two at once would make the same file twice, and nobody
        else may touch queue files then.
        """
        self.config = config
        self._queues = queues
        self._dispatcher = dispatcher
        self._log_flush = log_flush
        self._log = commit_log
        self._checkpoint = checkpoint
        self._points = points
        self._disk = disk
        self._clock = clock
        self._stats = stats
        self._on_failed = on_failed
        self._on_stuck = on_stuck
        self.logics_timestamp = 0
        """Every message stored up to this time, in ms, has its unit on disk."""
        self.index_timestamp: Callable[[], int] = self._index_unchanged
        """Up to which store time, in ms, all index files are on disk."""
        self.failure: OSError | None = None
        self._write_failures = 0
        self._dispatched_then = 0
        self._wanted = trio.Event()
        self._one_round = one_round

    def _index_unchanged(self) -> int:
        return self._checkpoint.value.index_msg_timestamp

    def look(self) -> None:
        """Start a round before its time when very many units are only in memory. Hot."""
        if self._stats.dispatched - self._dispatched_then > UNWRITTEN_UNITS_MAX:
            self._wanted.set()

    async def run(self) -> None:
        """A round per interval, a thorough one per thorough interval; until cancelled."""
        thorough_at = self._clock.monotonic()
        while True:
            with trio.move_on_after(self.config.flush_interval_consume_queue_ms / 1000):
                await self._wanted.wait()
            now = self._clock.monotonic()
            due = self.config.flush_consume_queue_thorough_interval_ms / 1000
            thorough = now - thorough_at >= due
            thorough_at = now if thorough else thorough_at
            await self.round(thorough=thorough)

    async def round(self, *, thorough: bool, final: bool = False) -> bool:
        """Write all units; sync queues with enough dirty pages, or with `thorough` everything.

        Order of a round: log if it is a thorough one, queues, checkpoint, recovery point, extents.
        With `final` nothing is appended any more. Returns whether all of it went well.
        """
        async with self._one_round:
            return await self._round(thorough, final)

    async def _round(self, thorough: bool, final: bool) -> bool:
        self._wanted = trio.Event()
        self._dispatched_then = self._stats.dispatched
        if thorough and not await self._log_flush.reach(self._log.max_offset):
            return False
        if thorough:
            self._log_flush.look_again(final=final)
        covered = self._covered_timestamp(final=final)
        taken = self._points.take()
        if not await self._write():
            return False
        least = 1 if thorough else self.config.flush_consume_queue_least_pages * PAGE_BYTES
        if not await self._sync(max(1, least), taken):
            return False
        if thorough and not await self._store_checkpoint(covered):
            return False
        try:
            await self._points.store(taken, sync=thorough or self.config.sync_flush)
        except OSError as error:
            return self._not_synced(error, "recoverypoint")
        if thorough:
            await self._points.extents.save()
        return True

    def _covered_timestamp(self, *, final: bool) -> int:
        """Up to which store time every message has a unit, written or about to be."""
        dispatcher = self._dispatcher
        stored = dispatcher.last_store_timestamp
        # The next message may still get the millisecond of the last one.
        more = not final and self._clock.now_ms() <= stored
        if more or dispatcher.behind(self._log.max_offset):
            stored -= 1
        if dispatcher.first_gap_timestamp is not None:
            stored = min(stored, dispatcher.first_gap_timestamp - 1)
        return stored

    async def _write(self) -> bool:
        """Write the units of all queues, so many queues at a time: others have their turn."""
        for queues in self._queues.slices():
            writes = self._queues.unwritten(queues)
            if writes and not await self._write_out(writes):
                return False
            await trio.lowlevel.checkpoint()
        return True

    async def _write_out(self, writes: list[TailWrite]) -> bool:
        try:
            await self._disk.in_thread(self._queues.write, writes)
        except OSError as error:
            self._write_failures += 1
            if self._write_failures in (1, WRITE_TRIES):
                log.error("flush.queue_write_failed", error=str(error), tries=self._write_failures)
            self._on_stuck(error)
            return False
        if self._write_failures:
            self._write_failures = 0
            log.info("flush.queue_write_recovered")
            self._on_stuck(None)
        self._queues.mark_written(writes)
        return True

    async def _sync(self, least_bytes: int, taken: Taken | None) -> bool:
        """Sync the queues with so many bytes that never were, some at a time."""
        if self.failure is not None:
            return False
        if self._points.wants_all_synced(len(self._queues.unsynced)):
            least_bytes = 1
        for queues in slices_of(list(self._queues.unsynced)):
            behind = [
                (queue, queue.written) for queue in queues if queue.unsynced_bytes >= least_bytes
            ]
            if behind and not await self._sync_out(behind):
                return False
            await trio.lowlevel.checkpoint()
        if least_bytes == 1:
            self._points.queues_synced(taken)
        return True

    async def _sync_out(self, behind: list[tuple[ConsumeQueue, int]]) -> bool:
        paths = [path for queue, _ in behind for path in queue.unsynced_paths()]
        began = self._clock.monotonic()
        try:
            await self._disk.in_thread(self._queues.sync, paths)
        except OSError as error:
            return self._not_synced(error, "consumequeue")
        self._stats.queue_syncs += len(paths)
        if (elapsed := self._clock.monotonic() - began) > SLOW_S:
            log.warning("flush.slow", elapsed_ms=round(elapsed * 1000), file="consumequeue")
        self._queues.mark_synced(behind)
        return True

    def _not_synced(self, error: OSError, file: str) -> bool:
        """A sync that failed is final; one that could not begin is part of the next round."""
        if isinstance(error, SyncFailed):
            self.failure = error
            log.error("flush.failed", file=file, error=str(error))
            self._on_failed(error)
        else:
            log.warning("flush.delayed", file=file, error=str(error))
        return False

    async def _store_checkpoint(self, covered: int) -> bool:
        self.logics_timestamp = max(self.logics_timestamp, covered)
        try:
            await self._disk.in_thread(
                self._checkpoint.write,
                self._log_flush.physic_timestamp,
                self.logics_timestamp,
                self.index_timestamp(),
            )
        except OSError as error:
            return self._not_synced(error, "checkpoint")
        physic_ms, logics_ms = self._log_flush.physic_timestamp, self.logics_timestamp
        log.debug("checkpoint.written", physic_ms=physic_ms, logics_ms=logics_ms)
        return True
