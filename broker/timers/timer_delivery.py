"""Delivers the timers of due slots: to their target topic, or into the wheel again.

The chain of a slot is walked first, then its messages are read and put a few at a time, the oldest
first. Delivered timers are removed from the slot as it goes, so a kill in between repeats little;
where some timers of a slot are recalled, the slot is unchanged until all of it is done, or until a
clean stop leaves the rest of it. A put that the store refuses is retried for as long as it takes.
Source: semantics §9.4 (TimerMessageStore).
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.core.drafts import Target, draft_again
from aerobee.broker.core.names import is_deliverable
from aerobee.broker.core.puts import Copy
from aerobee.broker.core.unreadable import read_or_tell
from aerobee.broker.errors import CONTENT_ERRORS
from aerobee.broker.timers.timer_properties import TimerProperties, come_back, delete_keys
from aerobee.store.errors import RecordDamaged
from aerobee.store.format.copies import stored
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, value_of
from aerobee.store.format.record import read
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.timer import DELETE, ROLL
from aerobee.store.results import UNSTORABLE, Location, PutStatus, location_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.timers.timers_done import TimersDone
    from aerobee.broker.timers.timing_counts import TimingCounts
    from aerobee.store.format.record import Record
    from aerobee.store.timers.timer_chain import Chain, DueTimer
    from aerobee.store.timers.timer_store import TimerStore

RETRY_S: Final = 0.5
"""The pause before a refused put is retried."""
READ_MAX: Final = 256
READ_BYTES: Final = 1 << 20
"""Messages read and put before others may get their turn, 1 to 2 ms."""
POSTPONED_MS: Final = 60_000
"""When a timer is tried again that the disk could not read."""
WALK_STEPS: Final = 2_000
"""Units of a chain that are read in one step, about 1 ms."""
EMPTY_SLOTS: Final = 5_000
"""Empty slots passed in one step, about 2 ms."""
SERVICE: Final = "timers"
"""The service name for messages that were set aside."""

_target = lru_cache(maxsize=4_096)(Target)
_new = tuple.__new__

log = structlog.stdlib.get_logger(__name__)


class TimerPuts:
    """Puts a timer into its target, and counts it."""

    def __init__(self, core: Core, counts: TimingCounts, done: TimersDone) -> None:
        self.counts = counts
        self.done = done
        self._puts = core.puts
        self._clock = core.clock
        self._stats = core.stats
        self._aside = core.store.aside

    def count(self, topic: str, timers: int) -> None:
        """Count `timers` more waiting for this topic."""
        self.counts.add(topic, timers, self._clock.now_ms())

    def put(
        self, record: Record, timed: TimerProperties, enqueued_ms: int, *, roll: bool = False
    ) -> bool:
        """Put it into its target, or with `roll` into the wheel again; False: retry later.

        A timer without a valid target is set aside, and one that another master has delivered is
        done.
        """
        if self.done.covers(record.queue_offset, timed.out_ms):
            return True
        try:
            return self._put(record, timed, enqueued_ms, roll=roll)
        except CONTENT_ERRORS as error:
            self._aside.take(SERVICE, location_of(record), error)
            return True

    def _put(self, record: Record, timed: TimerProperties, enqueued_ms: int, *, roll: bool) -> bool:
        if not is_deliverable(timed.topic):
            self._aside.note(SERVICE, location_of(record), f"nothing is brought to {timed.topic!r}")
            return True
        if self._puts.is_deleted(timed.topic, record):
            # Before it is rolled, too: the copy would look as if it had come after the deletion.
            self._aside.note(SERVICE, location_of(record), f"{timed.topic} was deleted")
            return True
        topic, queue_id = (WHEEL_TOPIC, 0) if roll else (timed.topic, timed.queue_id)
        properties = come_back(record.properties, enqueued_ms, self._clock.now_ms(), roll=roll)
        status = self._puts.put_again(draft_again(record, topic, queue_id, properties)).status
        if status in UNSTORABLE:
            # The properties that we add may exceed the limit; the original ones did not.
            again = draft_again(record, topic, queue_id, record.properties)
            status = self._puts.put_again(again).status
        if status in UNSTORABLE:
            self._aside.note(SERVICE, location_of(record), status.name)
        elif status is not PutStatus.PUT_OK:
            return False
        elif not roll:
            self._stats.timer(timed.topic).dequeued += 1
        return True

    def copies(self, timers: Iterable[tuple[DueTimer, memoryview | None]]) -> list[Copy]:
        """The copies of ordinary timers for their targets, up to the first with more to it. Hot."""
        is_deleted, now_ms = self._puts.is_deleted, self._clock.now_ms()
        covers = self.done.covers if self.done.queue_offset else None
        copies: list[Copy] = []
        with suppress(*CONTENT_ERRORS):
            for due, view in timers:
                if view is None or due.magic & (DELETE | ROLL):
                    break
                message = stored(view)
                timed = TimerProperties.of(message.properties)
                if timed is None or message.topic != WHEEL_TOPIC:
                    break
                if covers is not None and covers(message.queue_offset, timed.out_ms):
                    break
                topic = timed.topic
                if not is_deliverable(topic) or is_deleted(topic, message):
                    break
                properties = come_back(message.properties, due.enqueued_ms, now_ms)
                if len(properties) > PROPERTIES_BYTES_MAX:
                    break
                target = _target(topic, timed.queue_id)
                # As Copy(…) does it, in half of its time.
                copies.append(_new(Copy, (message, properties, target, "")))
        return copies

    def put_copies(self, copies: Sequence[Copy]) -> tuple[int, bool]:
        """Put timers into their targets, and count them; how many, and whether the store takes more
        now. The next one may be one that it never takes.
        """
        done = 0
        for begin, result in self._puts.put_copies(copies):
            done = begin + result.count
            target = copies[begin].target
            if target is not None and result.count:
                self.count(target.topic, -result.count)
                self._stats.timer(target.topic).dequeued += result.count
            if result.status is not PutStatus.PUT_OK:
                return done, result.status in UNSTORABLE
        return done, True


class SlotDelivery:
    """A slot whose delivery has begun."""

    __slots__ = ("chain", "deletions", "done", "roll", "taken_back")

    def __init__(
        self, chain: Chain, taken_back: set[tuple[str, str]] | None, *, roll: bool
    ) -> None:
        self.chain = chain
        self.roll = roll
        """Whether all of them go into the wheel again, recalls as well."""
        self.taken_back = taken_back
        """Topic and unique key of recalled timers; None: there are none."""
        self.deletions: list[str] = []
        """Topics of the recalls in the slot, as far as it was processed."""
        self.done = 0
        """How many of the oldest timers were put or skipped."""


class TimerDelivery:
    """The loop over the slots."""

    def __init__(self, core: Core, timers: TimerStore, timer_puts: TimerPuts) -> None:
        self._store = core.store
        self._puts = core.puts
        self._clock = core.clock
        self.pace = core.pace()
        self._timers = timers
        self._timer_puts = timer_puts
        self.begun: dict[int, SlotDelivery] = {}
        """Unfinished slots by their times: their delivery continues where it was."""
        self._far: list[int] = []
        """Times of slots that are too far ahead, the latest first."""
        self.recalled = 0
        """Timers that were recalled in time."""
        self.lost = 0
        """Timers whose messages are no longer in the log."""

    async def run(self) -> NoReturn:
        """Deliver each slot when it is due, until cancelled. Raises: OSError."""
        precision_ms = self._timers.precision_ms
        while True:
            await self.catch_up()
            now_ms = self._clock.now_ms()
            await trio.sleep((precision_ms - now_ms % precision_ms) / 1000)

    async def catch_up(self) -> None:
        """Deliver all due slots, and roll those that are too far ahead. Raises: OSError."""
        timers = self._timers
        self.pace.begin()
        turn_end_ms = timers.read_time_ms + timers.wheel.turn_ms
        while True:
            end_ms = timers.floor(self._clock.now_ms())
            if end_ms <= timers.read_time_ms:
                far_ms = self._next_far(end_ms)
                if far_ms is None:
                    break
                if not await self.deliver(far_ms, roll=True):
                    await trio.sleep(RETRY_S)
                continue
            if timers.read_time_ms >= turn_end_ms:
                # Time jumped by more than a turn: from here on only chains are looked at.
                timers.read_time_ms = min([end_ms, *timers.wheel.times()])
                turn_end_ms = timers.read_time_ms + timers.wheel.turn_ms
            time_ms = self._pass_empty(end_ms, turn_end_ms)
            if time_ms is None:
                await self.pace.rest()
            elif time_ms < end_ms and not await self.deliver(time_ms):
                await trio.sleep(RETRY_S)

    def _pass_empty(self, end_ms: int, turn_end_ms: int) -> int | None:
        """Pass empty slots up to one with timers, the end, or the end of a turn: then its time.
        None: there are more of them than one step passes.
        """
        timers = self._timers
        for _ in range(EMPTY_SLOTS):
            # Read the time once: a clock that goes back may change it meanwhile.
            time_ms = timers.read_time_ms
            if time_ms >= end_ms or timers.wheel.slot(time_ms) is not None:
                return time_ms
            if time_ms >= turn_end_ms:
                break
            timers.read_time_ms = timers.wheel.empty_to(time_ms, end_ms)
        return None

    def _next_far(self, now_ms: int) -> int | None:
        """A slot that is too far ahead, since the clock went back or the window became shorter: its
        timers are rolled.
        """
        timers, far = self._timers, self._far
        reach_ms = timers.reach_ms(now_ms)
        if not far and timers.latest_ms > reach_ms:
            far += timers.beyond(reach_ms)
        while far:
            if far[-1] > reach_ms and timers.wheel.slot(far[-1]) is not None:
                return far[-1]
            far.pop()
        return None

    async def deliver(self, time_ms: int, *, roll: bool = False) -> bool:
        """Deliver one slot, or roll it; False when the store refuses puts now. Raises: OSError."""
        slot = self.begun.get(time_ms) or await self._begin(time_ms, roll=roll)
        chain = slot.chain
        lost = self.lost
        while slot.done < len(chain):
            part = _together(chain.dues(slot.done, READ_MAX))
            views = await self._views(part)
            end = slot.done + max(1, len(views))
            if views:
                slot.done += self._put_all(part[: len(views)], views, slot)
            else:
                slot.done += self._timers.postpone(part[0], self._clock.now_ms(), POSTPONED_MS)
            self._puts.finish_round()
            if slot.done == len(chain):
                break
            if slot.taken_back is None:
                self._timers.settle(chain, slot.done)
            if slot.done < end:
                return False
            if self.pace.over():
                await self.pace.rest()
        # No await in between: a stop there would deliver them a second time.
        self._timers.settle(chain, slot.done)
        del self.begun[time_ms]
        if self.lost > lost:
            log.warning("timer.messages_lost", timers=self.lost - lost, time_ms=time_ms)
        if self.pace.over():
            await self.pace.rest()
        return True

    async def _begin(self, time_ms: int, *, roll: bool) -> SlotDelivery:
        chain = self._timers.chain(time_ms)
        assert chain is not None, time_ms
        while not await self._store.complete(partial(self._timers.walk, chain, WALK_STEPS)):
            await self.pace.rest()
        taken_back = None if roll else await self._taken_back(chain)
        slot = self.begun[time_ms] = SlotDelivery(chain, taken_back, roll=roll)
        return slot

    def _put_all(
        self, part: Sequence[DueTimer], views: Sequence[memoryview | None], slot: SlotDelivery
    ) -> int:
        """Put timers, ordinary ones in a row together; returns how many are finished."""
        done = 0
        while done < len(part):
            count, going = self._timer_puts.put_copies(self._copies(part, views, slot, done))
            done += count
            if not going:
                break
            if done < len(part):
                if not self._put(part[done], views[done], slot):
                    break
                done += 1
        return done

    def _copies(
        self,
        part: Sequence[DueTimer],
        views: Sequence[memoryview | None],
        slot: SlotDelivery,
        at: int,
    ) -> list[Copy]:
        """Copies of the ordinary timers from `at` on, up to the first of another kind."""
        if slot.roll or slot.taken_back is not None:
            return []
        return self._timer_puts.copies(zip(part[at:], views[at:], strict=True))

    def _put(self, due: DueTimer, view: memoryview | None, slot: SlotDelivery) -> bool:
        """Finish any timer; False: retry later."""
        record = _whole(view)
        timed = None if record is None else TimerProperties.of(record.properties)
        if record is None or timed is None or record.topic != WHEEL_TOPIC:
            self.lost += 1
            return True
        count = self._timer_puts.count
        roll = slot.roll or bool(due.magic & ROLL)
        if due.magic & DELETE and not roll:
            count(timed.topic, 1)
            slot.deletions.append(timed.topic)
            return True
        if slot.taken_back and not roll:
            key = value_of(record.properties, b"UNIQ_KEY")
            if (timed.topic, key) in slot.taken_back:
                self.recalled += 1
                count(timed.topic, -1)
                return True
        done = self._timer_puts.put(record, timed, due.enqueued_ms, roll=roll)
        if done:
            count(timed.topic, 1 if due.magic & DELETE else -1)
        return done

    # ── Reading ──

    async def _taken_back(self, chain: Chain) -> set[tuple[str, str]] | None:
        """Topic and unique key of recalled timers; None: there are none."""
        numbers = chain.deletions()
        if not numbers:
            return None
        keys: set[tuple[str, str]] = set()
        done = 0
        while done < len(numbers):
            part = _together(map(chain.due, numbers[done : done + READ_MAX]))
            views = await self._views(part)
            done += max(1, len(views))
            for view in views:
                record = _whole(view)
                timed = None if record is None else TimerProperties.of(record.properties)
                if record is not None and timed is not None:
                    keys |= delete_keys(record.properties, timed.topic)
            await self.pace.rest()
        return keys

    async def _views(self, part: Sequence[DueTimer]) -> Sequence[memoryview | None]:
        """The records of the first of them; none where the disk cannot read the very first, which
        holds up no other. Raises: OSError.
        """
        first = Location(WHEEL_TOPIC, 0, -1, part[0].physical_offset)
        read = await read_or_tell(
            self._store, SERVICE, lambda most: self._read(part[:most]), len(part), first
        )
        return read or []

    def _read(self, part: Sequence[DueTimer]) -> list[memoryview | None]:
        """The records, None for deleted ones. Raises: NotInMemory with all pieces, OSError."""
        return self._store.reader.records([(due.physical_offset, due.size) for due in part])


def _whole(view: memoryview | None) -> Record | None:
    """The record in bytes that may be one."""
    try:
        return None if view is None else read(view)
    except RecordDamaged:
        return None


def _together(dues: Iterable[DueTimer]) -> list[DueTimer]:
    """The first of them, to be read in one step: at least one."""
    part: list[DueTimer] = []
    size = 0
    for due in dues:
        size += due.size
        if part and size > READ_BYTES:
            break
        part.append(due)
    return part
