"""The read side of a pop: the queues of a topic and of its retry topics. Changes nothing.

The reads of one pop are one step: either all of them succeed, or one needs the disk first and they
are repeated. Which messages are popped, and what follows from that, is decided by `pop`. Source:
semantics §11.1 (PopMessageProcessor.popMsgFromTopic).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.consumers.consumer_offsets import NO_OFFSET
from aerobee.broker.core.unreadable import tell_first_wanted
from aerobee.broker.errors import MessageUnreadable
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.pop.pop_records import is_of_a_group, retry_topic_v1, retry_topic_v2
from aerobee.broker.topics.attributes import factor_of
from aerobee.remoting.wire.bodies.topic import MESSAGE_TYPE
from aerobee.store.errors import Unreadable
from aerobee.store.format.record import queue_offsets
from aerobee.store.results import GetStatus, Location
from aerobee.store.selection import SCAN_S, SelectiveReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.filters.subscription import Filter
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.store.results import GetResult

SERVICE: Final = "pop"
ALL_QUEUES: Final = -1
FROM_END: Final = 1
"""The init mode of a group that begins at the end of the queue."""
TRIES: Final = 6
"""How often a pop for one message is tried that meets a sector that the disk cannot read."""
LOOKS: Final = 1_024
"""Queues read between two checks of the clock, about 1 ms."""
PASS_S: Final = 0.010
"""How long one pop searches for queues with messages."""
COUNTED_MAX: Final = 64
"""In topics with more queues, the queues that were not read are not counted either."""
PRIORITY: Final = "PRIORITY"
"""The type of topics whose queues are priorities."""
FOUND: Final = GetStatus.FOUND
OUTSIDE: Final = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY})


class PopScope(NamedTuple):
    """Topic, group and filter of a pop."""

    group: str
    topic: TopicConfig
    queue_id: int
    max_messages: int
    matches: Filter | None = None
    init_mode: int = 0
    order: bool = False
    attempt_id: str | None = None
    now_ms: int = 0
    scan: int = 0
    """How many messages a filter in SQL looks at in a queue; 0: as many as ever."""
    begun: list[Move] | None = None
    """Where the read of the last queue began; for a read that the disk may refuse."""


class Source(NamedTuple):
    """A topic to read from. `retry` is its number in receipts: 0 itself, 1 and 2 its retry
    topics.
    """

    topic: str
    retry: str
    queues: Sequence[int]
    offsets: Mapping[int, int]
    """Queue → offset of the group, where it has one."""


class Part(NamedTuple):
    """Messages of one queue."""

    topic: str
    retry: str
    queue_id: int
    start: int
    result: GetResult

    def offsets(self) -> list[int]:
        """Their queue offsets."""
        result = self.result
        if result.next_begin_offset - self.start == result.count:
            return list(range(self.start, result.next_begin_offset))
        return queue_offsets(result.views)


class Move(NamedTuple):
    """A new offset of a group in a queue without messages for it."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class PopResult:
    """The result of the reads."""

    parts: list[Part] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    count: int = 0
    size: int = 0
    rest: int = 0
    """Messages left, approximately."""
    cut: bool = False
    """A filter has scanned up to its limit: there may be more messages."""
    free_at_ms: int = 0
    """When the first of the blocked queues is free again; 0 when none is blocked."""
    unreadable: Move | None = None
    """A message that the disk cannot read, in front of all others."""


class PopReader:
    """Reads for POP, PEEK and NOTIFICATION. `chance(n)` returns a random number below n."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        consumers: ConsumerTables,
        orders: PopOrderTable,
        chance: Callable[[int], int],
    ) -> None:
        self._config = core.config
        self._guarded = core.config.auth.enabled
        self._store = core.store
        self._clock = core.clock
        self._topics = topics
        self._groups = consumers.groups
        self._offsets = consumers.offsets
        self._orders = orders
        self._chance = chance
        self.complete = core.store.complete
        self.reading = core.store.reading
        self._selective = SelectiveReader(core.store, core.clock)

    # ── What there is to read ──

    def _sources(self, scope: PopScope) -> list[Source]:
        """Topics in the order in which they are read, each with its queues: from a random one on,
        or the highest priority first.
        """
        topic = scope.topic.topic_name
        group = scope.group
        by_priority = bool(scope.topic.attributes) and self._is_by_priority(scope)
        known = self._offsets.queues
        retries: list[Source] = []
        queues: Sequence[int]
        # In order as well: a group may have popped otherwise before, and has messages there.
        for name, version in (
            (retry_topic_v1(topic, group), "1"),
            (retry_topic_v2(topic, group), "2"),
        ):
            config = self._topics.get(name)
            others = (
                version == "1" and self._guarded and is_of_a_group(name, group, self._groups.get)
            )
            if config is not None and not others:
                queues = self._queues(config.read_queue_nums, by_priority)
                retries.append(Source(name, version, queues, known(group, name)))
        queues = (scope.queue_id,)
        if scope.queue_id == ALL_QUEUES:
            queues = self._queues(scope.topic.read_queue_nums, by_priority)
        itself = Source(topic, "0", queues, known(group, topic))
        if not retries:
            return [itself]
        options = self._config.broker
        percent = options.pop_from_retry_probability_percent
        if by_priority:
            percent = options.pop_from_retry_probability_for_priority_percent
        return [*retries, itself] if self._chance(100) < percent else [itself, *retries]

    def _is_by_priority(self, scope: PopScope) -> bool:
        """Whether a pop reads the highest priority of its topic first."""
        if scope.order or scope.topic.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        group = self._groups.get(scope.group)
        return group is None or self._chance(100) < factor_of(group.attributes)

    def _queues(self, count: int, by_priority: bool) -> Sequence[int]:
        """All queue ids, from a random one on or the highest priority first."""
        if count <= 1:
            return range(count)
        # In a pass that is cut by the clock, the lowest of more queues would never have a turn.
        if by_priority and count <= LOOKS:
            up = range(count)
            return up[::-1] if self._config.broker.priority_order_asc else up
        begin = self._chance(count)
        return (*range(begin, count), *range(begin))

    def _start(self, scope: PopScope, source: Source, queue_id: int) -> int:
        """The offset of the group. Raises: NotInMemory, OSError."""
        resets = self._offsets.resets
        if resets:
            reset = resets.get((scope.group, source.topic, queue_id))
            if reset is not None:
                return reset
        known = source.offsets.get(queue_id, NO_OFFSET)
        if known >= 0:
            return known
        first = self._store.min_offset(source.topic, queue_id)
        if scope.init_mode != FROM_END or source.retry != "0":
            return first
        end = self._store.max_offset(source.topic, queue_id)
        if first == 0 and end and self._store.is_hot(source.topic, queue_id, 0):
            # The rule for new queues, as for groups that pull.
            return 0
        return max(0, end - 1)

    # ── Reading ──

    def read(self, scope: PopScope) -> PopResult:
        """Messages for one pop. Raises: NotInMemory, OSError."""
        reads = PopResult()
        enough_bytes = self._store.config.max_transfer_bytes_on_message_in_memory
        began = self._clock.monotonic()
        known_queue, resets = self._store.queues.table.get, self._offsets.resets
        looked_at = 0
        for source in self._sources(scope):
            topic, known_offset = source.topic, source.offsets.get
            for queue_id in source.queues:
                looked_at += 1
                if not looked_at % LOOKS and self._clock.monotonic() - began > PASS_S:
                    # The next pop starts with another queue.
                    reads.cut = True
                    return reads
                start = known_offset(queue_id, NO_OFFSET)
                if start < 0 or resets:
                    start = self._start(scope, source, queue_id)
                queue = known_queue((topic, queue_id))
                left = (0 if queue is None else queue.end_offset) - start
                if left == 0:
                    if self._is_news(scope, source, queue_id):
                        reads.moves.append(Move(topic, queue_id, start))
                    continue
                full = reads.count >= scope.max_messages or reads.size >= enough_bytes
                if full and len(source.queues) > COUNTED_MAX:
                    break
                if full or (scope.order and self._is_blocked(scope, source, queue_id, reads)):
                    reads.rest += max(0, left)
                elif (
                    isinstance(scope.matches, SqlFilter)
                    and self._clock.monotonic() - began > SCAN_S
                ):
                    reads.cut = True
                else:
                    self._read_queue(scope, source, queue_id, start, reads)
        return reads

    async def read_from_disk(self, scope: PopScope) -> PopResult:
        """As `read`, part of it from the disk. Raises: OSError; MessageUnreadable if it is orderly.

        Where a message cannot be read, fewer are tried: those in front of it, and of other queues,
        which come first by chance.
        """
        begun: list[Move] = []
        scope = scope._replace(begun=begun)
        most, sql = scope.max_messages, isinstance(scope.matches, SqlFilter)
        if sql:
            most = self._selective.scan(most)

        def read(most: int) -> PopResult:
            return self.read(
                scope._replace(scan=most) if sql else scope._replace(max_messages=most)
            )

        try:
            return await self._store.complete_some(read, most, alone=TRIES)
        except Unreadable as error:
            if not begun:
                raise
            return PopResult(unreadable=await self._unreadable(scope, *begun[-1], error))

    async def _unreadable(
        self, scope: PopScope, topic: str, queue_id: int, at: int, error: Unreadable
    ) -> Move | None:
        """The message that stops a pop; None where the group has gone on meanwhile, or was reset.

        Raises: MessageUnreadable for an orderly pop, OSError.
        """
        begin = Location(topic, queue_id, at, -1)
        stopped = self._place(scope.group, topic, queue_id)
        where = await tell_first_wanted(self._store, SERVICE, begin, scope.matches, error)
        if scope.order:
            broker = self._config.broker.broker_name
            raise MessageUnreadable(scope.group, broker, where, error) from error
        if self._place(scope.group, topic, queue_id) != stopped:
            return None
        return Move(topic, queue_id, where.queue_offset)

    def _place(self, group: str, topic: str, queue_id: int) -> tuple[int, int | None]:
        """The offset of a group in a queue, and that of a reset that is not applied yet."""
        reset = self._offsets.resets.get((group, topic, queue_id))
        return self._offsets.query(group, topic, queue_id), reset

    def has_messages(self, scope: PopScope) -> PopResult:
        """Whether a pop could get a message: then `rest` is not 0. Raises: NotInMemory, OSError."""
        reads = PopResult()
        began = self._clock.monotonic()
        looked_at = 0
        for source in self._sources(scope):
            for queue_id in source.queues:
                looked_at += 1
                if not looked_at % LOOKS and self._clock.monotonic() - began > PASS_S:
                    reads.cut = True
                    return reads
                start = self._start(scope, source, queue_id)
                left = self._store.max_offset(source.topic, queue_id) - start
                if left > 0 and not self._is_blocked(scope, source, queue_id, reads):
                    reads.rest = left
                    return reads
        return reads

    def _is_news(self, scope: PopScope, source: Source, queue_id: int) -> bool:
        """Whether the group's offset has to be stored though there is no message.

        A group that begins at the end keeps this end, however late it finds a message; and an
        applied reset is stored.
        """
        if (scope.group, source.topic, queue_id) in self._offsets.resets:
            return True
        if scope.init_mode != FROM_END or source.retry != "0":
            return False
        return queue_id not in source.offsets

    def _is_blocked(self, scope: PopScope, source: Source, queue_id: int, reads: PopResult) -> bool:
        if not scope.order or (scope.group, source.topic, queue_id) in self._offsets.resets:
            return False
        free_at_ms = self._orders.blocked_until(
            source.topic,
            scope.group,
            queue_id,
            scope.attempt_id,
            scope.now_ms,
            source.offsets.get(queue_id, NO_OFFSET),
        )
        if free_at_ms and (not reads.free_at_ms or free_at_ms < reads.free_at_ms):
            reads.free_at_ms = free_at_ms
        return free_at_ms > 0

    def _read_queue(
        self, scope: PopScope, source: Source, queue_id: int, start: int, reads: PopResult
    ) -> None:
        most = scope.max_messages - reads.count
        if scope.begun is not None:
            scope.begun[:] = [Move(source.topic, queue_id, start)]
        result = self._get(scope, source.topic, queue_id, start, most)
        if result.status in OUTSIDE:
            # The group's offset is from an earlier queue of the same name.
            start = result.next_begin_offset
            result = self._get(scope, source.topic, queue_id, start, most)
        reads.rest += max(0, result.max_offset - result.next_begin_offset)
        if result.status is FOUND:
            reads.parts.append(Part(source.topic, source.retry, queue_id, start, result))
            reads.count += result.count
            reads.size += result.size
            return
        reads.moves.append(Move(source.topic, queue_id, result.next_begin_offset))
        reads.cut = reads.cut or result.next_begin_offset < result.max_offset

    def _get(self, scope: PopScope, topic: str, queue_id: int, start: int, most: int) -> GetResult:
        matches = scope.matches
        if isinstance(matches, SqlFilter):
            return self._selective.get(
                topic, queue_id, start, most, matches.matches, scan=scope.scan
            )
        return self._store.get(topic, queue_id, start, most, matches)
