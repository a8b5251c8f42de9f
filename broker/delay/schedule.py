"""Delivers delayed messages: from the queue of a level to the topic that a message was sent to.

Each level is a queue in the order of the log, so only its first message need be checked. Due
messages are stored in slices with a pause after each, so that a hundred thousand messages due in
one second leave the loop to others. A level whose next message cannot be stored keeps its offset
and tries again; the others continue. A message that the disk cannot read is left, and holds up no
other: it is tried again every minute, after starts as well.

Invariant: the offset of a level moves in the same step in which its message is stored in its
target. Its file is written only once that copy is on disk, so an offset never refers to a lost
copy, and a crash repeats what was delivered since the last save. Source: semantics §8
(ScheduleMessageService).
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.core.puts import Copy
from aerobee.broker.counters.broker_stats import DELAY
from aerobee.broker.delay.delay_levels import how_many_due, target_of
from aerobee.broker.delay.level_waits import LevelWaits
from aerobee.broker.errors import CONTENT_ERRORS
from aerobee.store.errors import NotInMemory, RecordDamaged, Unreadable
from aerobee.store.format.copies import stored_messages
from aerobee.store.format.record import records
from aerobee.store.format.system_names import SCHEDULE_TOPIC as TOPIC
from aerobee.store.format.unit import code_of, is_due_time
from aerobee.store.results import UNSTORABLE, Location, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.delay.delay_offsets import DelayOffsetTable
    from aerobee.store.format.copies import StoredMessage
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.results import GetResult

FIRST_S: Final = 1.0
"""How long after the start the levels are checked first."""
TICK_S: Final = 0.05
"""Seconds between two checks of all levels."""
SLICE: Final = 256
"""Messages per step, 1 to 2 ms."""
SLICE_BYTES: Final = 1 << 20
PACE_S: Final = 0.0115
"""Seconds from one slice to the next: 100,000 messages in 4.5 s, with a seventh of the loop."""
LATE_S: Final = 0.1
"""How much of the time lost by waking late is caught up."""
AGAIN_S: Final = 60.0
"""When messages are tried again that the disk could not read."""
GROUP: Final = "SCHEDULE_CONSUMER"
"""The consumer group of the delay levels in statistics, named as in the Java broker."""
PUT_OK: Final = PutStatus.PUT_OK
SERVICE: Final = "schedule"
_new = tuple.__new__

log = structlog.stdlib.get_logger(__name__)


class Schedule:
    """The service. `offsets` has the progress of each level."""

    def __init__(self, core: Core, offsets: DelayOffsetTable) -> None:
        self._store = core.store
        self._puts = core.puts
        self._stats = core.stats
        self._clock = core.clock
        self._offsets = offsets
        self._delays_ms = core.store.levels.delays_ms
        self._waits: dict[int, LevelWaits] = {}
        self._levels = range(0)
        self._planned = 0.0
        """When the next slice should begin."""
        self._again_at = 0.0
        self.blocked: dict[int, str] = {}
        """Levels that cannot continue, and why."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Deliver until cancelled."""
        task_status.started()
        await trio.sleep(FIRST_S)
        while True:
            await self.tick()
            await trio.sleep(TICK_S)

    async def tick(self) -> None:
        """Deliver all that is due, a slice of each level in turn, until nothing is."""
        if not self._levels:
            self._levels = range(1, self._last_level() + 1)
        busy = True
        while busy:
            busy = any([await self.deliver(level) for level in self._levels])
        if self._offsets.left and self._clock.monotonic() >= self._again_at:
            await self._try_again()
            self._again_at = self._clock.monotonic() + AGAIN_S

    def _last_level(self) -> int:
        """The highest level with a queue: levels removed from the table may still hold messages."""
        queues = (queue_id for topic, queue_id in self._store.queues.table if topic == TOPIC)
        return max(len(self._delays_ms), max(queues, default=-1) + 1)

    async def deliver(self, level: int) -> bool:
        """Deliver a slice of one level; whether there may be more to deliver now."""
        queue = self._store.queues.find(TOPIC, level - 1)
        if queue is None or self._puts.closed:
            return False
        at = self._place(level, queue)
        self._look(level, queue.end_offset)
        if at == queue.end_offset:
            return False
        try:
            try:
                due = self._due(level, queue, at)
            except (NotInMemory, Unreadable):
                some = partial(self._due, level, queue, at)
                due = await self._store.complete_some(some, SLICE)
        except OSError as error:
            if isinstance(error, Unreadable) and self._offsets.leave(level, at):
                self._store.aside.unreadable(SERVICE, Location(TOPIC, level - 1, at, -1), error)
                return True
            self._block(level, f"its messages cannot be read: {error}")
            return False
        if due is None:
            return False
        began = trio.current_time()
        went_on = self._hand_over(level, at, due)
        self._puts.finish_round()
        # Slices keep to a schedule: one that woke late does not delay the next. But never use more
        # than half of the loop, however slow the machine is.
        ended = trio.current_time()
        planned = self._planned if began < self._planned + LATE_S else began
        self._planned = planned + PACE_S
        await trio.sleep_until(max(self._planned, ended + (ended - began)))
        return went_on

    async def _try_again(self) -> None:
        """Deliver the messages that were left, as far as they can be read now."""
        for level, offsets in list(self._offsets.left.items()):
            queue = self._store.queues.find(TOPIC, level - 1)
            for at in sorted(offsets):
                if queue is None or self._puts.closed:
                    return
                try:
                    due = await self._store.complete(partial(self._due, level, queue, at, 1))
                except OSError:
                    continue
                if due is not None and not self._hand_over(level, at, due):
                    break
                self._puts.finish_round()

    # ── Finding ──

    def _look(self, level: int, end_offset: int) -> None:
        """Note how long the messages of the level have waited."""
        if level <= len(self._delays_ms):
            delay_s = self._delays_ms[level - 1] / 1000
            if (waits := self._waits.get(level)) is None:
                waits = self._waits[level] = LevelWaits(delay_s)
            waits.look(end_offset, self._clock.monotonic())

    def _place(self, level: int, queue: ConsumeQueue) -> int:
        """Where the level continues; the clean-up may have deleted messages that were not
        delivered.
        """
        at = self._offsets.offset(level)
        inside = min(max(at, queue.min_offset), queue.end_offset)
        if inside != at:
            self._offsets.move(level, inside)
            log.warning("schedule.moved", level=level, delay_offset=at, queue_offset=inside)
        return inside

    def _due(self, level: int, queue: ConsumeQueue, at: int, most: int = SLICE) -> GetResult | None:
        """Due messages, at most so many; None when the first is not due.

        Raises: NotInMemory, OSError.
        """
        tags_codes = self._store.reader.tags_codes
        now_ms, waited = self._clock.now_ms(), self._waited(level, at)
        first = tags_codes(queue, at, 1)
        if not first:
            # A file of the queue is missing: the result says where the next one begins.
            return self._store.get(TOPIC, level - 1, at, 1)
        if not is_due_time(first[0]):
            return self._due_by_records(level, queue, at, most, now_ms, waited)
        if not how_many_due(first, now_ms, waited):
            return None
        return self._get(level, at, how_many_due(tags_codes(queue, at, most), now_ms, waited))

    def _waited(self, level: int, at: int) -> int | None:
        """How many messages from `at` on have waited for their delay, by the monotonic clock."""
        waits = self._waits.get(level)
        return None if waits is None else max(0, waits.waited_to - at)

    def _due_by_records(
        self, level: int, queue: ConsumeQueue, at: int, most: int, now_ms: int, waited: int | None
    ) -> GetResult | None:
        """As `_due`, for units without a due time; reads more than one when the first is due."""
        result = self._get(level, at, 1)
        if not result.count:
            return result
        if not how_many_due(self._due_times(result, now_ms), now_ms, waited):
            return None
        tags_codes = self._store.reader.tags_codes(queue, at, most)
        count = sum(1 for _ in takewhile(lambda code: not is_due_time(code), tags_codes))
        result = self._get(level, at, count)
        return self._get(level, at, how_many_due(self._due_times(result, now_ms), now_ms, waited))

    def _due_times(self, result: GetResult, now_ms: int) -> list[int]:
        """The due times in the records, up to a damaged one; one without a level is due now."""
        times: list[int] = []
        try:
            for record in records(result.views):
                stored_ms, levels = record.store_timestamp, self._store.levels
                code = code_of(TOPIC, record.properties, stored_ms, levels)
                times.append(code if is_due_time(code) else now_ms)
        except RecordDamaged:
            times.append(now_ms)
        return times

    def _get(self, level: int, at: int, count: int) -> GetResult:
        """Consecutive messages without a gap."""
        get = partial(self._store.get, TOPIC, level - 1, at, max_bytes=SLICE_BYTES)
        result = get(max_messages=count, max_count=count)
        if result.count and result.next_begin_offset != at + result.count:
            # Some in between were deleted or damaged: reading them one by one shows which.
            result = get(max_messages=1, max_count=1)
        return result

    # ── Delivering ──

    def _hand_over(self, level: int, at: int, result: GetResult) -> bool:
        """Store each message in its target, until one is refused; whether none was.

        Nothing awaits in here: the messages and the offset of the level change together.
        """
        if not result.count:
            gone = result.next_begin_offset
            self._offsets.go_on(level, at, gone)
            log.error("schedule.lost", level=level, delay_offset=at, queue_offset=gone)
            return True
        messages, damage = stored_messages(result.views)
        done, status = self._put(level, self._copies(messages))
        following = result.next_begin_offset
        if status is not PUT_OK:
            following = messages[done].queue_offset
        elif damage is not None:
            broken = messages[-1].queue_offset + 1 if messages else at
            self._store.aside.note(SERVICE, Location(TOPIC, level - 1, broken, -1), str(damage))
            following = broken + 1
        if following > at:
            self._offsets.delivered(level, at, following, done, self._clock.now_ms())
            counts = self._stats.group_out(GROUP, TOPIC)
            counts.messages_out += done
            counts.bytes_out += sum(message.size for message in messages[:done])
        if status is not PUT_OK:
            self._block(level, status.name)
        elif self.blocked.pop(level, None):
            log.info("schedule.unblocked", level=level)
        return status is PUT_OK

    def _copies(self, messages: Sequence[StoredMessage]) -> list[Copy]:
        """Messages with their targets; one without says why. Hot."""
        is_deleted = self._puts.is_deleted
        copies: list[Copy] = []
        for message in messages:
            properties = message.properties
            target, reason = None, "it does not say where it goes"
            try:
                goal = target_of(properties)
            except CONTENT_ERRORS as error:
                goal, reason = None, f"{type(error).__name__}: {error}"
            if goal is not None:
                if is_deleted(goal.topic, message):
                    reason = f"{goal.topic} was deleted"
                else:
                    target, reason = goal, ""
            # As Copy(…) does it, in half of its time.
            copies.append(_new(Copy, (message, properties, target, reason)))
        return copies

    def _put(self, level: int, copies: Sequence[Copy]) -> tuple[int, PutStatus]:
        """Store messages; how many are done, and the status of the next one.

        A message that can never be stored is set aside.
        """
        done, status = 0, PUT_OK
        for begin, result in self._puts.put_copies(copies):
            done, status = begin + result.count, result.status
            target = copies[begin].target
            if target is not None and result.count:
                self._stats.topic_in(target.topic, DELAY).put(result.count, result.size)
            if status in UNSTORABLE:
                message, _, _, reason = copies[done]
                where = Location(TOPIC, level - 1, message.queue_offset, message.physical_offset)
                self._store.aside.note(SERVICE, where, reason or status.name)
                done, status = done + 1, PUT_OK
        return done, status

    def _block(self, level: int, reason: str) -> None:
        """Keep the offset and try again with the next tick."""
        if not self._puts.closed and self.blocked.get(level) != reason:
            self.blocked[level] = reason
            log.warning("schedule.blocked", level=level, reason=reason)
