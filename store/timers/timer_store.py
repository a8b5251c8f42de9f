"""Timers in the store: wheel, timer log and check file, saved and recovered together.

Due times and physical offsets in and out; messages are not read. `add`, `settle` and the two
positions change in the loop; a `Save` is a snapshot of all of it, taken between two awaits and
written in this order: timer log, wheel, check file. So the check file refers only to what is on
disk, and a start continues from it: units behind it are cut, slots that led to them are set back,
and the messages of those units are read again.

Invariant: every message of the wheel topic before `queue_offset` was delivered, is in a slot, or
needs none. Every slot before `read_time_ms` is empty, as is every one behind `latest_ms`. Source:
store format §1.8; semantics §9.4.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import structlog

from aerobee.store.errors import StoreDamaged, StoreRefused
from aerobee.store.format import names
from aerobee.store.format.timer import (
    DELETE,
    NO_UNIT,
    ROLL,
    TIMER,
    TIMER_UNIT,
    WHEEL_SLOTS,
    TimerCheck,
    TimerUnit,
    WheelSlot,
)
from aerobee.store.timers.timer_chain import Chain, DueTimer
from aerobee.store.timers.timer_check import TimerCheckFile
from aerobee.store.timers.timer_log import TimerLog, UnitsToWrite
from aerobee.store.timers.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.record import Record
    from aerobee.store.timers.timer_log import ReadLog

PRECISION_MAX_MS = 1_000
"""The longest step of a wheel, as `timerPrecisionMs` allows it."""

STEP_UNITS = 64
"""Units that are enough to tell the step of the wheel that they were in."""

log = structlog.get_logger(__name__)


def _step_of(times: Iterable[int]) -> int:
    """The longest step that gives each of these times a slot."""
    common = gcd(*times)
    return next(step for step in range(PRECISION_MAX_MS, 0, -1) if not common % step)


class Save(NamedTuple):
    """A snapshot of the timers."""

    units: UnitsToWrite
    slots: list[tuple[int, bytes]]
    check: TimerCheck


class TimerStore:
    """All timers of a store. Used by one owner, from the loop; `write` and `sync` are for a thread.

    Use: `load`, then anything, then `close`.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        *,
        precision_ms: int,
        log_file_bytes: int,
        read_file: ReadLog,
        slots: int = WHEEL_SLOTS,
    ) -> None:
        self._disk = disk
        self.precision_ms = precision_ms
        """Step of the wheel. Waiting timers keep the one they were stored with, in the wheel or
        not: with a shorter one they would be early.
        """
        self.window_ms = precision_ms * slots // 2
        """How far ahead a slot may be, at most half a turn: later timers are rolled."""
        wheel = root / names.TIMER_WHEEL
        self.wheel = TimerWheel(disk, wheel, precision_ms=precision_ms, slots=slots)
        self.log = TimerLog(disk, root / names.TIMER_LOG, log_file_bytes, read_file)
        self.check = TimerCheckFile(disk, root / names.CONFIG / names.TIMER_CHECK)
        self.queue_offset = 0
        """The first unread message of the wheel topic."""
        self.read_time_ms = 0
        """The first time that may have timers."""
        self.latest_ms = 0
        """The last time that may have timers."""
        self.waiting = 0
        """Timers in slots, less recalls of some of them."""
        self._saved_offset = 0

    # ── Timers ──

    def floor(self, time_ms: int) -> int:
        """The time of the slot that a time belongs to."""
        return time_ms - time_ms % self.precision_ms

    def reach_ms(self, now_ms: int) -> int:
        """The last time that a slot may have now.

        A clock that went back leaves later slots, which are in the way of nearer times; and so does
        a window that became shorter, whose messages the log would lose before.
        """
        return self.floor(now_ms) + min(self.window_ms, self.wheel.turn_ms // 2)

    def beyond(self, time_ms: int) -> list[int]:
        """The times of the slots behind that time, the latest first."""
        times = self.wheel.times()
        self.latest_ms = max(times, default=0)
        return sorted((time for time in times if time > time_ms), reverse=True)

    def add(self, time_ms: int, now_ms: int, unit: DueTimer, topic_hash: int) -> bool:
        """Put a timer into the slot of that time; False while another time uses it. Hot."""
        wheel = self.wheel
        time_ms = self.floor(time_ms)
        slot = wheel.slot(time_ms)
        if slot is None:
            if not wheel.free_for(time_ms):
                return False
            first, last, count = NO_UNIT, NO_UNIT, 0
        else:
            _, first, last, count, _ = slot
        position = self.log.append(
            TimerUnit(
                TIMER_UNIT.size,
                last,
                unit.magic,
                now_ms,
                time_ms - now_ms,
                unit.physical_offset,
                unit.size,
                topic_hash,
            )
        )
        count += -1 if unit.magic & DELETE else 1
        wheel.put(time_ms, position if first < 0 else first, position, count)
        self.waiting += -1 if unit.magic & DELETE else 1
        if time_ms > self.latest_ms:
            self.latest_ms = time_ms
        if time_ms < self.read_time_ms:
            # The clock went back.
            self.read_time_ms = time_ms
        return True

    def chain(self, time_ms: int) -> Chain | None:
        """The chain of that slot, to be walked; None for an empty one."""
        slot = self.wheel.slot(time_ms)
        return None if slot is None else Chain(time_ms, slot.last)

    def walk(self, chain: Chain, steps: int) -> bool:
        """Continue the walk of a chain; whether it is complete. Raises: NotInMemory, OSError.

        A chain ends at the first unit of its slot, and where the timer log begins.
        """
        slot = self.wheel.slot(chain.time_ms)
        assert slot is not None, chain.time_ms
        first = max(slot.first, 0)
        enough = len(chain) + steps
        while len(chain) < enough:
            if chain.next < first:
                return True
            units = self.log.chained(chain.next, first, enough - len(chain))
            if not units.units:
                if chain.next >= self.log.begin:
                    log.error("timer.chain_broken", time_ms=chain.time_ms, position=chain.next)
                chain.next = NO_UNIT
                return True
            chain.take(units)
        return False

    def settle(self, chain: Chain, done: int) -> bool:
        """Remove the first `done` timers of a walked chain; whether the slot is empty.

        Others may have been added to the slot since.
        """
        slot = self.wheel.slot(chain.time_ms)
        assert slot is not None, chain.time_ms
        whole = done == len(chain)
        if whole and slot.last == chain.last:
            self.waiting -= slot.timers
            self.wheel.clear(chain.time_ms)
            if chain.time_ms == self.read_time_ms:
                # At once, because a Java broker fills emptied slots again from the time on that
                # the check file has.
                self.read_time_ms += self.precision_ms
            return True
        net = chain.net(chain.settled, done)
        chain.settled = done
        self.waiting -= net
        # The end of the chain need not be one of its units: what is before it is left out.
        first = chain.last + TIMER_UNIT.size if whole else chain.position(done)
        self.wheel.put(chain.time_ms, first, slot.last, slot.timers - net)
        return False

    def rest_of(self, chain: Chain, done: int) -> list[tuple[int, int]]:
        """Links that reduce a chain to its unfinished timers and the recalls of others in it."""
        kept = map(chain.position, chain.deletions(done))
        return list(pairwise([NO_UNIT, *sorted(kept), chain.position(done)]))

    def shorten(self, chain: Chain, done: int) -> None:
        """Shorten a slot to the rest of its chain, after relinking."""
        slot = self.wheel.slot(chain.time_ms)
        assert slot is not None, chain.time_ms
        kept = chain.deletions(done)
        net = chain.net(chain.settled, done) + len(kept)
        self.waiting -= net
        self.wheel.put(
            chain.time_ms, chain.position(min([*kept, done])), slot.last, slot.timers - net
        )

    def postpone(self, due: DueTimer, now_ms: int, later_ms: int) -> bool:
        """Put a timer that cannot be read now into a slot from so much later on; whether there is
        a free one.
        """
        begin_ms = self.floor(now_ms) + later_ms
        times = range(begin_ms, begin_ms + self.window_ms, self.precision_ms)
        return any(self.add(time_ms, now_ms, due, 0) for time_ms in times)

    def cover(self, record: Record) -> None:
        """Append a unit for the last message that was read, in a slot that was delivered.

        A Java broker reads the wheel topic on behind the message of the last unit.
        """
        due_ms = self.read_time_ms - self.precision_ms
        if self.wheel.free_for(due_ms):
            place, size = record.physical_offset, record.size
            unit = TimerUnit(TIMER_UNIT.size, NO_UNIT, TIMER, due_ms, 0, place, size, 0)
            self.log.append(unit)

    # ── Saving ──

    @property
    def changed(self) -> bool:
        """Whether there are changes since the last save."""
        return (
            self.queue_offset != self._saved_offset
            or self.log.synced != self.log.end
            or self.wheel.dirty
        )

    def saved_check(self) -> TimerCheck:
        """How far the timers are by what is on disk: what another broker could go on from."""
        saved = self.check.value or TimerCheck()
        if self.changed:
            return saved
        # Slots without timers pass without a save.
        return saved._replace(
            last_read_time_ms=self.read_time_ms,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
        )

    def begin_save(self, now_ms: int) -> Save:
        """Take a snapshot. Exactly one of `saved` and `not_saved` follows before the next one."""
        old = self.check.value or TimerCheck()
        check = TimerCheck(
            self.read_time_ms,
            self.log.end,
            self.queue_offset,
            self.queue_offset,
            old.state_version,
            now_ms,
            old.counter + 1,
        )
        return Save(self.log.take_unwritten(), self.wheel.take_dirty(), check)

    def write(self, save: Save) -> list[MappedFile]:
        """Write units to their files; returns the new files. For a thread. Raises: OSError."""
        return self.log.write(save.units)

    def written(self, save: Save, made: list[MappedFile]) -> None:
        """Record that the units are in their files."""
        self.log.take_over(save.units, made)

    def write_slots(self, save: Save) -> None:
        """Write slots to their file. For a thread; the units must be on disk. Raises: OSError."""
        if save.slots:
            self.wheel.write(save.slots)

    def sync_units(self, save: Save) -> None:
        """For a thread. Raises: OSError."""
        if save.check.flushed_position > self.log.synced:
            self.log.sync(self.log.synced, save.check.flushed_position)

    def sync_slots(self, save: Save) -> None:
        """For a thread. Raises: OSError."""
        if save.slots:
            self.wheel.sync()

    def write_check(self, save: Save) -> None:
        """For a thread; everything else must be on disk. Raises: OSError."""
        self.check.write(save.check)

    def sync_check(self) -> None:
        """For a thread. Raises: OSError."""
        self.check.sync()

    def saved(self, save: Save) -> None:
        """Record that all of it is on disk."""
        self.log.synced = save.check.flushed_position
        self.check.value = save.check
        self._saved_offset = save.check.queue_offset

    def not_saved(self, save: Save) -> None:
        """Record a failure: its changes are part of the next save."""
        self.wheel.give_back(save.slots)

    # ── The start ──

    def load(
        self,
        *,
        clean: bool,
        queue: range,
        now_ms: int,
        queue_offset_of: Callable[[int], int],
        slots_of: Callable[[int], Iterable[int]],
    ) -> None:
        """Load the state from disk. `queue` are the offsets of the wheel topic.

        `queue_offset_of` returns the queue offset of a record of the commit log, −1 without one;
        `slots_of` the times of slots that messages of the wheel topic ask for, from one on.
        Raises: StoreRefused with file and remedy in the text, OSError.
        """
        try:
            self._load(clean, queue, self.floor(now_ms), queue_offset_of)
        except StoreDamaged as error:
            raise StoreRefused(str(error)) from error
        self.read_time_ms = self.floor(now_ms)
        self.waiting = 0
        for time_ms, slot in self.wheel.chains():
            self.read_time_ms = min(self.read_time_ms, time_ms)
            self.latest_ms = max(self.latest_ms, time_ms)
            self.waiting += slot.timers
        self._saved_offset = self.queue_offset
        if not self.waiting and (unread := list(slots_of(self.queue_offset))):
            before = [unit.due_ms for unit in self.log.newest(STEP_UNITS)]
            self._keep_precision(_step_of([*unread, *before]))
        if self.waiting:
            log.info("timer.loaded", timers=self.waiting, queue_offset=self.queue_offset)

    def _load(
        self, clean: bool, queue: range, now_ms: int, queue_offset_of: Callable[[int], int]
    ) -> None:
        check = self.check.load()
        self.log.load()
        if check is None:
            self.wheel.forget()
            self.log.cut(0)
            self.queue_offset = queue.start
            return
        flushed, there = check.flushed_position, self.log.end
        flushed_end = max(self.log.begin, min(flushed, there))
        flushed_end -= flushed_end % self.log.queue.file_size % TIMER_UNIT.size
        end = self._end_of_units(flushed_end, check.queue_offset, queue_offset_of)
        check = check._replace(flushed_position=end)
        begin_ms = check.last_read_time_ms
        self._keep_precision(self._precision_of_slots(begin_ms))
        believable = self.wheel.load(begin_ms, self.log.may_be_unit, self.log.unit)
        believable = believable and self._set_back(check)
        self.log.cut(end)
        believable = believable and self._has_units(flushed_end, begin_ms)
        lost = there < flushed or (flushed > 0 and self.log.last_unit() is None)
        if lost:
            self._cut_behind_units()
        if lost or not believable:
            self.wheel.forget()
            self._keep_precision(self._precision_of_units(begin_ms))
            self._rebuild(begin_ms, now_ms)
        offset = min(check.queue_offset, check.master_queue_offset)
        believed = clean and offset <= queue.stop and not lost
        last = None if believed else self.log.last_unit()
        known = -1 if last is None else queue_offset_of(last.physical_offset)
        if known >= 0 or lost:
            # A check file of the Java broker may be ahead of the timer log.
            offset = min(offset, known + 1)
        self.queue_offset = max(queue.start, min(offset, queue.stop))
        if lost:
            # Timers delivered since come twice, but none is lost.
            path = str(self.log.queue.directory)
            log.warning(
                "timer.log_lost",
                path=path,
                queue_offset=self.queue_offset,
                expected=check.queue_offset,
            )

    def _cut_behind_units(self) -> None:
        """End the timer log behind its last unit."""
        end = self.log.begin
        for position, _ in self.log.units(end):
            end = position + TIMER_UNIT.size
        self.log.cut(end)

    def _end_of_units(
        self, flushed_end: int, queue_offset: int, queue_offset_of: Callable[[int], int]
    ) -> int:
        """The end of the units that the check file covers, even if it says less.

        The units of all messages before its queue offset are among them: a cut would lose them.
        """
        end = flushed_end
        for position, unit in self.log.units(flushed_end):
            if not 0 <= queue_offset_of(unit.physical_offset) < queue_offset:
                break
            end = position + TIMER_UNIT.size
        return end

    def _has_units(self, flushed_end: int, begin_ms: int) -> bool:
        """Whether the wheel has the units behind the place that the check file tells.

        A Java broker that ends writes how far it has read, and no wheel since its last flush.
        """
        for position, unit in self.log.units(flushed_end):
            slot = self.wheel.slot(unit.due_ms)
            if unit.due_ms >= begin_ms and (slot is None or slot.last < position):
                return False
        return True

    def _set_back(self, check: TimerCheck) -> bool:
        """Set slots that were saved after the check file back to its state.

        False when the slots are not plausible.
        """
        end = min(check.flushed_position, self.log.end)
        for time_ms, slot in list(self.wheel.chains()):
            position, count = slot.last, slot.timers
            while position >= end:
                unit = self.log.unit(position)
                if unit is None or unit.due_ms != time_ms:
                    return False
                count += 1 if unit.magic & DELETE else -1
                position = unit.previous
            if position < max(slot.first, 0):
                self.wheel.clear(time_ms)
            elif position != slot.last:
                self.wheel.put(time_ms, slot.first, position, count)
        return True

    def _keep_precision(self, found_ms: int) -> None:
        """Keep the step in which waiting timers were stored: their chains depend on it.

        The configured step applies from the first start without waiting timers.
        """
        if found_ms != self.precision_ms:
            log.warning(
                "timer.precision_kept",
                path=str(self.wheel.path),
                precision_ms=found_ms,
                configured_ms=self.precision_ms,
            )
            self.precision_ms = self.wheel.precision_ms = found_ms

    def _precision_of_slots(self, begin_ms: int) -> int:
        """The step of the wheel, by the numbers of slots and the times of their last units."""
        for slot in self.wheel.stored():
            if slot.time > 0 and slot.time * PRECISION_MAX_MS >= begin_ms:
                unit = self.log.unit(slot.last)
                if unit is not None and unit.due_ms >= begin_ms and not unit.due_ms % slot.time:
                    return unit.due_ms // slot.time
        return self.precision_ms

    def _precision_of_units(self, begin_ms: int) -> int:
        """The step that gives every time its own slot, by the chains of the timer log."""
        common = latest_ms = 0
        for _, unit in self.log.units(self.log.begin):
            if unit.due_ms >= begin_ms:
                common = gcd(common, unit.due_ms)
                latest_ms = max(latest_ms, unit.due_ms)
        turn_ms = self.wheel.slots * self.precision_ms
        if not common % self.precision_ms and latest_ms < begin_ms + turn_ms:
            return self.precision_ms
        return _step_of([common])

    def _rebuild(self, begin_ms: int, now_ms: int) -> None:
        """Rebuild the wheel from the timer log."""
        wheel = self.wheel
        in_the_way: list[TimerUnit] = []
        for position, unit in self.log.units(self.log.begin):
            time_ms = unit.due_ms
            if time_ms < begin_ms:
                continue
            if not wheel.free_for(time_ms):
                in_the_way.append(unit)
            else:
                slot = wheel.slot(time_ms) or WheelSlot(0, position, position, 0)
                count = slot.timers + (-1 if unit.magic & DELETE else 1)
                wheel.put(time_ms, slot.first, position, count)
        for unit in in_the_way:
            self._roll_at_once(unit, now_ms)
        log.warning("timer.wheel_rebuilt", path=str(wheel.path), end=self.log.end)

    def _roll_at_once(self, unit: TimerUnit, now_ms: int) -> None:
        """Put a timer whose slot is used for another time into a slot from which it is rolled."""
        magic = unit.magic | ROLL
        due = DueTimer(unit.physical_offset, unit.record_size, magic, unit.write_time_ms)
        free = range(now_ms, now_ms + self.wheel.turn_ms, self.precision_ms)
        any(self.add(time_ms, now_ms, due, unit.topic_hash) for time_ms in free)

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self.wheel.close()
