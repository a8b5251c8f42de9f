"""Appending: checks, queue offsets, records, the roll to the next segment.

One writer, the loop. Nothing here awaits, so queue offsets and records always match; nothing here
waits for the disk: a put whose segment is not ready returns SEGMENT_LATE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from aerobee.store.errors import MessageIllegal, PropertiesTooLong, SegmentLate
from aerobee.store.format.batch import BatchItems, batch_columns, encode_batch
from aerobee.store.format.copies import copy_bytes, encode_copies
from aerobee.store.format.record import BLANK_BYTES, NOT_QUEUED, MessageDraft, encode
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.store.format.unit import can_have_unit
from aerobee.store.queues.dispatch_request import DispatchRequest, Run
from aerobee.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from aerobee.store.config import StoreConfig
    from aerobee.store.flags import RunningFlags
    from aerobee.store.format.batch import BatchRecords
    from aerobee.store.format.copies import StoredMessage
    from aerobee.store.log.allocate import Allocator
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.shared import Contents, Runtime

TOPIC_BYTES = 127
LONG_TOPIC_BYTES = 255
LONG_TOPICS = (RETRY_PREFIX, DLQ_PREFIX)
QUEUE_ID_MAX = (1 << 31) - 1
"""The largest queue id that a record can hold."""

BATCH_STEP = 500
"""Messages of a batch that are parsed in one step: less than a millisecond."""
PIECES_TOGETHER = 8
"""So many times as many messages of a batch are stored in one step: about three milliseconds."""

PUT_OK = PutStatus.PUT_OK

log = structlog.get_logger(__name__)


class Writer:
    """Appends messages to the commit log and hands them to dispatch and flush.

    Source: store format §2 (CommitLog.asyncPutMessage).
    """

    __slots__ = (
        "_allocator",
        "_clock",
        "_dispatcher",
        "_flags",
        "_log",
        "_queues",
        "_stats",
        "_warned_long_topic",
        "config",
    )

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        allocator: Allocator,
        flags: RunningFlags,
        runtime: Runtime,
    ) -> None:
        self.config = config
        self._log = contents.commit_log
        self._queues = contents.queues
        self._dispatcher = contents.dispatcher
        self._allocator = allocator
        self._flags = flags
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._warned_long_topic = False

    def put(
        self, draft: MessageDraft, now_ms: int | None = None, *, accepted: bool = False
    ) -> PutResult:
        """Append one message: a run of one."""
        stored, status = self.put_run((draft,), now_ms, accepted=accepted)
        if not stored:
            return PutResult(status)
        (record,) = stored
        return PutResult(
            PUT_OK,
            record.physical_offset,
            record.queue_offset,
            record.size,
            1,
            record.store_timestamp,
        )

    def put_run(
        self, drafts: Sequence[MessageDraft], now_ms: int | None = None, *, accepted: bool = False
    ) -> tuple[list[DispatchRequest], PutStatus]:
        """Append messages of any queues side by side, and offer them to dispatch; never waits for
        the disk. Hot.

        As many of the first as can be stored and fit into the last segment; the first of all may
        begin a new one. Returns what dispatch is told of each of them, and why the next one was not
        stored: PUT_OK when there is none, or a further run may store it. `now_ms` is the wall clock
        when the caller has just read it. `accepted`: their bodies were accepted before, whatever
        `maxMessageSize` is now.
        """
        if self._flags.refusing:
            return [], self._refused(PutStatus.SERVICE_NOT_AVAILABLE)
        commit_log, table = self._log, self._queues.table.get
        body_max = self.config.max_message_size_bytes
        stored = self._clock.now_ms() if now_ms is None else now_ms
        stored = max(stored, commit_log.last_store_timestamp)
        # No await from here to the end: queue offsets and records must match.
        physical, room_ends = commit_log.max_offset, commit_log.room_ends
        status: PutStatus | None = None
        ends: dict[ConsumeQueue, int] = {}
        records: list[bytes] = []
        requests: list[DispatchRequest] = []
        for draft in drafts:
            name, sys_flag = (draft.topic, draft.queue_id), draft.sys_flag
            queue = table(name) or self._new_queue(*name)
            if queue is None or (len(draft.body) > body_max and not accepted):
                status = PutStatus.MESSAGE_ILLEGAL
                break
            queued = not sys_flag & NOT_QUEUED
            queue_offset = ends.get(queue, queue.next_offset) if queued else 0
            try:
                record = encode(draft, queue_offset, physical, stored)
            except MessageIllegal as error:
                status = _status_of(error)
                break
            size = len(record)
            if physical + size > room_ends:
                if records or (status := self._roll(size)) is not None:
                    break
                physical, room_ends = commit_log.max_offset, commit_log.room_ends
                record = encode(draft, queue_offset, physical, stored)
            if queued:
                ends[queue] = queue_offset + 1
            records.append(record)
            code, properties = draft.tags_code, draft.properties
            requests.append(
                DispatchRequest(
                    queue, physical, size, code, queue_offset, stored, sys_flag, properties
                )
            )
            physical += size
        if not records:
            return [], PUT_OK if status is None else self._refused(status)
        begin = commit_log.max_offset
        try:
            commit_log.append_each(records, stored)
        except OSError as error:
            return [], self._refused(self._unwritten(error))
        for queue, end in ends.items():
            queue.next_offset = end
        self._dispatcher.offer_all(requests)
        self._stats.messages_put += len(requests)
        self._stats.bytes_put += physical - begin
        return requests, status or PUT_OK

    def put_batch(
        self, draft: MessageDraft, items: bytes | memoryview, now_ms: int | None = None
    ) -> PutResult:
        """As `put_batch_in_steps`, at once: for batches that are stored in one part, which is all
        or nothing.
        """
        steps = self.put_batch_in_steps(draft, items, _one_part_only, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: PutResult = end.value
                return result

    def put_batch_in_steps(
        self,
        draft: MessageDraft,
        items: bytes | memoryview,
        when_late: Callable[[], object],
        now_ms: int | None = None,
    ) -> Generator[None, None, PutResult]:
        """Append the messages of a batch body. `draft` has their common fields; flag, body,
        properties and tags code are each item's own. Few messages take a single step.

        Others may run at each yield, and append; nothing is stored before all of it has been
        checked. Parts of some thousand messages are stored in a step each, all of a part or nothing
        and contiguously in one segment: appends of others to the same queue may come between two
        parts, and when one is refused, those before it stay. A queue that is deleted meanwhile
        takes no more.

        `when_late` is called ahead of a yield when a further part has to wait for its segment: the
        next step is for after `MessageStore.after_wait`.
        """
        if self._flags.refusing:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE)
        name = draft.topic, draft.queue_id
        queue = self._queues.table.get(name) or self._new_queue(*name)
        if (
            queue is None
            or len(items) > self.config.max_message_size_bytes
            or draft.sys_flag & NOT_QUEUED
        ):
            return self._refuse(PutStatus.MESSAGE_ILLEGAL)
        pieces: list[BatchItems] = []
        try:
            model = _model(draft)
            for piece in self._split(model, items):
                if pieces:
                    yield
                pieces.append(piece)
        except MessageIllegal:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL)
        if len(pieces) <= PIECES_TOGETHER:
            return self._append_part(queue, model, pieces, now_ms)
        parts: list[PutResult] = []
        for begin in range(0, len(pieces), PIECES_TOGETHER):
            part = pieces[begin : begin + PIECES_TOGETHER]
            append = partial(self._append_part, queue, model, part, now_ms)
            result = (yield from self._append_next(append, when_late)) if parts else append()
            if result.status is not PUT_OK:
                return result
            parts.append(result)
        return _joined(parts)

    def _append_next(
        self, append: Callable[[], PutResult], when_late: Callable[[], object]
    ) -> Generator[None, None, PutResult]:
        """Append a further part of a batch: the parts before it are stored, so it waits for its
        segment.
        """
        while True:
            yield
            result = append()
            if result.status is not PutStatus.SEGMENT_LATE:
                return result
            when_late()

    def _split(self, model: bytes, items: bytes | memoryview) -> Iterator[BatchItems]:
        """The messages of a batch body, in pieces of `BATCH_STEP`.

        `model` is the record of one without content. `maxMessageSize` is for the body of the
        request, as in the Java broker: records of many short messages are longer than it. Raises:
        MessageIllegal, also when their records would not fit into one segment.
        """
        overhead = len(model)
        left = self._log.segment_bytes - BLANK_BYTES
        for piece in batch_columns(items, BATCH_STEP):
            closed = piece.closed()
            left -= overhead * len(closed.bodies) + closed.content_bytes
            if left < 0:
                raise MessageIllegal("the records of the batch would be too long")
            yield closed

    def put_copies(
        self, topic: str, queue_id: int, messages: Sequence[tuple[StoredMessage, bytes]]
    ) -> PutResult:
        """Append stored messages once more, in another queue and with these properties, in order.

        `count` of the result is how many were appended, its status why the next one was not. Hot.
        """
        if self._flags.refusing:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE)
        queue = self._queues.table.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        if queue is None:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL)
        commit_log = self._log
        stored = max(self._clock.now_ms(), commit_log.last_store_timestamp)
        done = size = 0
        # No await from here to the end: queue offsets and records must match.
        while done < len(messages):
            rest = messages[done:] if done else messages
            physical = commit_log.max_offset
            room = max(0, commit_log.room_ends - physical)
            at = queue.next_offset, physical, stored, room
            run = encode_copies(rest, topic, queue_id, *at)
            if not run.offsets:
                message, properties = rest[0]
                if (refused := self._roll(copy_bytes(topic, message, properties))) is not None:
                    return msgspec.structs.replace(self._refuse(refused), size=size, count=done)
                continue
            try:
                commit_log.append(run.data, stored)
            except OSError as error:
                refused = self._unwritten(error)
                return msgspec.structs.replace(self._refuse(refused), size=size, count=done)
            self._offer_run(queue, run, stored)
            done += len(run.offsets)
            size += len(run.data)
        return PutResult(PUT_OK, size=size, count=done, store_timestamp=stored)

    def _append_part(
        self, queue: ConsumeQueue, model: bytes, pieces: list[BatchItems], now_ms: int | None
    ) -> PutResult:
        """Append some of the messages of a batch: all of them or none. A queue that was deleted
        since its batch began takes nothing.
        """
        if not pieces:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL)
        name = queue.topic, queue.queue_id
        if self._flags.refusing or self._queues.table.get(name) is not queue:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE)
        items = BatchItems.joined(pieces)
        commit_log = self._log
        stored = self._clock.now_ms() if now_ms is None else now_ms
        stored = max(stored, commit_log.last_store_timestamp)
        # No await from here to the end: queue offsets and records must match.
        queue_offset = queue.next_offset
        batch = encode_batch(model, items, queue_offset, commit_log.max_offset, stored)
        size = len(batch.data)
        try:
            if not commit_log.append(batch.data, stored):
                if (refused := self._roll(size)) is not None:
                    return self._refuse(refused)
                batch = encode_batch(model, items, queue_offset, commit_log.max_offset, stored)
                commit_log.append(batch.data, stored)
        except OSError as error:
            return self._refuse(self._unwritten(error))
        self._offer_run(queue, batch, stored)
        offsets = batch.offsets
        return PutResult(PUT_OK, offsets[0], queue_offset, size, len(offsets), stored, offsets)

    def _offer_run(self, queue: ConsumeQueue, run: BatchRecords, stored: int) -> None:
        """Count messages that were just appended, and offer them to dispatch."""
        queue_offset, count, size = queue.next_offset, len(run.offsets), len(run.data)
        queue.next_offset = queue_offset + count
        first = run.offsets[0]
        messages = Run(run.units, run.properties)
        self._dispatcher.offer(
            DispatchRequest(queue, first, size, 0, queue_offset, stored, 0, b"", messages)
        )
        self._stats.messages_put += count
        self._stats.bytes_put += size

    def _roll(self, size: int) -> PutStatus | None:
        """Make room for `size` bytes in a new segment; the reason when there can be none."""
        if size + BLANK_BYTES > self._log.segment_bytes:
            return PutStatus.MESSAGE_ILLEGAL
        try:
            self._allocator.roll(size)
        except SegmentLate:
            return PutStatus.SEGMENT_LATE
        except OSError:
            return PutStatus.SERVICE_NOT_AVAILABLE
        return None

    def _unwritten(self, error: OSError) -> PutStatus:
        """The status of a put for which the disk had no room after all."""
        self._allocator.unwritable(error)
        return PutStatus.SERVICE_NOT_AVAILABLE

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue of a message that has none yet; None when it may not have one."""
        length = len(topic.encode("utf-8", "replace"))
        limit = LONG_TOPIC_BYTES if topic.startswith(LONG_TOPICS) else TOPIC_BYTES
        if not 0 < length <= limit or queue_id > QUEUE_ID_MAX:
            return None
        if not can_have_unit(topic, queue_id, 0):
            return None
        if length > TOPIC_BYTES and not self._warned_long_topic:
            self._warned_long_topic = True
            log.warning("commit_log.long_topic", topic=topic)
        return self._queues.obtain(topic, queue_id)

    def _refuse(self, status: PutStatus) -> PutResult:
        return PutResult(self._refused(status))

    def _refused(self, status: PutStatus) -> PutStatus:
        """Count a put of which nothing was stored."""
        if status is not PutStatus.SEGMENT_LATE:
            self._stats.puts_refused += 1
        return status


def _status_of(error: MessageIllegal) -> PutStatus:
    too_long = isinstance(error, PropertiesTooLong)
    return PutStatus.PROPERTIES_SIZE_EXCEEDED if too_long else PutStatus.MESSAGE_ILLEGAL


def _one_part_only() -> None:
    raise AssertionError("a batch of several parts has to be stored in steps")


def _model(draft: MessageDraft) -> bytes:
    """The record of a message of a batch without its content. Raises: MessageIllegal."""
    empty = MessageDraft(
        draft.topic,
        draft.queue_id,
        b"",
        b"",
        draft.born_host,
        draft.store_host,
        draft.flag,
        draft.sys_flag,
        draft.born_timestamp,
        draft.reconsume_times,
        draft.prepared_transaction_offset,
    )
    return encode(empty, 0, 0, 0)


def _joined(parts: list[PutResult]) -> PutResult:
    """The result of a batch that was stored in parts."""
    first = parts[0]
    size = sum(part.size for part in parts)
    return msgspec.structs.replace(
        first,
        size=size,
        count=sum(part.count for part in parts),
        offsets=[offset for part in parts for offset in part.offsets],
        between=parts[-1].end_offset - first.physical_offset - size,
    )
