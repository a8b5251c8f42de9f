"""Flush of the log: group commit, or periodic.

Producers wait here for `flushed`; everything appended while one sync runs shares the next one. The
first failed sync is final for the run: the kernel drops what it could not write, so a second try
would succeed falsely. The meaning of a failure for clients is decided elsewhere.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
import trio

from aerobee.store.errors import SyncFailed
from aerobee.store.files.sync_thread import outcome
from aerobee.store.flush.inline_syncs import InlineSyncs
from aerobee.store.listeners import Listeners
from aerobee.store.results import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.sync_thread import SyncThread
    from aerobee.store.log.commit_log import CommitLog, SyncPlan
    from aerobee.store.shared import Runtime

PAGE_BYTES = 4_096
SLOW_S = 1.0
SYNC_AGAIN_S = 0.1
"""The pause before a sync is retried that could not begin, for want of descriptors or memory."""
SYNC_TRIES_AT_STOP = 50
"""How often a stop retries that."""
ANSWER_S: Final = 0.001
"""How long senders are called back in one step; sending their answers takes several times as
long."""
STRIDE: Final = 16
"""Senders between two checks of the clock."""
DURABLE: Final = PutOutcome.DURABLE
DISK_LATE: Final = PutOutcome.DISK_LATE

log = structlog.get_logger(__name__)


class WaitingSender(msgspec.Struct):
    """A sender that is answered once the log is on disk up to `end_offset`."""

    end_offset: int
    deadline: float
    """By the monotonic clock."""
    callback: Callable[[PutOutcome], None]


@dataclass(frozen=True, slots=True)
class LogFlushHooks:
    """Callbacks about the syncs of the log."""

    on_flushed: Callable[[], None]
    """`flushed` has advanced."""
    on_answered: Callable[[], None]
    """A group of senders was called back."""
    on_failed: Callable[[OSError], None]
    """A sync failed: final for the run."""


class LogFlush:
    """Makes the commit log durable. Source: store format §3.2, §3.3 (GroupCommitService).

    Invariant: at most one sync runs; `waiting` is in order of end offsets.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        thread: SyncThread,
        runtime: Runtime,
        hooks: LogFlushHooks,
    ) -> None:
        self.config = config
        self._log = commit_log
        self._thread = thread
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._hooks = hooks
        self.waiting: deque[WaitingSender] = deque()
        self.failure: OSError | None = None
        self.stopping = False
        """The broker stops: waits are short from now on."""
        self.physic_timestamp = 0
        """Every record stored up to this time, in ms, is on disk."""
        self._plan: SyncPlan | None = None
        self._plan_now_ms = 0
        self._plan_bytes = 0
        self._thread_took_s = 0.0
        """The time that the last sync of the thread took."""
        self._clients_wait_to = 0
        """The end of the log that a client waits for. A sync beyond it is not made in the loop:
        nobody would be answered sooner."""
        self._began = 0.0
        self._given_up = float("-inf")
        """Senders whose deadline is before this time, by the monotonic clock, wait no more."""
        self._failed_sync: BaseException | None = None
        """The error of a sync that ended, until a task has taken it in."""
        self._inline = InlineSyncs()
        self.after_stall: Listeners[[float, float]] = Listeners()
        """Called with begin and end, by the monotonic clock, of an inline sync that was too long,
        before anybody is told of its end."""
        self._ended = trio.Event()
        """A sync has ended; each has an event of its own."""
        self._left = trio.Event()
        """A sync failed, or left more senders to answer than one step may."""
        self._waited = trio.Event()
        self._settings_changed = trio.Event()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take settings while running; an interval that has begun ends early."""
        self.config = config
        self._settings_changed.set()

    @property
    def answers_wait(self) -> bool:
        """Whether answers wait for the disk."""
        return self.config.sync_flush

    @property
    def counted_end(self) -> int:
        """The end of the log as far as it counts for this broker: on disk, where answers wait."""
        return self._log.flushed if self.answers_wait else self._log.max_offset

    @property
    def sync_takes_s(self) -> float:
        """How long the sync that runs has taken so far; 0 without one. A disk that hangs ends none,
        and fails none.
        """
        if self._plan is None or self._failed_sync is not None or self.failure is not None:
            return 0.0
        return self._clock.monotonic() - self._began

    def when_durable(
        self, end_offset: int, callback: Callable[[PutOutcome], None], *, background: bool = False
    ) -> None:
        """Call back once the log is on disk up to there; with DISK_LATE after the timeout. Hot.

        The sync itself begins with the next `request` or `finish_round`. For what no client waits
        for, in the `background`, the loop never makes it.
        """
        if self._log.flushed >= end_offset:
            callback(DURABLE)
        elif self.failure is not None:
            callback(DISK_LATE)
        else:
            deadline = self._clock.monotonic() + self.config.sync_flush_timeout_ms / 1000
            if not self.waiting:
                self._waited.set()
            self.waiting.append(WaitingSender(end_offset, deadline, callback))
            if not background:
                self._clients_wait_to = end_offset

    def request(self) -> None:
        """Begin a sync of everything appended so far, unless one runs. Hot."""
        if (plan := self._begin()) is not None:
            self._hand_over(plan)

    def finish_round(self) -> None:
        """As `request`, when nothing more is appended at once: a sync that is short, and that
        clients wait for, ends before this returns, and its senders have been called back. Hot.
        """
        if (plan := self._begin()) is None:
            return
        if self._may_be_inline(plan):
            self._sync_inline(plan)
        else:
            self._hand_over(plan)

    def _may_be_inline(self, plan: SyncPlan) -> bool:
        """Whether the loop may make this sync. Hot.

        Not while a thread waits for the disk: the kernel would queue this sync behind that one,
        which may hang.
        """
        config = self.config
        return (
            config.sync_flush
            and config.sync_flush_inline
            and self._clients_wait_to > self._log.flushed
            and plan.is_one_file
            and not self._disk.syncs
            and self._inline.allows(self._plan_bytes, self._began)
        )

    def _begin(self) -> SyncPlan | None:
        """The plan of the next sync; None when none may begin, or there is nothing to sync."""
        if self._plan is not None or self.failure is not None or not self._thread.running:
            return None
        if self._log.flushed == self._log.max_offset:
            return None
        self._plan = plan = self._log.plan_sync()
        self._plan_bytes = self._log.unflushed_bytes
        self._plan_now_ms = self._clock.now_ms()
        self._began = self._clock.monotonic()
        return plan

    def _hand_over(self, plan: SyncPlan) -> None:
        self._thread.submit(partial(self._sync, plan), self._thread_ended)

    def _thread_ended(self, failure: BaseException | None) -> None:
        took_s, size_bytes = self._thread_took_s, self._plan_bytes
        self._inline.thread_took(took_s, size_bytes, self._clock.monotonic())
        self._sync_ended(failure)

    def _sync_inline(self, plan: SyncPlan) -> None:
        """Run a sync in the loop. A sync that cannot begin is left to the thread."""
        failure = outcome(partial(self._log.sync, plan))
        if isinstance(failure, OSError) and not isinstance(failure, SyncFailed):
            self._hand_over(plan)
            return
        now = self._clock.monotonic()
        took = now - self._began
        self._stats.inline_syncs += 1
        if not self._inline.took(took, now):
            log.info("flush.inline_paused", elapsed_ms=round(took * 1000, 1))
            if (tell := self.after_stall.tell) is not None:
                tell(self._began, now)
        self._sync_ended(failure)

    def _sync(self, plan: SyncPlan) -> None:
        """Run a sync; until it can begin, senders wait. For the sync thread.

        Raises: SyncFailed, or OSError when a stop has retried often enough.
        """
        tries = 0
        while True:
            began = self._clock.monotonic()
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
                self._thread_took_s = self._clock.monotonic() - began
                return

    async def reach(self, end_offset: int) -> bool:
        """Wait until the log is on disk up to there, however long; False when that cannot be."""
        await self._take_in()
        while self._log.flushed < end_offset and self.failure is None:
            self.request()
            await self._ended.wait()
            await self._take_in()
        return self._log.flushed >= end_offset

    async def run(self) -> None:
        """Answer what a sync leaves, time out senders, and flush periodically; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            nursery.start_soon(self._tick)
            while True:
                await self._left.wait()
                self._left = trio.Event()
                await self._take_in()

    # ── One sync ──

    def _sync_ended(self, failure: BaseException | None) -> None:
        """Complete a sync, begin the next one, and answer senders for a while.

        Called in the loop, also on behalf of the sync thread, and does its work there: to wake a
        task for it would keep a lone sender waiting for another turn of the whole loop.
        """
        if failure is None:
            plan, self._plan = self._plan, None
            assert plan is not None
            self._complete(plan)
            left = self._answer()
        else:
            # The plan stays: no sync begins after a failed one.
            self._failed_sync, left = failure, True
        if left:
            self._left.set()
        ended, self._ended = self._ended, trio.Event()
        ended.set()

    async def _take_in(self) -> None:
        """Take in a failed sync, then answer senders, in order, some at a time."""
        if self._failed_sync is not None:
            self._fail(self._failed_sync)
        while self._answer():
            await trio.lowlevel.checkpoint()

    def _complete(self, plan: SyncPlan) -> None:
        """Advance the positions to the end of a completed sync, and begin the next one."""
        self._log.complete(plan)
        self._measure(self._clock.monotonic() - self._began)
        self._move_physic(plan)
        # Messages that came meanwhile are being synced while these senders get their answers, or
        # have been where a sync is short.
        if self.answers_wait or self.waiting:
            self.finish_round()
        self._hooks.on_flushed()

    def _answer(self) -> bool:
        """Call back senders whose wait is over, for a while; whether there are more. Hot."""
        waiting, monotonic = self.waiting, self._clock.monotonic
        flushed, given_up = self._log.flushed, self._given_up
        ends, left = monotonic() + ANSWER_S, STRIDE
        more = False
        while waiting:
            first = waiting[0]
            on_disk = first.end_offset <= flushed
            if not on_disk and first.deadline > given_up:
                break
            if not left:
                left, more = STRIDE, monotonic() > ends
                if more:
                    break
            left -= 1
            waiting.popleft()
            first.callback(DURABLE if on_disk else DISK_LATE)
        self._hooks.on_answered()
        return more

    def _measure(self, seconds: float) -> None:
        self._stats.log_syncs += 1
        self._stats.sync_seconds.add(seconds)
        if seconds > SLOW_S:
            log.warning("flush.slow", elapsed_ms=round(seconds * 1000), file="commitlog")

    def _move_physic(self, plan: SyncPlan) -> None:
        stored = plan.store_timestamp
        if stored:
            # A later record may still get the same millisecond.
            covered = stored if self._plan_now_ms > stored else stored - 1
            self.physic_timestamp = max(self.physic_timestamp, covered)

    def look_again(self, *, final: bool) -> None:
        """With everything on disk, cover the last store time once no record can get it again."""
        stored = self._log.last_store_timestamp
        past = final or self._clock.now_ms() > stored
        if past and stored and self._log.flushed == self._log.max_offset:
            self.physic_timestamp = max(self.physic_timestamp, stored)

    def _fail(self, failure: BaseException) -> None:
        if not isinstance(failure, OSError):
            # The error stays, so that all others that wait for the disk end with it, too.
            raise failure
        self._failed_sync = None
        self.failure = failure
        log.error("flush.failed", file="commitlog", error=str(failure), flushed=self._log.flushed)
        self._given_up = float("inf")
        self._hooks.on_failed(failure)

    # ── Clocks ──

    async def _expire(self) -> None:
        while True:
            if not self.waiting:
                self._waited = trio.Event()
                await self._waited.wait()
                # The waiting senders may have been answered before this turn.
                continue
            await trio.sleep(max(0.0, self.waiting[0].deadline - self._clock.monotonic()))
            now, flushed = self._clock.monotonic(), self._log.flushed
            late = sum(
                sender.deadline <= now and sender.end_offset > flushed for sender in self.waiting
            )
            if late:
                self._stats.sync_timeouts += late
                log.warning("flush.timed_out", messages=late, flushed=flushed)
                self._given_up = max(self._given_up, now)
            await self._take_in()

    async def _tick(self) -> None:
        """Flush periodically; under SYNC_FLUSH for messages that nobody waits for."""
        thorough_at = self._clock.monotonic()
        while True:
            with trio.move_on_after(self.config.flush_interval_commit_log_ms / 1000):
                await self._settings_changed.wait()
            self._settings_changed = trio.Event()
            now = self._clock.monotonic()
            thorough = self.config.flush_commit_log_thorough_interval_ms / 1000
            if self.answers_wait or now - thorough_at >= thorough or self._enough():
                self.request()
            if now - thorough_at >= thorough:
                thorough_at = now

    def _enough(self) -> bool:
        """Whether enough pages are dirty, or a segment is full."""
        last = self._log.queue.last
        if last is None or last.start > self._log.flushed:
            return last is not None
        pages = self._log.max_offset // PAGE_BYTES - self._log.flushed // PAGE_BYTES
        return pages >= max(1, self.config.flush_commit_log_least_pages)
