"""Flush of the consume queues, and the checkpoint for it.

Dispatch adds units in memory; a round writes them, syncs their files, then writes the checkpoint. A
failed write is retried; a failed sync is final for the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.errors import SyncFailed
from aerobee.store.flush.log_flush import PAGE_BYTES, SLOW_S
from aerobee.store.queues.consume_queues import slices_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.config import StoreConfig
    from aerobee.store.flush.checkpoint import CheckpointService
    from aerobee.store.flush.log_flush import LogFlush
    from aerobee.store.flush.recovery_points import PendingPoint, RecoveryPoints
    from aerobee.store.queues.consume_queue import ConsumeQueue, TailWrite
    from aerobee.store.shared import Contents, Runtime

UNWRITTEN_UNITS_MAX = 200_000
"""Units in memory that start a round early."""
WRITE_TRIES = 30
WRITES_PER_SECOND = 1_500
"""Writes of a round that take a second on their own account: of more, the next round comes later.
A write takes some 20 µs of the interpreter, and the sends of the meantime wait for it."""
PAUSE_MAX_S = 5.0
"""At most so long between two rounds for that: a start after a kill walks the log of so long."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueueFlushHooks:
    """Callbacks about failures."""

    on_failed: Callable[[OSError], None]
    """A sync failed: final for the run."""
    on_stuck: Callable[[OSError | None], None]
    """Units cannot be written; with None, they can again."""


class QueueFlush:
    """Writes consume queues, makes them durable, then the checkpoint. Source: store format §3.3."""

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        log_flush: LogFlush,
        checkpoint: CheckpointService,
        points: RecoveryPoints,
        runtime: Runtime,
        hooks: QueueFlushHooks,
    ) -> None:
        self.config = config
        self._queues = contents.queues
        self._dispatcher = contents.dispatcher
        self._log_flush = log_flush
        self._log = contents.commit_log
        self._checkpoint = checkpoint
        self._points = points
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._hooks = hooks
        self.failure: OSError | None = None
        self._write_failures = 0
        self._dispatched_then = 0
        self._writes = 0
        self._wanted = trio.Event()
        # Two rounds at once would create the same file twice.
        self._one_round = contents.between_flushes

    def reconfigure(self, config: StoreConfig) -> None:
        """Take settings while running; an interval that has begun ends early."""
        self.config = config
        self._wanted.set()

    def look(self) -> None:
        """Start a round early when very many units are only in memory. Hot."""
        if self._stats.dispatched - self._dispatched_then > UNWRITTEN_UNITS_MAX:
            self._wanted.set()

    async def run(self) -> None:
        """A round per interval, a thorough one per thorough interval; until cancelled.

        The amount that a round wrote says how far the next round is: see `WRITES_PER_SECOND`.
        """
        thorough_at = self._clock.monotonic()
        while True:
            with trio.move_on_after(self._pause_s()):
                await self._wanted.wait()
            now = self._clock.monotonic()
            due = self.config.flush_consume_queue_thorough_interval_ms / 1000
            thorough = now - thorough_at >= due
            thorough_at = now if thorough else thorough_at
            await self.round(thorough=thorough)

    def _pause_s(self) -> float:
        """Until the next round: the interval, or longer when the last one had very many writes."""
        interval_s = self.config.flush_interval_consume_queue_ms / 1000
        return max(interval_s, min(self._writes / WRITES_PER_SECOND, PAUSE_MAX_S))

    async def round(self, *, thorough: bool, final: bool = False) -> bool:
        """Write all units; sync queues with enough dirty pages, or with `thorough` all of them.

        Order of a round: log if it is a thorough one, queues, checkpoint, extents, recovery point.
        With `final` nothing is appended any more. Returns whether all of it succeeded.
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
        covered = self._checkpoint.covered(final=final)
        point = self._points.take()
        units = await self._write(self._dispatcher.dispatched)
        if units is None:
            return False
        point = point and point._replace(units=units)
        least = 1 if thorough else self.config.flush_consume_queue_least_pages * PAGE_BYTES
        if not await self._sync(max(1, least), point):
            return False
        try:
            if thorough:
                await self._checkpoint.write(covered)
        except OSError as error:
            return self._not_synced(error, "checkpoint")
        # Messages of the round may not be on disk yet, and a deletion relies on this point.
        if thorough and point and not await self._log_flush.reach(point.log_end):
            return False
        saved = thorough and await self._points.extents.save()
        try:
            await self._points.store(point, sync=thorough or self.config.sync_flush, again=saved)
        except OSError as error:
            return self._not_synced(error, "recoverypoint")
        return True

    async def _write(self, log_end: int) -> int | None:
        """Write the units of all queues, some queues at a time.

        Returns the sum of the ends of all queues when the log was dispatched up to `log_end`; None
        when writing failed.
        """
        units = self._writes = 0
        for queues in self._queues.slices():
            units += sum(queue.end_before(log_end) for queue in queues)
            writes = self._queues.unwritten(queues)
            self._writes += len(writes)
            if writes and not await self._write_out(writes):
                return None
            await trio.lowlevel.checkpoint()
        self._all_written()
        return units

    def _all_written(self) -> None:
        """Record that no queue is left that cannot be written: one that was may be deleted."""
        if self._write_failures:
            self._write_failures = 0
            log.info("flush.queue_write_recovered")
            self._hooks.on_stuck(None)

    async def _write_out(self, writes: list[TailWrite]) -> bool:
        try:
            await self._disk.in_thread(self._queues.write, writes)
        except OSError as error:
            self._write_failures += 1
            if self._write_failures in (1, WRITE_TRIES):
                log.error("flush.queue_write_failed", error=str(error), tries=self._write_failures)
            self._hooks.on_stuck(error)
            return False
        self._queues.mark_written(writes)
        return True

    async def _sync(self, least_bytes: int, point: PendingPoint | None) -> bool:
        """Sync the queues with at least so many unsynced bytes, some at a time."""
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
            self._points.queues_synced(point)
        return True

    async def _sync_out(self, behind: list[tuple[ConsumeQueue, int]]) -> bool:
        unsynced = self._queues.unsynced_of(queue for queue, _ in behind)
        began = self._clock.monotonic()
        try:
            await self._disk.in_thread(self._queues.sync, unsynced)
        except OSError as error:
            return self._not_synced(error, "consumequeue")
        self._stats.queue_syncs += len(unsynced.files)
        if (elapsed := self._clock.monotonic() - began) > SLOW_S:
            log.warning("flush.slow", elapsed_ms=round(elapsed * 1000), file="consumequeue")
        self._queues.mark_synced(behind)
        return True

    def _not_synced(self, error: OSError, file: str) -> bool:
        """A sync that failed is final; one that could not begin is part of the next round."""
        if isinstance(error, SyncFailed):
            self.failure = error
            log.error("flush.failed", file=file, error=str(error))
            self._hooks.on_failed(error)
        else:
            log.warning("flush.delayed", file=file, error=str(error))
        return False
