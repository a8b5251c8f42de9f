"""Broker-side deduplication: a message sent twice is stored once, and both senders get its place.

It stands between a send that has passed all checks and its put, in one step of the loop: what is
looked up is what is stored. A repetition is answered with the first message only while a consumer
can get that message from its queue: it lies in the queue that exists now, neither before its first
offset nor before the begin of the log. To know that takes no read. Messages that wait elsewhere
(delayed, timed, halves) are neither looked up nor remembered, also not when they have arrived.

After a restart the window is read again from the queues of the topics concerned; until that is done
a send to them is refused for a retry, because it is not known yet whether it is the first.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from aerobee.broker.dedupe.seen_messages import DedupeTable, FirstMessage
from aerobee.broker.errors import CONTENT_ERRORS, Refusal
from aerobee.broker.timers.timer_properties import ASKS_FOR_TIME, START_DELIVER_TIME
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.clock import monotonic_ms
from aerobee.store.errors import MessageIllegal
from aerobee.store.format.batch import batch_item_size, batch_items
from aerobee.store.format.properties import decode
from aerobee.store.results import PutResult, PutStatus, location_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aerobee.broker.config.settings.dedupe import DedupeRule
    from aerobee.store.clock import Clock
    from aerobee.store.format.record import MessageDraft, Record
    from aerobee.store.message_store import MessageStore
    from aerobee.store.queues.consume_queue import ConsumeQueue

ITEMS_MAX: Final = 1_024
"""Messages of one batch: it is looked up and stored in one step, so no equal one comes in
between."""
WAITED: Final = ASKS_FOR_TIME | {"DELAY", START_DELIVER_TIME, "TRAN_MSG", "REAL_TOPIC"}
"""Properties of messages that wait for their time or their commit, or have waited for it."""
SERVICE: Final = "dedupe"
BATCH: Final = 32
"""Messages read again between two checkpoints of the task."""
PUT_OK: Final = PutStatus.PUT_OK

log = structlog.stdlib.get_logger(__name__)


class Life(NamedTuple):
    """A queue that had messages remembered, from which physical offset on.

    A topic that is deleted and made anew has other queues.
    """

    queue: ConsumeQueue
    begins_at: int


class Dedupe:
    """Finds the first of equal messages. No await between a look-up and its put."""

    def __init__(
        self,
        rules: Iterable[DedupeRule],
        *,
        max_entries: int,
        store: MessageStore,
        clock: Clock,
        repeated: dict[str, int],
    ) -> None:
        self._rules = list(rules)
        self.table = DedupeTable(self._rules, max_entries=max_entries)
        self._lives: dict[tuple[str, int], Life] = {}
        self._store = store
        self._clock = clock
        self.ready = not self.table.topics
        """Whether all windows have been read."""
        self.repeats = repeated
        """Topic → number of messages that were not stored again."""
        repeated.update(dict.fromkeys(self.table.topics, 0))

    @property
    def topics(self) -> Mapping[str, object]:
        """Topics with a rule."""
        return self.table.topics

    def forget(self) -> None:
        """Begin anew: the windows are to be read again by `run`."""
        self.table = DedupeTable(self._rules, max_entries=self.table.max_entries)
        self._lives.clear()
        self.ready = not self.table.topics

    # ── Sends ──

    def put(
        self, draft: MessageDraft, properties: Mapping[str, str], read_queues: int
    ) -> PutResult:
        """Store a message, unless it is a repetition; its draft then names the first one's queue.

        The result counts what was stored. `read_queues`: of how many queues consumers of the topic
        read. Raises: Refusal while the window is being read.
        """
        key = self._key(draft.topic, properties)
        first = self._find(draft.topic, key, read_queues)
        if first is not None:
            self.repeats[draft.topic] += 1
            return self._merged(draft, [first], PutResult(PUT_OK))
        result = self._store.put(draft)
        if key is not None and result.status is PUT_OK:
            self._stored(draft, key, result.queue_offset, result.physical_offset)
        return result

    def put_batch(
        self, draft: MessageDraft, body: bytes | memoryview, read_queues: int
    ) -> PutResult:
        """As `put`, for each message of a batch by itself: one that comes twice in it is stored
        once.

        The result has the offsets of all of them, and the queue offset of the first. Raises:
        Refusal.
        """
        new: list[bytes] = []
        own: dict[str, int] = {}
        places: list[FirstMessage | int] = []
        for raw, key in self._items(draft.topic, body):
            place: FirstMessage | int | None = None
            if key is not None and (place := own.get(key)) is None:
                place = self._find(draft.topic, key, read_queues)
            if place is None:
                place = len(new)
                new.append(raw)
                if key is not None:
                    own[key] = place
            places.append(place)
        if len(new) == len(places):
            result = self._store.put_batch(draft, body)
        elif new:
            result = self._store.put_batch(draft, b"".join(new))
        else:
            result = PutResult(PUT_OK)
        if result.status is not PUT_OK:
            return result
        for key, number in own.items():
            self._stored(draft, key, result.queue_offset + number, result.offsets[number])
        self.repeats[draft.topic] += len(places) - len(new)
        return self._merged(draft, places, result)

    def _items(self, topic: str, body: bytes | memoryview) -> Iterator[tuple[bytes, str | None]]:
        """Bytes and key of the messages of a batch. Raises: Refusal."""
        raw, at = bytes(body), 0
        try:
            for number, (_, content, properties) in enumerate(batch_items(raw)):
                if number == ITEMS_MAX:
                    reason = f"a batch to {topic}, which is deduplicated, has {ITEMS_MAX} messages"
                    raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{reason} at most")
                end = at + batch_item_size(len(content), len(properties))
                yield raw[at:end], self._key(topic, decode(properties))
                at = end
        except MessageIllegal as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error

    def _merged(
        self, draft: MessageDraft, places: list[FirstMessage | int], new: PutResult
    ) -> PutResult:
        """The result for messages of which some were there before.

        The sync that it waits for covers those as well.
        """
        head = places[0]
        queue_offset = new.queue_offset
        if isinstance(head, FirstMessage):
            draft.queue_id, queue_offset = head.queue_id, head.queue_offset
        return PutResult(
            PUT_OK,
            self._store.commit_log.max_offset - new.size,
            queue_offset,
            new.size,
            new.count,
            new.store_timestamp,
            [
                place.physical_offset if isinstance(place, FirstMessage) else new.offsets[place]
                for place in places
            ],
        )

    # ── What is known ──

    def _key(self, topic: str, properties: Mapping[str, str]) -> str | None:
        """The value that makes this message equal to others; None when it is not compared.

        Raises: Refusal while the window is being read.
        """
        if not self.ready:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"the broker has started and still reads what was sent to {topic} within its "
                "dedupe window: send it again",
            )
        return self._key_of(topic, properties)

    def _key_of(self, topic: str, properties: Mapping[str, str]) -> str | None:
        key = properties.get(self.table.topics[topic].by) or None
        return key if key is None or WAITED.isdisjoint(properties) else None

    def _find(self, topic: str, key: str | None, read_queues: int) -> FirstMessage | None:
        """The message with this key, if it is within the window and a consumer can get it."""
        if key is None:
            return None
        first = self.table.topics[topic].find(key, monotonic_ms(self._clock))
        if first is None or first.queue_id >= read_queues:
            return None
        life = self._lives[topic, first.queue_id]
        queue = self._store.queues.find(topic, first.queue_id)
        begins_at = max(life.begins_at, self._store.commit_log.min_offset)
        if queue is not life.queue or first.physical_offset < begins_at:
            return None
        return first if first.queue_offset >= queue.min_offset else None

    def _stored(
        self, draft: MessageDraft, key: str, queue_offset: int, physical_offset: int
    ) -> None:
        now_ms = monotonic_ms(self._clock)
        first = FirstMessage(draft.queue_id, queue_offset, physical_offset, now_ms)
        self._note(draft.topic, key, first, now_ms)

    def _note(self, topic: str, key: str, first: FirstMessage, now_ms: int) -> None:
        queue = self._store.queues.find(topic, first.queue_id)
        if queue is None:
            # Deleted while its window was read.
            return
        life = self._lives.get((topic, first.queue_id))
        if life is None or life.queue is not queue:
            self._lives[topic, first.queue_id] = Life(queue, first.physical_offset)
        self.table.note(topic, key, first, now_ms)

    # ── After a start ──

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the windows again, then end."""
        task_status.started()
        if self.ready:
            return
        began = self._clock.monotonic()
        messages = 0
        for topic, queue_id in list(self._store.queues.table):
            if topic in self.topics:
                try:
                    messages += await self._read_queue(topic, queue_id)
                except OSError as error:
                    # Better store one message twice than refuse all.
                    queue = {"topic": topic, "queue_id": queue_id}
                    log.error("dedupe.read_failed", **queue, error=str(error))
        self.ready = True
        elapsed_ms = int((self._clock.monotonic() - began) * 1_000)
        log.info("dedupe.ready", messages=messages, elapsed_ms=elapsed_ms)

    async def _read_queue(self, topic: str, queue_id: int) -> int:
        """Record the messages of one queue within the window; returns how many were read."""
        store = self._store
        begins_ms = self._clock.now_ms() - self.table.topics[topic].window_ms
        at = await store.complete(lambda: store.offset_by_time(topic, queue_id, begins_ms))
        looked_at = 0
        while at < store.max_offset(topic, queue_id):
            result = await store.complete(partial(store.get, topic, queue_id, at, BATCH))
            for record in store.aside.records(SERVICE, result, topic, queue_id, at):
                try:
                    self._note_again(record)
                except CONTENT_ERRORS as error:
                    store.aside.take(SERVICE, location_of(record), error)
            looked_at += result.count
            if result.next_begin_offset <= at:
                break
            at = result.next_begin_offset
            await trio.lowlevel.checkpoint()
        return looked_at

    def _note_again(self, record: Record) -> None:
        """Record a message; of equal ones the last, in whatever order queues are read."""
        topic = record.topic
        key = self._key_of(topic, decode(record.properties))
        firsts = self.table.topics[topic]
        age_ms = self._clock.now_ms() - record.store_timestamp
        if key is None or not 0 <= age_ms <= firsts.window_ms:
            return
        now_ms = monotonic_ms(self._clock)
        known = firsts.find(key, now_ms)
        if known is None or known.physical_offset < record.physical_offset:
            at = record.queue_offset, record.physical_offset
            self._note(topic, key, FirstMessage(record.queue_id, *at, now_ms - age_ms), now_ms)
