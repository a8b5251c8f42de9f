"""The timers of a broker: their parts, and their background tasks.

Three loops: the wheel topic is read into slots, due slots are delivered, and every second changes
are saved. The order of a save is fixed: first everything that was put so far is on disk in the
commit log, then the timer log, the wheel and the check file, so no start finds a check file that
refers to copies or units that a power cut took. Source: semantics §9.4 (TimerMessageStore).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.errors import CONTENT_ERRORS
from aerobee.broker.timers.timer_delivery import TimerDelivery, TimerPuts
from aerobee.broker.timers.timer_enqueue import TimerEnqueue
from aerobee.broker.timers.timer_properties import TimerProperties
from aerobee.store.errors import SyncFailed, Unreadable
from aerobee.store.flags import Flag
from aerobee.store.format.record import read, records
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.timer import WHEEL_SLOTS
from aerobee.store.timers.timer_store import STEP_UNITS, TimerStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from aerobee.broker.core.core import Core
    from aerobee.broker.timers.timers_done import TimersDone
    from aerobee.broker.timers.timing_counts import TimingCounts
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.timers.timer_store import Save

CLEAN_S: Final = 30.0
"""Seconds between two checks for unused files of the timer log."""
AGAIN_S: Final = 5.0
"""The pause after an error of the disk."""
HOUR_MS: Final = 3_600_000
SNAPSHOT_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)

log = structlog.stdlib.get_logger(__name__)


def window_ms(config: StoreConfig, precision_ms: int) -> int:
    """How far ahead a slot may be: later timers are rolled.

    Two thirds of the retention of the log, so that the message is still in it.
    """
    kept_ms = config.file_reserved_time_h * HOUR_MS * 2 // 3
    steps = min(config.timer_roll_window_slot, kept_ms // precision_ms)
    return max(2, steps) * precision_ms


class Timers:
    """Everything about timers but the hook. `load`, then `run`, then `close`."""

    def __init__(
        self, core: Core, counts: TimingCounts, done: TimersDone, *, slots: int = WHEEL_SLOTS
    ) -> None:
        self._config = config = core.config.store
        self._disk = core.disk
        self._store = core.store
        self._puts = core.puts
        self._counts = counts
        self._clock = core.clock
        self.timers = TimerStore(
            core.disk,
            core.store.root,
            precision_ms=config.timer_precision_ms,
            log_file_bytes=config.mapped_file_size_timer_log_bytes,
            read_file=core.store.reader.cold.log,
            slots=slots,
        )
        self.settings_changed()
        puts = TimerPuts(core, counts, done)
        self.enqueue = TimerEnqueue(core, self.timers, puts)
        self.delivery = TimerDelivery(core, self.timers, puts)
        self.failure: OSError | None = None
        """The error of a sync: nothing is saved any more in this run."""
        self.saving = trio.Lock()
        """Held while the wheel is saved."""
        self._save_failed = False
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    # ── The start and the end ──

    def load(self, *, clean: bool) -> None:
        """Load the state from disk; the store is loaded. Raises: StoreRefused, OSError."""
        store = self._store
        queue = range(store.min_offset(WHEEL_TOPIC, 0), store.max_offset(WHEEL_TOPIC, 0))
        self.timers.load(
            clean=clean,
            queue=queue,
            now_ms=self._clock.now_ms(),
            queue_offset_of=self._queue_offset_of,
            slots_of=self._slots_of,
        )
        self.settings_changed()

    def _queue_offset_of(self, physical_offset: int) -> int:
        """The queue offset of a message of the wheel topic; −1 for anything else, and for one that
        the disk cannot read: the check file is believed then. Raises: OSError.
        """
        try:
            view = self._store.read(physical_offset)
        except Unreadable as error:
            log.error("timer.read_failed", error=str(error))
            return -1
        record = None if view is None else read(view)
        return -1 if record is None or record.topic != WHEEL_TOPIC else record.queue_offset

    def _slots_of(self, queue_offset: int) -> Iterator[int]:
        result = self._store.get(WHEEL_TOPIC, 0, queue_offset, STEP_UNITS, max_count=STEP_UNITS)
        with suppress(*CONTENT_ERRORS):
            for record in records(result.views):
                if (timed := TimerProperties.of(record.properties)) is not None:
                    yield timed.out_ms

    def settings_changed(self) -> None:
        """How far ahead a slot may be depends on fileReservedTime."""
        self.timers.window_ms = window_ms(self._config, self.timers.precision_ms)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Enqueue, deliver and save until cancelled, or closed."""
        self._ended = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                for loop in (self.enqueue.run, self.delivery.run, self._save_by_clock, self._clean):
                    nursery.start_soon(self._keep, loop)
                task_status.started()
        finally:
            self._ended.set()

    async def close(self) -> None:
        """Stop, and save the state."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()
        try:
            await self._leave_the_rest()
            await self._store.complete(self._cover_the_last)
            await self.save()
        except OSError as error:
            log.error("timer.save_failed", error=str(error))

    async def _leave_the_rest(self) -> None:
        """Remove the delivered timers from unfinished slots, for whichever broker starts next.

        The copies that were delivered must be on disk before. Raises: OSError.
        """
        begun = [slot for slot in self.delivery.begun.values() if slot.done]
        self.delivery.begun.clear()
        if not begun or self.failure is not None:
            return
        await self._puts.durable()
        async with self.saving:
            for slot in begun:
                links = self.timers.rest_of(slot.chain, slot.done)
                await self._sync(partial(self.timers.log.relink, links))
                self.timers.shorten(slot.chain, slot.done)
                for topic in slot.deletions:
                    self._counts.add(topic, -1, self._clock.now_ms())

    def _cover_the_last(self) -> None:
        """Give the last message that was read a unit, if it needed none: a Java broker would read
        it again, with all others behind the last unit. Raises: NotInMemory, OSError.
        """
        unit = self.timers.log.last_unit()
        at = self.timers.queue_offset - 1
        if unit is None or not 0 <= self._queue_offset_of(unit.physical_offset) < at:
            return
        for view in self._store.get(WHEEL_TOPIC, 0, at, 1).views:
            self.timers.cover(read(view))

    async def _keep(self, loop: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        """Run a loop, and restart it after errors of the disk."""
        while True:
            try:
                await loop()
            except OSError as error:
                log.error("timer.read_failed", error=str(error))
                await trio.sleep(AGAIN_S)

    # ── Saving ──

    async def _save_by_clock(self) -> NoReturn:
        while True:
            await trio.sleep(self._config.timer_flush_interval_ms / 1000)
            if not self.timers.waiting:
                self._counts.nothing_waits()
            try:
                await self.save()
            except OSError as error:
                if not self._save_failed:
                    log.error("timer.save_failed", error=str(error))
                self._save_failed = True
                await trio.sleep(AGAIN_S)
                continue
            if self._save_failed:
                log.info("timer.save_recovered")
            self._save_failed = False

    async def save(self) -> None:
        """Write changes to the disk. Raises: OSError; what failed is part of the next save.

        A failed sync is not retried: since then the kernel may take dirty pages for clean.
        """
        async with self.saving:
            if self.failure is not None or not self.timers.changed:
                return
            save = self.timers.begin_save(self._clock.now_ms())
            try:
                await self._carry_out(save)
            except BaseException:
                self.timers.not_saved(save)
                raise
            self.timers.saved(save)

    async def _carry_out(self, save: Save) -> None:
        timers, in_thread = self.timers, self._disk.in_thread
        await self._puts.durable()
        timers.written(save, await in_thread(timers.write, save))
        await self._sync(lambda: timers.sync_units(save))
        await in_thread(timers.write_slots, save)
        await self._sync(lambda: timers.sync_slots(save))
        await in_thread(timers.write_check, save)
        await self._sync(timers.sync_check)

    async def _sync(self, sync: Callable[[], None]) -> None:
        try:
            await self._disk.in_thread(sync)
        except SyncFailed as error:
            self.failure = error
            self._store.flags.set(Flag.NOT_WRITEABLE, f"a sync of the timers failed: {error}")
            raise

    async def _clean(self) -> NoReturn:
        """Delete files of the timer log whose messages are no longer in the commit log."""
        timer_log = self.timers.log
        while True:
            await trio.sleep(CLEAN_S)
            while file := await self._store.complete(self._expired):
                async with self.saving:
                    await self._disk.in_thread(self._disk.remove, file.path)
                    timer_log.drop_first()
                log.info("timer.file_deleted", path=str(file.path))

    def _expired(self) -> MappedFile | None:
        return self.timers.log.expired(self._store.commit_log.min_offset)

    # ── Figures ──

    @property
    def waiting(self) -> Mapping[str, int]:
        """Timers in the wheel by target topic."""
        return self._counts.waiting

    @property
    def unread(self) -> int:
        """Messages of the wheel topic that have no slot yet."""
        return self.enqueue.behind

    @property
    def late(self) -> int:
        """Timers that are due and not delivered yet."""
        return self.timers.wheel.count(self.timers.read_time_ms, self._clock.now_ms())

    @property
    def late_ms(self) -> int:
        """The lag of the delivery."""
        timers = self.timers
        return max(0, timers.floor(self._clock.now_ms()) - timers.read_time_ms)

    @property
    def unread_ms(self) -> int:
        """Age of the last message that was read from the wheel topic; 0 when all were read."""
        if not self.enqueue.behind:
            return 0
        return max(0, self._clock.now_ms() - self.enqueue.last_store_timestamp)

    def due_within(self) -> list[tuple[int, int]]:
        """Seconds, and timers that are due within."""
        now_ms = begin_ms = self._clock.now_ms()
        counts = []
        total = self.late
        for bound_s in SNAPSHOT_BOUNDS_S:
            end_ms = now_ms + bound_s * 1000
            total += self.timers.wheel.count(begin_ms, end_ms)
            counts.append((bound_s, total))
            begin_ms = end_ms
        return counts
