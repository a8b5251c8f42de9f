"""Writes check points and acknowledgements to the revive log, by way of the timers.

Both are ordinary messages of a system topic with a due time: so they survive a stop, a kill and a
take-over by a Java broker without a file of their own. `revive` reads them. A pop that is
acknowledged before the timers have read its check point is over: it needs neither timers nor the
revive log any more, only a start after a kill may read its records again. Source: semantics §11.2
(PopMessageProcessor.buildCkMsg, AckMessageProcessor).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET

from aerobee.broker.answers import STORED
from aerobee.broker.pop.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Ack,
    PopKey,
    revive_topic,
)
from aerobee.broker.timers.timer_properties import slot_of
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.tags import tags_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.pop.pop_hold import PopHold
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.broker.pop.pop_records import CheckPoint
    from aerobee.broker.timers.timers import Timers
    from aerobee.store.results import PutResult, PutStatus
    from aerobee.store.timers.timer_store import TimerStore

FRESH_MAX: Final = 20_000
"""Pops that are followed until the timers read them; others get timers in any case."""
NEEDLESS_MAX: Final = 1_000_000
"""Records that need no timer, until the timers pass them; others get timers in any case."""
TAGS_CODES: Final = {tag: tags_code(tag) for tag in (ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG)}
NEVER: Final = -1
"""A queue offset that nobody acknowledges."""
AHEAD_MS: Final = 1_000
"""How long before its time is over a check point arrives in the revive log."""


class PopsOut(NamedTuple):
    """Where popped messages are recorded, and the pops that wait."""

    revive_log: ReviveLog
    offsets: ConsumerOffsetTable
    orders: PopOrderTable
    hold: PopHold
    timed: bool
    """Whether the timers run."""


class PopIdentity(NamedTuple):
    """Identifies the records of a pop that meet in the revive log: key, revive queue, due time."""

    key: PopKey
    revive_qid: int
    due_ms: int


class FreshPop:
    """A pop of which no record has a timer yet."""

    __slots__ = ("begin", "left", "name", "records")

    def __init__(self, name: PopIdentity, left: list[int], begin: int) -> None:
        self.name = name
        self.left = left
        """Unacknowledged queue offsets."""
        self.begin = begin
        """The offset of its check point in the timers' queue."""
        self.records = [begin]


class FreshPops:
    """Pops whose check points the timers have not read; those acknowledged by then are `needless`.

    `read_to` is the offset that they read next. Invariant: a check point and its acknowledgements
    become needless together, before the timers read the first of them.
    """

    def __init__(self, read_to: Callable[[], int], needless: set[int]) -> None:
        self._read_to = read_to
        self._needless = needless
        self.open: dict[PopIdentity, FreshPop] = {}
        self._in_order: deque[FreshPop] = deque()

    def begin(self, name: PopIdentity, offsets: list[int], at: int) -> None:
        """A check point was put, at this offset of the timers' queue."""
        read_to, in_order = self._read_to(), self._in_order
        while in_order and (in_order[0].begin < read_to or not in_order[0].left):
            self._forget(in_order.popleft())
        if known := self.open.get(name):
            # Check points with one key count once in the revive log, so all of them have to get
            # there.
            known.begin, known.left = at, [NEVER]
        elif len(in_order) < FRESH_MAX:
            pop = self.open[name] = FreshPop(name, offsets, at)
            in_order.append(pop)

    def acknowledge(self, name: PopIdentity, offsets: list[int], at: int) -> None:
        """An acknowledgement was put, at this offset of the timers' queue."""
        pop = self.open.get(name)
        if pop is None:
            return
        if pop.begin < self._read_to():
            self._forget(pop)
            return
        if offsets == pop.left:
            left = []
        else:
            done = frozenset(offsets)
            left = [offset for offset in pop.left if offset not in done]
            if len(left) == len(pop.left):
                return
        pop.left = left
        pop.records.append(at)
        if not left:
            self._forget(pop)
            if len(self._needless) < NEEDLESS_MAX:
                self._needless.update(pop.records)

    def _forget(self, pop: FreshPop) -> None:
        if self.open.get(pop.name) is pop:
            del self.open[pop.name]


class ReviveLog:
    """The writer. It returns the status of the put."""

    def __init__(self, core: Core, timers: Timers | None) -> None:
        self.topic = revive_topic(core.config.broker.broker_cluster_name)
        self._commit_log = core.store.commit_log
        self._puts = core.puts
        self._clock = core.clock
        self._host = core.store_host
        self._stats = core.stats.pop
        self._stats.since_ms = core.clock.now_ms()
        self._longest_ms = core.config.store.timer_max_delay_s * 1_000
        self._wheel: TimerStore | None = None
        self.fresh: FreshPops | None = None
        if timers is not None:
            self._wheel = store = timers.timers
            self.fresh = FreshPops(lambda: store.queue_offset, timers.enqueue.needless)

    def check_point(
        self, point: CheckPoint, offsets: list[int], revive_qid: int, *, accepted: bool = False
    ) -> PutStatus:
        """Put the check point of messages; `accepted`: one was put before. Raises: Refusal."""
        point.revive_time = due_ms = point.due_ms
        if point.log_end is UNSET:
            point.log_end = self._commit_log.max_offset
        text = point.to_bytes(), CHECK_POINT_TAG, point.unique_key
        result, timed = self._put(*text, revive_qid, due_ms - AHEAD_MS, accepted=accepted)
        if self.fresh is not None and timed and result.status in STORED:
            name = PopIdentity(point.key, revive_qid, due_ms)
            self.fresh.begin(name, offsets, result.queue_offset)
        key = (point.topic, point.group, "CK", result.status.name)
        self._stats.add(self._stats.revive_in, key)
        return result.status

    def acknowledge(
        self, key: PopKey, offsets: list[int], revive_qid: int, due_ms: int
    ) -> PutStatus:
        """Put the acknowledgement of messages of a pop. Raises: Refusal."""
        ack = Ack.of(key, offsets)
        result, timed = self._put(ack.to_bytes(), ack.tag, ack.unique_key, revive_qid, due_ms)
        if self.fresh is not None and timed and result.status in STORED:
            self.fresh.acknowledge(
                PopIdentity(key, revive_qid, due_ms), offsets, result.queue_offset
            )
        self._stats.add(self._stats.revive_in, (key.topic, key.group, "ACK", result.status.name))
        return result.status

    def put_back(self, key: PopKey, offsets: list[int], topic: str, revive_qid: int) -> PutStatus:
        """Acknowledge messages that were put back, in that revive log itself: no timer is needed
        behind a check point that has arrived. Raises: Refusal.
        """
        ack = Ack.of(key, offsets)
        draft = self._draft(ack.to_bytes(), revive_qid, topic)
        properties = {"TAGS": ack.tag, "UNIQ_KEY": ack.unique_key}
        return self._puts.put(draft, properties, accepted=True).status

    def _put(
        self,
        body: bytes,
        tag: str,
        unique_key: str,
        revive_qid: int,
        deliver_ms: int,
        *,
        accepted: bool = False,
    ) -> tuple[PutResult, bool]:
        """Put a record for the revive log, and whether it is in the timers' topic. Hot: two records
        for each pop. Raises: Refusal.
        """
        puts, host, now_ms = self._puts, self._host, self._clock.now_ms()
        if self._wheel is not None and now_ms < deliver_ms <= now_ms + self._longest_ms:
            # As the hooks would change it, but in half of their time.
            text = (
                f"TAGS\x01{tag}\x02TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{unique_key}\x02"
                f"TIMER_OUT_MS\x01{slot_of(deliver_ms, self._wheel.precision_ms)}\x02"
                f"REAL_TOPIC\x01{self.topic}\x02REAL_QID\x01{revive_qid}\x02"
            ).encode()
            code = TAGS_CODES[tag]
            draft = MessageDraft(
                WHEEL_TOPIC, 0, body, text, host, host, born_timestamp=now_ms, tags_code=code
            )
            return puts.put_again(draft) if accepted else puts.put_as_is(draft), True
        draft = self._draft(body, revive_qid, self.topic)
        properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(deliver_ms), "UNIQ_KEY": unique_key}
        result = puts.put(draft, properties, accepted=accepted)
        return result, draft.topic == WHEEL_TOPIC

    def _draft(self, body: bytes, revive_qid: int, topic: str) -> MessageDraft:
        """A message of a revive log without its properties."""
        return MessageDraft(
            topic,
            revive_qid,
            body,
            b"",
            self._host,
            self._host,
            born_timestamp=self._clock.now_ms(),
        )
