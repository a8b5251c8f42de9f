"""POP_MESSAGE and PEEK_MESSAGE: any member of a group gets messages, invisible to others for a
while.

A pop writes a check point for its messages into the revive log, then moves the group's offset, and
then answers, all in one step: messages are delivered again unless acknowledged, and when the check
point cannot be stored nothing is popped. A pop that finds nothing waits in `pop_hold`. Source:
semantics §11.1, remoting §3.12 (PopMessageProcessor, PeekMessageProcessor).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.answers import STORED, first_put_refused
from aerobee.broker.core.drafts import draft_again
from aerobee.broker.errors import Refusal
from aerobee.broker.filters.subscription import filter_of
from aerobee.broker.pop.pop_hold import POPS
from aerobee.broker.pop.pop_reader import ALL_QUEUES, FOUND, Part, PopScope
from aerobee.broker.pop.pop_records import ORDER_REVIVE_QID, CheckPoint, Receipt
from aerobee.broker.pop.pop_wait import HoldableRequest, Nothing, PopWaits, deadline
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pop import PopMessageResponse
from aerobee.store.clock import monotonic_ms
from aerobee.store.errors import NotInMemory, RecordDamaged
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, decode, encode
from aerobee.store.format.record import encode as encode_record
from aerobee.store.format.record import read, starts
from aerobee.store.format.tags import TagFilter
from aerobee.store.results import GetResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.consumers.compensation import CompensationTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.filters.subscription import Filter
    from aerobee.broker.pop.pop_reader import PopReader, PopResult
    from aerobee.broker.pop.revive_log import PopsOut
    from aerobee.broker.pull.access import ReadAccess
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pop import PeekMessage, PopMessage
    from aerobee.store.format.layout import Buffer

MESSAGES_MAX: Final = 32
ATTEMPT_CHARS: Final = 255
LATE_MS: Final = 500
"""A pop that runs this long after its deadline is refused."""
NO_MASTER: Final = "this broker is the master of its group no more: ask the next one"
TIMED_OUT: Final = Answer(int(ResponseCode.POLLING_TIMEOUT))
FULL: Final = Answer(
    int(ResponseCode.POLLING_FULL),
    remark="no room for another pop that waits: maxPopPollingSize, popPollingSize of its queue,"
    " popPollingMapSize, maxHeldRequestsOfConnection or maxHeldRequestsOfGroup",
)
NOTHING: Final = Answer(int(ResponseCode.PULL_NOT_FOUND))
_encode: Final = msgspec.json.Encoder().encode


class Pop:
    """The processor of both codes."""

    def __init__(
        self,
        core: Core,
        *,
        access: ReadAccess,
        topics: TopicTable,
        reader: PopReader,
        out: PopsOut,
        compensation: CompensationTable,
    ) -> None:
        self._config = core.config
        self._role = core.role
        self._store = core.store
        self._stats = core.stats
        self._clock = core.clock
        self._access = access
        self._topics = topics
        self._reader = reader
        self._compensation = compensation
        self._revive_log = out.revive_log
        self._offsets = out.offsets
        self._orders = out.orders
        self._waits = PopWaits(out.hold, core.clock, kind=POPS, over=TIMED_OUT, full=FULL)
        self._timed = out.timed
        self._turn = 0

    def pop(self, header: PopMessage, command: Command, connection: Caller) -> Outcome:
        """Answer with messages, or hold the pop."""
        now_ms = self._clock.now_ms()
        if now_ms - (header.born_time or now_ms) - header.poll_time > LATE_MS:
            return TIMED_OUT
        scope = self._checked(header, now_ms)
        try:
            reads = self._reader.read(scope)
        except NotInMemory:
            return self._from_disk(header, scope)
        outcome = self._found(header, scope, reads)
        if isinstance(outcome, Answer):
            return outcome
        end = deadline(header.born_time, header.poll_time, now_ms)
        request = HoldableRequest(header, command, connection, end)
        return self._waits.wait(request, outcome, partial(self._again, header), scope.matches)

    async def _from_disk(self, header: PopMessage, scope: PopScope) -> Answer:
        reads = await self._reader.read_from_disk(scope)
        # Topic and group may have been deleted meanwhile: neither gets an offset then.
        self._access.group_is_there(header.consumer_group)
        self._access.topic(header.topic)
        if reads.unreadable is not None:
            self._pass_over(header, scope, *reads.unreadable)
        outcome = self._found(header, scope, reads)
        return outcome if isinstance(outcome, Answer) else TIMED_OUT

    def peek(self, header: PeekMessage, command: Command, connection: Caller) -> Outcome:
        """As a pop, but without any effect."""
        access = self._access
        access.broker()
        topic = access.topic(header.topic)
        access.queue(topic, header.queue_id, lowest=ALL_QUEUES)
        access.group(header.consumer_group)
        _check_count(header.max_msg_nums)
        now_ms = self._clock.now_ms()
        scope = PopScope(
            header.consumer_group, topic, header.queue_id, header.max_msg_nums, now_ms=now_ms
        )

        def look() -> Answer:
            reads = self._reader.read(scope)
            if not reads.parts:
                return NOTHING
            views = [view for part in reads.parts for view in part.result.views]
            return Answer(header=PopMessageResponse(now_ms, 0, 0, reads.rest), body=views)

        return self._reader.reading(look)

    # ── Checks ──

    def _checked(self, header: PopMessage, now_ms: int) -> PopScope:
        """The checks, in the order that clients know. Raises: Refusal."""
        access = self._access
        access.broker()
        _check_count(header.max_msg_nums)
        check_timers(self._timed)
        check_hidden(self._config, header.invisible_time)
        topic = access.topic(header.topic)
        access.queue(topic, header.queue_id, lowest=ALL_QUEUES)
        access.group(header.consumer_group)
        _check_attempt(header.attempt_id)
        return PopScope(
            header.consumer_group,
            topic,
            header.queue_id,
            header.max_msg_nums,
            self._filter(header),
            header.init_mode,
            bool(header.order),
            header.attempt_id,
            now_ms,
        )

    def _filter(self, header: PopMessage) -> Filter | None:
        """The filter of a pop; None passes all. Raises: FilterInvalid."""
        if not header.exp:
            return None
        matches: Filter | None = filter_of(header.exp_type, header.exp)
        if isinstance(matches, TagFilter) and matches.codes is None:
            matches = None
        now_ms = monotonic_ms(self._clock)
        self._compensation.note(header.consumer_group, header.topic, now_ms)
        return matches

    # ── One attempt ──

    def _again(self, header: PopMessage) -> Answer | Nothing:
        """An attempt of a pop that waits. Raises: NotInMemory, OSError, Refusal."""
        self._access.group_is_there(header.consumer_group)
        scope = self._checked(header, self._clock.now_ms())
        return self._found(header, scope, self._reader.read(scope))

    def _found(self, header: PopMessage, scope: PopScope, reads: PopResult) -> Answer | Nothing:
        """Move the group past what is not for it, and hand out what is. Raises: Refusal.

        A pop that began at the master may go on at one that is none any more: the next one hands
        these messages out, too.
        """
        if not self._role.serves:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NO_MASTER)
        for topic, queue_id, at in reads.moves:
            self._move(scope, topic, queue_id, at)
        if reads.parts:
            return self._hand_out(header, scope, reads)
        return Nothing(reads.cut, reads.free_at_ms)

    # ── Handing out ──

    def _move(self, scope: PopScope, topic: str, queue_id: int, at: int) -> None:
        """Set the group's offset; apply a pending reset."""
        queue = (scope.group, topic, queue_id)
        if self._offsets.resets and self._offsets.take_reset(*queue) is not None:
            self._orders.clear(topic, scope.group, queue_id)
        self._offsets.commit_popped(*queue, at, scope.now_ms)

    def _hand_out(self, header: PopMessage, scope: PopScope, reads: PopResult) -> Answer:
        """Write the check points of the messages found, and answer with them.

        Raises: Refusal, when check point or offset can be stored of no queue.
        """
        revive_qid = ORDER_REVIVE_QID if scope.order else self._next_revive_queue()
        starts, offsets_of, counts = [], [], []
        body: list[bytes | memoryview] = []
        messages = size = 0
        first_refused: Refusal | None = None
        for part in reads.parts:
            offsets = part.offsets()
            entry = f"{part.retry} {part.queue_id}"
            try:
                # A check point whose pop is refused would deliver its messages once more.
                self._offsets.check_commit(scope.group, part.topic, part.queue_id)
                if scope.order:
                    counts += self._in_order(header, scope, part, offsets)
                else:
                    self._hide(header, scope, part, offsets, revive_qid)
            except Refusal as refused:
                first_refused = first_refused or refused
                reads.rest += part.result.count
                continue
            starts.append(f"{entry} {part.start}")
            # Eight times as fast as joining the texts of the numbers.
            offsets_of.append(f"{entry} {_encode(offsets)[1:-1].decode()}")
            if part.retry == "0":
                body += part.result.views
            else:
                body += self._as_sent(header, scope, part, revive_qid)
            messages += part.result.count
            size += part.result.size
        if first_refused is not None and not messages:
            raise first_refused
        out = self._stats.group_out(scope.group, header.topic)
        out.messages_out += messages
        out.bytes_out += size
        self._access.delivered(scope.group, messages, size)
        response = PopMessageResponse(
            scope.now_ms,
            header.invisible_time,
            revive_qid,
            reads.rest,
            ";".join(starts),
            ";".join(offsets_of),
            ";".join(counts) if scope.order else None,
        )
        return Answer(0, response, FOUND.name, body)

    def _next_revive_queue(self) -> int:
        """Round robin; a revive topic that was created with other settings keeps its queues."""
        revive_log = self._topics.get(self._revive_log.topic)
        self._turn = (self._turn + 1) % (revive_log.read_queue_nums if revive_log else 1)
        return self._turn

    def _hide(
        self,
        header: PopMessage,
        scope: PopScope,
        part: Part,
        offsets: list[int],
        revive_qid: int,
    ) -> None:
        """Write the check point of the messages of a queue, then move the group past them.

        Raises: Refusal when the check point cannot be stored.
        """
        start, count = part.start, len(offsets)
        # Ascending, so nothing is between them when the last one is so far from the first.
        gapless = offsets[-1] - start == count - 1
        point = CheckPoint(
            start_offset=start,
            pop_time=scope.now_ms,
            invisible_time=header.invisible_time,
            count=count,
            queue_id=part.queue_id,
            topic=part.topic,
            group=scope.group,
            diffs=[*range(count)] if gapless else [offset - start for offset in offsets],
            broker=self._config.broker.broker_name,
        )
        status = self._revive_log.check_point(point, offsets, revive_qid)
        if status not in STORED:
            refused = first_put_refused(status, self._store)
            refused.remark = f"no check point can be stored: {refused.remark}"
            raise refused
        self._move(scope, part.topic, part.queue_id, part.result.next_begin_offset)
        self._stats.pop.handed_out(scope.group, part.topic, part.queue_id, part.result.count)

    def _pass_over(
        self, header: PopMessage, scope: PopScope, topic: str, queue_id: int, at: int
    ) -> None:
        """Take a message that the disk cannot read for popped and not acknowledged: its check point
        brings it again, once it can be read. Raises: Refusal.
        """
        part = Part(topic, "0", queue_id, at, GetResult(FOUND, at + 1, 0, 0, count=1))
        self._offsets.check_commit(scope.group, topic, queue_id)
        self._hide(header, scope, part, [at], self._next_revive_queue())

    def _in_order(
        self, header: PopMessage, scope: PopScope, part: Part, offsets: Sequence[int]
    ) -> list[str]:
        """Record an orderly pop; returns the delivery counts in the form that clients read."""
        queue_id = part.queue_id
        self._move(scope, part.topic, queue_id, part.start)
        pulled = self._stats.group_out(scope.group, part.topic).pulled
        pulled[queue_id] = part.result.next_begin_offset
        counts = self._orders.hand_out(
            part.topic,
            scope.group,
            queue_id,
            offsets,
            attempt_id=scope.attempt_id,
            pop_time=scope.now_ms,
            invisible_ms=header.invisible_time,
        )
        by_name = {f"qo{queue_id}%{at}": count for at, count in counts.by_offset.items()}
        by_name[f"{queue_id}"] = counts.least
        return [f"{part.retry} {name} {count}" for name, count in by_name.items()]

    def _as_sent(
        self, header: PopMessage, scope: PopScope, part: Part, revive_qid: int
    ) -> list[bytes]:
        """Retry messages under the topic that they were sent to."""
        receipt = Receipt(
            part.start,
            scope.now_ms,
            header.invisible_time,
            revive_qid,
            part.retry,
            self._config.broker.broker_name,
            part.queue_id,
            0,
        )
        return [_renamed(view, at, header.topic, receipt) for view, at in starts(part.result.views)]


def check_timers(timed: bool) -> None:
    """Refuse a pop without timers: nothing would be delivered again. Raises: Refusal."""
    if not timed:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, "pop needs the timers, and timerWheelEnable is false"
        )


def check_hidden(config: BrokerConfig, invisible_ms: int) -> None:
    """Refuse an invisible time longer than the longest timer. Raises: Refusal."""
    limit_ms = config.store.timer_max_delay_s * 1000
    if abs(invisible_ms) > limit_ms:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"invisibleTime is {invisible_ms} ms, timerMaxDelaySec allows {limit_ms} ms",
        )


def _check_attempt(attempt_id: str | None) -> None:
    """Limit the attempt id, which is kept with its batch: clients make it of 36 characters."""
    if attempt_id is not None and len(attempt_id) > ATTEMPT_CHARS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"attemptId of {len(attempt_id)} characters, {ATTEMPT_CHARS} are kept",
        )


def _check_count(max_messages: int) -> None:
    if not 0 < max_messages <= MESSAGES_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"maxMsgNums is {max_messages}, 1 to {MESSAGES_MAX} messages are popped at once",
        )


def _renamed(view: Buffer, at: int, topic: str, receipt: Receipt) -> bytes:
    """A record under another topic, with its receipt in its properties.

    Without room for that it stays as it is, so that the other messages are still delivered; so does
    one whose body is damaged, which its consumer finds by the CRC.
    """
    record = read(view, at)
    properties = decode(record.properties)
    properties["POP_CK"] = receipt._replace(offset=record.queue_offset).text()
    text = encode(properties).encode()
    if len(text) <= PROPERTIES_BYTES_MAX:
        with suppress(RecordDamaged):
            draft = draft_again(record, topic, record.queue_id, text)
            places = record.queue_offset, record.physical_offset
            return encode_record(draft, *places, record.store_timestamp)
    return bytes(view[at : at + record.size])
