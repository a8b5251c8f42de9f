"""When data reaches the disk: the log by group commit or by interval, then queues and checkpoint.

Producers wait here for `flushed`; everything appended while one sync runs shares the next one. The
first failed sync is final for the run: the kernel forgets what it could not write, so a second try
would succeed falsely. Nothing here decides what a failure means to clients.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from aerobee.store.errors import SyncFailed
from aerobee.store.files.consume_queues import slices_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.checkpoint_file import CheckpointFile
    from aerobee.store.files.commit_log import CommitLog, SyncPlan
    from aerobee.store.files.consume_queue import ConsumeQueue, TailWrite
    from aerobee.store.files.consume_queues import ConsumeQueues
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.sync_thread import SyncThread
    from aerobee.store.services.dispatch import Dispatcher
    from aerobee.store.services.recovery_points import RecoveryPoints, Taken
    from aerobee.store.stats import StoreStats

__all__ = ["LogFlush", "QueueFlush"]

PAGE_BYTES = 4_096
SLOW_S = 1.0
UNWRITTEN_UNITS_MAX = 200_000
"""Units in memory that start a round of the queue flush before its time."""
WRITE_TRIES = 30
SYNC_AGAIN_S = 0.1
"""Before a sync is tried again that could not begin, for want of descriptors or memory."""
SYNC_TRIES_AT_STOP = 50
"""How often a stop tries that."""

log = structlog.get_logger(__name__)


class Waiting(msgspec.Struct):
    """A sender that is answered once the log is on disk up to `end_offset`."""

    end_offset: int
    deadline: float
    """By the monotonic clock."""
    callback: Callable[[bool], None]


class LogFlush:
    """Makes the commit log durable. Source: store format §3.2, §3.3 (GroupCommitService).

    Law: at most one sync is under way; `waiting` is in order of end offsets.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        thread: SyncThread,
        clock: Clock,
        stats: StoreStats,
        *,
        on_flushed: Callable[[], None],
        on_answered: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """`on_flushed` runs when the position moved, `on_answered` after a group of callbacks."""
        self.config = config
        self._log = commit_log
        self._thread = thread
        self._clock = clock
        self._stats = stats
        self._on_flushed = on_flushed
        self._on_answered = on_answered
        self._on_failed = on_failed
        self.waiting: deque[Waiting] = deque()
        self.failure: OSError | None = None
        self.stopping = False
        """Nothing is waited for very long any more."""
        self.physic_timestamp = 0
        """Every record stored up to this time, in ms, is on disk."""
        self._plan: SyncPlan | None = None
        self._plan_now_ms = 0
        self._began = 0.0
        self._results: deque[BaseException | None] = deque()
        self._ended = trio.Event()
        self._waited = trio.Event()

    @property
    def groups(self) -> bool:
        """Whether answers wait for the disk."""
        return self.config.sync_flush

    def when_durable(self, end_offset: int, callback: Callable[[bool], None]) -> None:
        """Call back once the log is on disk up to there; with False after the time limit. Hot.

        The sync itself begins with the next `request`.
        """
        if self._log.flushed >= end_offset:
            callback(True)
        elif self.failure is not None:
            callback(False)
        else:
            deadline = self._clock.monotonic() + self.config.sync_flush_timeout_ms / 1000
            if not self.waiting:
                self._waited.set()
            self.waiting.append(Waiting(end_offset, deadline, callback))

    def request(self) -> None:
        """Begin a sync of everything appended so far, unless one is under way. Hot."""
        if self._plan is not None or self.failure is not None or not self._thread.running:
            return
        if self._log.flushed == self._log.max_offset:
            return
        self._plan = plan = self._log.plan_sync()
        self._plan_now_ms = self._clock.now_ms()
        self._began = self._clock.monotonic()
        self._thread.submit(partial(self._sync, plan), self._sync_ended)

    def _sync(self, plan: SyncPlan) -> None:
        """Sync what the plan names; until that can begin, senders wait. For the sync thread.

        Raises: SyncFailed, or OSError when a stop has tried often enough.
        """
        tries = 0
        while True:
            try:
                self._log.sync(plan)
            except SyncFailed:
                raise
            except OSError as error:
                if not tries:
                    log.warning("flush.delayed", file="commitlog", error=str(error))
                tries += 1
                if self.stopping and tries >= SYNC_TRIES_AT_STOP:
                    raise
                self._thread.pause(SYNC_AGAIN_S)
            else:
                return

    async def reach(self, end_offset: int) -> bool:
        """Wait until the log is on disk up to there, however long; False when that cannot be."""
        while self._log.flushed < end_offset and self.failure is None:
            self.request()
            await self._ended.wait()
            self.complete()
        return self._log.flushed >= end_offset

    async def run(self) -> None:
        """Complete syncs that end, time out senders, and flush by interval; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            nursery.start_soon(self._tick)
            while True:
                await self._ended.wait()
                self.complete()

    # ── One sync ──

    def _sync_ended(self, failure: BaseException | None) -> None:
        self._results.append(failure)
        self._ended.set()

    def complete(self) -> None:
        """Take in what the thread has done: positions, the next sync, then the answers."""
        if not self._results:
            return
        self._ended = trio.Event()
        failure = self._results.popleft()
        plan, self._plan = self._plan, None
        assert plan is not None
        if failure is not None:
            self._fail(failure)
            return
        self._log.complete(plan)
        self._measure(self._clock.monotonic() - self._began)
        self._move_physic(plan)
        # Those that came meanwhile are on their way to the disk while these get their answers.
        if self.groups or self.waiting:
            self.request()
        waiting, flushed = self.waiting, self._log.flushed
        while waiting and waiting[0].end_offset <= flushed:
            waiting.popleft().callback(True)
        self._on_flushed()
        self._on_answered()

    def _measure(self, seconds: float) -> None:
        self._stats.log_syncs += 1
        self._stats.sync_seconds.add(seconds)
        if seconds > SLOW_S:
            log.warning("flush.slow", elapsed_ms=round(seconds * 1000), file="commitlog")

    def _move_physic(self, plan: SyncPlan) -> None:
        stored = plan.store_timestamp
        if stored:
            # A later record may still get the same millisecond while the clock shows it.
            covered = stored if self._plan_now_ms > stored else stored - 1
            self.physic_timestamp = max(self.physic_timestamp, covered)

    def look_again(self, *, final: bool) -> None:
        """With everything on disk the last store time is covered, once it cannot be given again."""
        stored = self._log.last_store_timestamp
        past = final or self._clock.now_ms() > stored
        if past and stored and self._log.flushed == self._log.max_offset:
            self.physic_timestamp = max(self.physic_timestamp, stored)

    def _fail(self, failure: BaseException) -> None:
        if not isinstance(failure, OSError):
            raise failure
        self.failure = failure
        log.error("flush.failed", file="commitlog", error=str(failure), flushed=self._log.flushed)
        self._on_failed(failure)
        self._refuse(len(self.waiting))

    def _refuse(self, count: int) -> None:
        for _ in range(count):
            self.waiting.popleft().callback(False)
        self._on_answered()

    # ── Clocks ──

    async def _expire(self) -> None:
        while True:
            if not self.waiting:
                self._waited = trio.Event()
                await self._waited.wait()
                # Whoever was waiting may have been answered before this turn.
                continue
            await trio.sleep(max(0.0, self.waiting[0].deadline - self._clock.monotonic()))
            now = self._clock.monotonic()
            late = sum(one.deadline <= now for one in self.waiting)
            if late:
                self._stats.sync_timeouts += late
                log.warning("flush.timed_out", messages=late, flushed=self._log.flushed)
                self._refuse(late)

    async def _tick(self) -> None:
        """Flush by interval; under SYNC_FLUSH for what nobody waits for."""
        thorough_at = self._clock.monotonic()
        while True:
            await trio.sleep(self.config.flush_interval_commit_log_ms / 1000)
            now = self._clock.monotonic()
            thorough = self.config.flush_commit_log_thorough_interval_ms / 1000
            if self.groups or now - thorough_at >= thorough or self._enough():
                self.request()
            if now - thorough_at >= thorough:
                thorough_at = now

    def _enough(self) -> bool:
        """Whether enough pages are dirty, or a segment has been filled."""
        last = self._log.queue.last
        if last is None or last.start > self._log.flushed:
            return last is not None
        pages = self._log.max_offset // PAGE_BYTES - self._log.flushed // PAGE_BYTES
        return pages >= max(1, self.config.flush_commit_log_least_pages)


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
