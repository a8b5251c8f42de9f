"""Broker-side deduplication: a message sent twice is stored once, and both senders get its offset.

After a restart the window is read again from the queues of the topics concerned; until that is done
a send to them is refused for a retry, because it is not known yet whether it is the first. A
delayed message waits in another topic, which is read as well.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.dedupe.seen_messages import DedupeTable
from aerobee.broker.errors import CONTENT_ERRORS, Refused
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read
from aerobee.store.format.timer import WHEEL_TOPIC
from aerobee.store.format.unit import SCHEDULE_TOPIC
from aerobee.store.results import location_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.broker.dedupe.dedupe_settings import DedupeRule
    from aerobee.store.clock import Clock
    from aerobee.store.format.record import Record
    from aerobee.store.message_store import MessageStore

__all__ = ["WAITING_TOPICS", "Dedupe"]

WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, WHEEL_TOPIC})
"""Topics of messages that wait for their time."""
SERVICE: Final = "dedupe"
BATCH: Final = 32
"""Messages read again between two checkpoints of the task."""

log = structlog.stdlib.get_logger(__name__)


class Dedupe:
    """Finds the first of equal messages. No await between `find` and `note_stored`."""

    def __init__(
        self,
        rules: Iterable[DedupeRule],
        *,
        max_entries: int,
        store: MessageStore,
        clock: Clock,
        repeated: dict[str, int],
    ) -> None:
        self.table = DedupeTable(rules, max_entries=max_entries)
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

    def key(self, topic: str, properties: Mapping[str, str]) -> str | None:
        """The value that makes this message equal to others; None when it has no such property.

        Raises: Refused while the window is being read.
        """
        if not self.ready:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"the broker has started and still reads what was sent to {topic} within its "
                "dedupe window: send it again",
            )
        return properties.get(self.table.topics[topic].by) or None

    def find(self, topic: str, key: str) -> Record | None:
        """The stored message with this key, if it is within the window. Raises: NotInMemory."""
        firsts = self.table.topics[topic]
        at = firsts.find(key)
        if at is None:
            return None
        view = self._store.read(at)
        if view is None:
            return None
        record = read(view, 0)
        age_ms = self._clock.now_ms() - record.store_timestamp
        sent_to, properties = self._sent_to(record)
        if age_ms > firsts.window_ms or sent_to != topic or properties.get(firsts.by) != key:
            return None
        return record

    def note_stored(self, begins_at: int) -> None:
        """Record what was just appended, since the log ended at `begins_at`."""
        commit_log = self._store.commit_log
        ends_at = commit_log.max_offset
        segment_at = ends_at - (ends_at - 1) % commit_log.segment_bytes - 1
        # A put that did not fit into the last segment is at the beginning of the next.
        at = max(begins_at, segment_at)
        while at < ends_at:
            view = self._store.read(at)
            if view is None:
                return
            record = read(view, 0)
            topic, properties = self._sent_to(record)
            firsts = self.table.topics.get(topic)
            if firsts is not None and (key := properties.get(firsts.by)):
                self.table.note(topic, key, at, record.store_timestamp)
            at += record.size

    def _sent_to(self, record: Record) -> tuple[str, dict[str, str]]:
        """The topic that a stored message was sent to, and its properties."""
        properties = decode(record.properties)
        topic = record.topic
        if topic in WAITING_TOPICS:
            topic = properties.get("REAL_TOPIC", topic)
        return topic, properties

    # ── After a start ──

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the windows again, then end."""
        task_status.started()
        if self.ready:
            return
        began = self._clock.monotonic()
        messages = 0
        for topic, queue_id in list(self._store.queues.table):
            if topic in self.topics or topic in WAITING_TOPICS:
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
        begins_ms = self._clock.now_ms() - max(
            firsts.window_ms for firsts in self.table.topics.values()
        )
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
        """Record a message; of equal ones the first, in whatever order queues are read."""
        topic, properties = self._sent_to(record)
        firsts = self.table.topics.get(topic)
        key = properties.get(firsts.by) if firsts is not None else None
        if firsts is None or not key:
            return
        known = firsts.find(key)
        if known is None or record.physical_offset < known:
            self.table.note(topic, key, record.physical_offset, record.store_timestamp)
