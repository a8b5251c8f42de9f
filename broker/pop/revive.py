"""Revive: matches check points with acknowledgements, and redelivers unacknowledged messages.

Each revive queue is read once, in order. A check point stays open in memory until all of its
messages are acknowledged, or its time is over: then the rest is put into the retry topic of its
group. The progress of a queue, its oldest open check point, is a consumer offset; a start reads
again from there. A message that cannot be put gets a new check point, later; where that cannot be
put either, the old one stays open. A check point that is not due for long, because the clock was
ahead when it came, goes back to the timers, to wait there with its acknowledgements. Invariant: the
offset of a revive queue is never past an open check point, and is saved only after the messages put
for it are on disk. Behind an open one there may be messages that were put back already: a clean
stop acknowledges them in the revive log, so that the next start, of any broker, puts none of them
back twice. Source: semantics §11.2 (PopReviveService).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import structlog
import trio
from msgspec import UNSET

from aerobee.broker.answers import STORED
from aerobee.broker.core.drafts import draft_again
from aerobee.broker.errors import CONTENT_ERRORS, NameIllegal, Refusal
from aerobee.broker.pop.pop_records import (
    CHECK_POINT_TAG,
    GRACE_MS,
    Ack,
    CheckPoint,
    retry_topic_v1,
    retry_topic_v2,
)
from aerobee.broker.pop.revive_queue import ReviveQueue
from aerobee.broker.send.retries import tried_again
from aerobee.remoting.errors import BodyError
from aerobee.store.errors import MessageIllegal, Unreadable
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, decode, encode, value_of
from aerobee.store.format.system_names import RETRY_PREFIX, REVIVE_GROUP, REVIVE_LOG_PREFIX
from aerobee.store.results import UNSTORABLE, Location, PutStatus, location_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.pop.revive_log import ReviveLog
    from aerobee.broker.pop.revive_queue import OpenCheckPoint
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.store.format.record import Record
    from aerobee.store.message_store import MessageStore

EARLY_MS: Final = 60_000
"""A check point arrives a second before its time; one that is so much earlier goes back to the
timers: the clock was ahead.
"""
SLICE: Final = 128
"""Records read in one step."""
SLICE_BYTES: Final = 1 << 20
AGAIN_S: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delays of repeated attempts to put a message back, by the number of failures."""
PUT_OK: Final = PutStatus.PUT_OK
SERVICE: Final = "revive"
FAR_MS: Final = 366 * 86_400_000
"""A check point arrives when its time is almost over; one with a later time is invalid."""

log = structlog.stdlib.get_logger(__name__)


class Mark(NamedTuple):
    """The end of the timers' queue at a moment, and up to when they had delivered."""

    waiting_end: int
    delivered_ms: int


class Timing:
    """Up to when everything that the timers had to deliver is readable in its target.

    Timer messages are put into a queue that ends at `waiting_end` and is read up to `read_to`: read
    ones are in the wheel. All of those for a time before `delivered_ms` are delivered. That time is
    behind the wall clock, also where the clock went back: what is due after that has not been
    delivered, whatever was while the clock was ahead.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        waiting_end: Callable[[], int],
        read_to: Callable[[], int],
        delivered_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._waiting_end = waiting_end
        self._read_to = read_to
        self._delivered_ms = delivered_ms
        self._mark: Mark | None = None
        self._log_end: int | None = None
        self._until = 0

    def until(self) -> int:
        """That time, in ms; it goes back only with the clock, and then begins anew."""
        now_ms = self._now_ms()
        if self._until > now_ms or (self._mark is not None and self._mark.delivered_ms > now_ms):
            self._mark = self._log_end = None
            self._until = 0
        if self._mark is None:
            self._mark = Mark(self._waiting_end(), min(now_ms, self._delivered_ms()))
        end, delivered_ms = self._mark
        if self._log_end is None and self._read_to() >= end:
            # Messages read since, already late, have set the time back.
            self._mark = Mark(end, min(delivered_ms, self._delivered_ms()))
            self._log_end = self._store.commit_log.max_offset
        if self._log_end is not None and self._store.dispatcher.dispatched >= self._log_end:
            self._until = max(self._until, self._mark.delivered_ms)
            self._mark = self._log_end = None
        return self._until


class Revive:
    """The service."""

    def __init__(
        self,
        core: Core,
        *,
        revive_log: ReviveLog,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        timing: Timing,
    ) -> None:
        self._config = core.config
        self._store = core.store
        self._puts = core.puts
        self._clock = core.clock
        self._host = core.store_host
        self._stats = core.stats.pop
        self._pace = core.pace()
        self._revive_log = revive_log
        self._topics = topics
        self._offsets = offsets
        self._timing = timing
        self.queues: list[ReviveQueue] = []
        self._own_count = 1
        """Queues of the present revive topic."""
        self._blocked = False

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Load the queues, then run periodically until cancelled."""
        self.load()
        task_status.started()
        while True:
            await trio.sleep(self._config.broker.revive_interval_ms / 1000)
            try:
                await self.tick()
            except OSError as error:
                log.error("revive.read_failed", error=str(error))

    def load(self) -> None:
        """Load the revive queues: those of the topic, and others that contain messages."""
        self.queues = []
        self._take_up_new()

    def _take_up_new(self) -> None:
        """Load the revive queues that are not loaded yet.

        A broker that was in another cluster left check points in the revive log of that one.
        """
        own = self._revive_log.topic
        logs = {own, *(name for name in self._topics.configs if name.startswith(REVIVE_LOG_PREFIX))}
        counts = {topic: self._topics.read_queues(topic) for topic in logs}
        self._own_count = counts[own] = max(1, counts[own])
        queues = {(topic, queue) for topic, queue in self._store.queues.table if topic in logs}
        queues.update((topic, at) for topic, count in counts.items() for at in range(count))
        queues.difference_update((queue.topic, queue.queue_id) for queue in self.queues)
        self.queues += [self._take_up(*queue) for queue in sorted(queues)]

    def _take_up(self, topic: str, queue_id: int) -> ReviveQueue:
        """Load a queue from its offset."""
        known = self._offsets.query(REVIVE_GROUP, topic, queue_id)
        return ReviveQueue(topic, queue_id, max(0, known, self._store.min_offset(topic, queue_id)))

    async def tick(self) -> None:
        """Read new records, put back messages that are due. Raises: OSError."""
        if self._puts.closed:
            return
        if self._topics.read_queues(self._revive_log.topic) > self._own_count:
            self._take_up_new()
        # Before the reads: what was delivered by then is read below.
        until_ms = self._timing.until() - GRACE_MS
        self._pace.begin()
        read = [queue for queue in self.queues if await self._read_all(queue)]
        for queue in read:
            # Behind the reads, which may have found their acknowledgements.
            self._send_back(queue)
            await self._revive_due(queue, until_ms)
            self._commit(queue)
            self._measure(queue)

    def settle(self) -> None:
        """Note how far every queue is done with, and what was put back behind that; for a stop."""
        for queue in self.queues:
            self._commit(queue)
            for entry in queue.put_back():
                place = queue.topic, queue.queue_id
                try:
                    status = self._revive_log.put_back(entry.point.key, entry.put_back, *place)
                    reason = "" if status in STORED else status.name
                except Refusal as refused:
                    reason = str(refused)
                if reason:
                    # They are put back twice then; nothing is lost, and the stop goes on.
                    log.warning("revive.blocked", reason=reason)
                    return

    def _commit(self, queue: ReviveQueue) -> None:
        key = queue.topic, queue.queue_id
        at = queue.done_with()
        if at != self._offsets.query(REVIVE_GROUP, *key) and at:
            self._offsets.commit_own(REVIVE_GROUP, *key, at, self._clock.now_ms())

    def _measure(self, queue: ReviveQueue) -> None:
        """Update the gauges."""
        topic, queue_id = queue.topic, queue.queue_id
        own = topic == self._revive_log.topic
        label = str(queue_id) if own else f"{topic}-{queue_id}"
        self._stats.behind[label] = self._store.max_offset(topic, queue_id) - queue.done_with()
        oldest = queue.due(self._clock.now_ms())
        late_ms = 0 if oldest is None else self._clock.now_ms() - oldest.point.due_ms
        self._stats.late_ms[label] = late_ms

    # ── Reading ──

    async def _read_all(self, queue: ReviveQueue) -> bool:
        """Read what there is; False when the disk cannot, and acknowledgements may be missing."""
        try:
            while await self._read(queue):
                if self._pace.over():
                    await self._pace.rest()
        except OSError as error:
            log.error("revive.read_failed", error=str(error))
            return False
        return True

    async def _read(self, queue: ReviveQueue) -> bool:
        """Read some records; whether there may be more. Raises: OSError."""
        topic = queue.topic
        if queue.position >= self._store.max_offset(topic, queue.queue_id):
            return False
        get = partial(
            self._store.get,
            topic,
            queue.queue_id,
            queue.position,
            SLICE,
            max_bytes=SLICE_BYTES,
            max_count=SLICE,
        )
        result = await self._store.complete(get)
        aside = self._store.aside
        for record in aside.records(SERVICE, result, topic, queue.queue_id, queue.position):
            try:
                self._take(queue, record)
            except CONTENT_ERRORS as error:
                aside.take(SERVICE, location_of(record), error)
        queue.position = result.next_begin_offset
        return result.next_begin_offset < result.max_offset

    def _take(self, queue: ReviveQueue, record: Record) -> None:
        """Apply a check point or an acknowledgement. Raises: BodyError for anything else."""
        entry: CheckPoint | Ack
        if value_of(record.properties, b"TAGS") == CHECK_POINT_TAG:
            entry = point = CheckPoint.from_bytes(record.body)
            if point.due_ms - record.store_timestamp > FAR_MS:
                raise BodyError(f"a check point that is open until {point.due_ms}")
            queue.add(point, record.queue_offset)
            kind = "CK"
        else:
            entry = ack = Ack.from_bytes(record.body)
            queue.acknowledge(ack)
            kind = "ACK"
        key = (entry.topic, entry.group, str(queue.queue_id), kind)
        self._stats.add(self._stats.revive_out, key)

    # ── Putting again ──

    def _send_back(self, queue: ReviveQueue) -> None:
        """Give check points to the timers again that are not due for long.

        While they are open, the queue's offset stands, for as long as the clock was ahead.
        """
        if self._revive_log.fresh is None:
            return  # There are no timers.
        for entry in queue.due_beyond(self._clock.now_ms() + EARLY_MS):
            point, left = entry.point, list(entry.left)
            point.diffs = [offset - point.start_offset for offset in left]
            point.count = len(left)
            own = queue.topic == self._revive_log.topic
            queue_id = queue.queue_id if own else point.pop_time % self._own_count
            try:
                status = self._revive_log.check_point(point, left, queue_id, accepted=True)
            except Refusal:
                return
            if status not in STORED:
                return
            queue.close(entry)
        self._puts.finish_round()

    async def _revive_due(self, queue: ReviveQueue, until_ms: int) -> None:
        """Put back the messages of check points whose time is over. Raises: OSError."""
        some = False
        while entry := queue.due(until_ms):
            some = True
            if not await self._revive(entry):
                break
            queue.close(entry)
            if self._pace.over():
                self._puts.finish_round()
                await self._pace.rest()
        if some:
            self._puts.finish_round()

    async def _revive(self, entry: OpenCheckPoint) -> bool:
        """Put back its messages, or new check points for them; False when neither can be stored."""
        point = entry.point
        for offset in list(entry.left):
            try:
                record = await self._store.complete(partial(self._message, point, offset))
            except Unreadable as error:
                # A sector that the disk cannot read holds up no other message.
                if not self._comes_later(point, offset):
                    raise
                where = Location(point.topic, point.queue_id, offset, -1)
                self._store.aside.unreadable(SERVICE, where, error)
                entry.left.pop(offset, None)
                continue
            try:
                status = PUT_OK if record is None else self._put_again(point, record)
                if status in UNSTORABLE:
                    raise MessageIllegal(status.name)
                if status is not PUT_OK and not self._comes_later(point, offset):
                    self._note_blocked(status)
                    return False
                if record is not None and status is PUT_OK:
                    entry.put_back.append(offset)
            except CONTENT_ERRORS as error:
                location = Location(point.topic, point.queue_id, offset, -1)
                self._store.aside.take(
                    SERVICE, location if record is None else location_of(record), error
                )
            entry.left.pop(offset, None)
            self._stats.done(point.group, point.topic, point.queue_id, 1, point.pop_time)
        if self._blocked:
            self._blocked = False
            log.info("revive.unblocked")
        return True

    def _message(self, point: CheckPoint, offset: int) -> Record | None:
        """A popped message; None when it was deleted, alone or with its topic, though there may be
        another one at its offset since. Raises: NotInMemory, OSError.
        """
        queue = point.topic, point.queue_id
        result = self._store.get(*queue, offset, 1, max_count=1)
        record = next(self._store.aside.records(SERVICE, result, *queue, offset), None)
        if record is None or record.queue_offset != offset:
            return None
        if self._puts.is_deleted(point.topic, record):
            # Its queue goes next; a retry topic made now would stay without it.
            return None
        popped = point.log_end is UNSET or record.physical_offset < point.log_end
        return record if popped else None

    def _put_again(self, point: CheckPoint, record: Record) -> PutStatus:
        properties = decode(record.properties)
        if not record.reconsume_times or "1ST_POP_TIME" not in properties:
            properties["1ST_POP_TIME"] = str(point.pop_time)
        properties["ORIGIN_GROUP"] = point.group
        try:
            topic = self._retry_topic(point)
        except NameIllegal:
            return PutStatus.MESSAGE_ILLEGAL
        except Refusal:
            return PutStatus.SERVICE_NOT_AVAILABLE
        text = encode(properties).encode()
        if len(text) > PROPERTIES_BYTES_MAX:
            # Deliver it without them, rather than never.
            text = bytes(record.properties)
        draft = draft_again(record, topic, 0, text)
        draft.reconsume_times = tried_again(draft.reconsume_times)
        draft.born_host = draft.store_host = self._host
        status = self._puts.put_again(draft).status
        self._stats.add(self._stats.retried, (point.topic, point.group, status.name))
        return status

    def _retry_topic(self, point: CheckPoint) -> str:
        """The retry topic of a check point, created with its first message. Raises: Refusal."""
        if point.topic.startswith(RETRY_PREFIX):
            return point.topic
        # The first form may be the name of something else, too: rights could not tell them apart.
        second = self._config.broker.enable_retry_topic_v2 or self._config.auth.enabled
        topic = (retry_topic_v2 if second else retry_topic_v1)(point.topic, point.group)
        self._topics.for_pop(topic, self._clock.now_ms())
        return topic

    def _comes_later(self, point: CheckPoint, offset: int) -> bool:
        """Put a check point for a message that could not be put; whether it is stored."""
        failures = point.failures
        rest_s = AGAIN_S[min(failures, len(AGAIN_S) - 1)]
        waited_ms = self._clock.now_ms() - point.pop_time
        again = CheckPoint(
            start_offset=offset,
            pop_time=point.pop_time,
            invisible_time=max(point.invisible_time, waited_ms) + rest_s * 1000,
            count=1,
            queue_id=point.queue_id,
            topic=point.topic,
            group=point.group,
            diffs=[0],
            broker=point.broker,
            revive_times=str(failures + 1),
            log_end=point.log_end,
        )
        try:
            # Any revive queue will do: this check point is never acknowledged.
            status = self._revive_log.check_point(
                again, [offset], point.pop_time % self._own_count, accepted=True
            )
        except Refusal:
            return False
        return status is PUT_OK

    def _note_blocked(self, status: PutStatus) -> None:
        if not self._blocked and not self._puts.closed:
            self._blocked = True
            log.warning("revive.blocked", reason=status.name)
