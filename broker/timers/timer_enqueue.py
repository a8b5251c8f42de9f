"""Reads the wheel topic once, in order: each message gets its slot, or is delivered at once.

A message due beyond the window gets an earlier slot, from which it is rolled. Before a timer is
delivered late, because the broker was down or the loop lags, the rest of the topic is searched for
its recall. A message that its owner has declared `needless` by then is passed over. Source:
semantics §9.4 (TimerEnqueueGetService, TimerEnqueuePutService).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import structlog
import trio

from aerobee.broker.core.unreadable import read_or_tell
from aerobee.broker.errors import CONTENT_ERRORS
from aerobee.broker.timers.timer_delivery import POSTPONED_MS, SERVICE
from aerobee.broker.timers.timer_properties import ROLLED, TimerProperties, delete_keys
from aerobee.store.format.properties import value_of
from aerobee.store.format.record import records
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.tags import java_hash
from aerobee.store.format.timer import DELETE, ROLL, TIMER, slot_time
from aerobee.store.results import Location, location_of
from aerobee.store.timers.timer_chain import DueTimer

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.timers.timer_delivery import TimerPuts
    from aerobee.store.format.record import Record
    from aerobee.store.results import GetResult
    from aerobee.store.timers.timer_store import TimerStore

POLL_S: Final = 0.1
READ_MAX: Final = 64
PASS_MAX: Final = 10_000
"""Messages that are passed over in one step: about a millisecond."""
READ_BYTES: Final = 1 << 20
UNWRITTEN_BYTES_MAX: Final = 8 << 20
"""Unwritten bytes of the timer log: on a full disk reading stops, and the wheel topic has the
rest."""
RECALLS_AHEAD_MAX: Final = 100_000
"""A late timer whose recall is behind so many others is delivered."""

log = structlog.stdlib.get_logger(__name__)


class Recall(NamedTuple):
    """The timer that a recall cancels: topic, unique key and slot."""

    topic: str
    unique_key: str
    out_ms: int


def _recalls(record: Record, timed: TimerProperties) -> list[Recall]:
    named = delete_keys(record.properties, timed.topic)
    return [Recall(topic, key, timed.out_ms) for topic, key in named]


class TimerEnqueue:
    """The loop over the wheel topic."""

    def __init__(self, core: Core, timers: TimerStore, timer_puts: TimerPuts) -> None:
        self._store = core.store
        self._puts = core.puts
        self._stats = core.stats
        self._clock = core.clock
        self._pace = core.pace()
        self._timers = timers
        self._timer_puts = timer_puts
        self.last_store_timestamp = 0
        """Of the last message read, in ms."""
        self.recalls_ahead: dict[Recall, int] = {}
        """Recalls found by a search and not read yet: queue offset of the last one for each
        timer."""
        self._searched_to = 0
        """Queue offset up to which the topic was searched for recalls."""
        self._searched_ms = 0
        """The time of the last search: a timer late since then may have a newer recall."""
        self._search_due = False
        self.needless: set[int] = set()
        """Queue offsets of unread messages that need no timer any more: their owners add them."""

    @property
    def behind(self) -> int:
        """Unread messages of the wheel topic."""
        return max(0, self._store.max_offset(WHEEL_TOPIC, 0) - self._timers.queue_offset)

    async def run(self) -> NoReturn:
        """Read new messages, until cancelled. Raises: OSError."""
        while True:
            self._pace.begin()
            while await self.round():
                if self._pace.over():
                    await self._pace.rest()
            await trio.sleep(POLL_S)

    async def round(self) -> bool:
        """Read some; False when there is nothing to read, or no room. Raises: OSError."""
        timers = self._timers
        if timers.log.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            return False
        begin = self._pass_needless()
        result = await self._got(begin, self._together(begin))
        if result is None:
            return await self._postpone(begin)
        if not result.count:
            if result.next_begin_offset <= begin:
                return False
            log.warning("timer.queue_jumped", old=begin, new=result.next_begin_offset)
            timers.queue_offset = result.next_begin_offset
            self.needless.difference_update(range(begin, timers.queue_offset))
            return True
        whole = self._take(result)
        if self._search_due:
            self._search_due = False
            await self._search()
            return True
        return whole

    async def _got(self, begin: int, most: int) -> GetResult | None:
        """Messages from there on; None where the disk cannot read the first. Raises: OSError."""
        first = Location(WHEEL_TOPIC, 0, begin, -1)
        return await read_or_tell(self._store, SERVICE, partial(self._get, begin), most, first)

    async def _postpone(self, begin: int) -> bool:
        """Have a message that the disk cannot read now put into the wheel topic again, later: its
        time is not known. False: there is no slot for it. Raises: OSError.
        """
        queue = self._store.queues.find(WHEEL_TOPIC, 0)
        assert queue is not None, begin
        unit = await self._store.complete(partial(queue.unit, begin, self._store.reader.cold.units))
        now_ms = self._clock.now_ms()
        if unit is not None:
            due = DueTimer(unit.physical_offset, unit.size, TIMER | ROLL, now_ms)
            if not self._timers.postpone(due, now_ms, POSTPONED_MS):
                return False
        self._timers.queue_offset = begin + 1
        return True

    def _pass_needless(self) -> int:
        """Pass over messages that need no timer, unread; returns the first that may need one."""
        needless = self.needless
        at = self._timers.queue_offset
        if at in needless:
            end = min(self._store.max_offset(WHEEL_TOPIC, 0), at + PASS_MAX)
            while at < end and at in needless:
                needless.remove(at)
                at += 1
            self._timers.queue_offset = at
            # They are not read, but the next one may be as new as this.
            self.last_store_timestamp = self._clock.now_ms()
        return at

    def _together(self, begin: int) -> int:
        """How many messages from there on to read at once: up to one that needs no timer."""
        if not self.needless:
            return READ_MAX
        end = begin + 1
        while end - begin < READ_MAX and end not in self.needless:
            end += 1
        return end - begin

    async def _search(self) -> None:
        """Search the rest of the topic for recalls. Raises: OSError."""
        began_ms = self._timers.floor(self._clock.now_ms())
        self._searched_to = max(self._searched_to, self._timers.queue_offset)
        while self._searched_to < self._store.max_offset(WHEEL_TOPIC, 0):
            begin = self._searched_to
            result = await self._got(begin, READ_MAX)
            self._searched_to = max(begin + 1, 0 if result is None else result.next_begin_offset)
            if result is not None:
                with suppress(*CONTENT_ERRORS):  # set aside when its turn comes
                    self._note_recalls(result)
            if self._pace.over():
                await self._pace.rest()
        # Only when it is complete: a search that the disk broke off has not seen all recalls.
        self._searched_ms = began_ms

    def _note_recalls(self, result: GetResult) -> None:
        for record in records(result.views):
            timed = TimerProperties.of(record.properties)
            if timed is not None and timed.deletes and len(self.recalls_ahead) < RECALLS_AHEAD_MAX:
                for recall in _recalls(record, timed):
                    self.recalls_ahead[recall] = record.queue_offset

    def _get(self, queue_offset: int, most: int) -> GetResult:
        return self._store.get(
            WHEEL_TOPIC, 0, queue_offset, most, max_bytes=READ_BYTES, max_count=most
        )

    def _take(self, result: GetResult) -> bool:
        timers = self._timers
        now_ms = timers.floor(self._clock.now_ms())
        if now_ms < self._searched_ms:
            # The clock went back: what it takes for late now may have been recalled since.
            self._searched_ms = self._searched_to = 0
        aside = self._store.aside
        stored = True
        for record in aside.records(SERVICE, result, WHEEL_TOPIC, 0, timers.queue_offset):
            if record.queue_offset in self.needless:
                self.needless.remove(record.queue_offset)
            else:
                try:
                    stored = self._take_one(record, now_ms)
                except CONTENT_ERRORS as error:
                    aside.take(SERVICE, location_of(record), error)
                if not stored:
                    break
            timers.queue_offset = record.queue_offset + 1
            self.last_store_timestamp = record.store_timestamp
        else:
            timers.queue_offset = max(timers.queue_offset, result.next_begin_offset)
        self._puts.finish_round()
        return stored

    def _take_one(self, record: Record, now_ms: int) -> bool:
        """Give a message its slot, or deliver it; False: retry later."""
        timed = TimerProperties.of(record.properties)
        if timed is None:
            self._store.aside.note(SERVICE, location_of(record), "it says no time or no target")
            return True
        if timed.deletes and self.recalls_ahead:
            self._pass(record, timed)
        if timed.out_ms < now_ms:
            return timed.deletes or self._deliver(record, timed)
        return self._add(record, timed, now_ms)

    def _add(self, record: Record, timed: TimerProperties, now_ms: int) -> bool:
        """Give a timer its slot; False while that slot is used for another time."""
        timers = self._timers
        time_ms, magic = slot_time(timed.out_ms, now_ms, timers.window_ms, timers.precision_ms)
        if timed.deletes:
            magic |= DELETE
        due = DueTimer(record.physical_offset, record.size, magic, now_ms)
        if not timers.add(time_ms, now_ms, due, java_hash(timed.topic)):
            return False
        self._timer_puts.count(timed.topic, -1 if timed.deletes else 1)
        stats = self._stats.timer(timed.topic)
        stats.enqueued += 1
        if not timed.deletes and ROLLED not in record.properties:
            stats.latency.add((timed.out_ms - record.store_timestamp) / 1000)
        return True

    def _pass(self, record: Record, timed: TimerProperties) -> None:
        for recall in _recalls(record, timed):
            if self.recalls_ahead.get(recall) == record.queue_offset:
                del self.recalls_ahead[recall]

    def _deliver(self, record: Record, timed: TimerProperties) -> bool:
        """Deliver a late timer now, unless it was, or is recalled. False: retry later."""
        if self._timer_puts.done.covers(record.queue_offset, timed.out_ms):
            return True
        if record.queue_offset >= self._searched_to or timed.out_ms >= self._searched_ms:
            self._search_due = True
            return False
        if self.recalls_ahead:
            key = value_of(record.properties, b"UNIQ_KEY") or ""
            if Recall(timed.topic, key, timed.out_ms) in self.recalls_ahead:
                return True
        return self._timer_puts.put(record, timed, self._clock.now_ms())
