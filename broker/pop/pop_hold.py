"""Held pops and notifications, by topic and group, until a message comes.

Unlike for pulls, one message is for one of them. So an arrival wakes one waiter of each group whose
filter passes it, preferring waiters for any queue of the topic. A woken one runs again; if others
were faster it waits until its deadline. Messages that are delivered again arrive in a retry topic,
and wake waiters for the topic itself. Invariant: nothing is called per message while nobody waits.
Source: semantics §11.1 (PopLongPollingService).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import trio

from aerobee.broker.filters.subscription import passes
from aerobee.broker.holds.deadlines import Deadlines
from aerobee.broker.holds.held_request import HeldRequest
from aerobee.broker.holds.quota import HoldLimits, HoldQuota
from aerobee.broker.pop.pop_records import retry_topic_v1, retry_topic_v2

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.filters.subscription import Filter
    from aerobee.broker.holds.held_request import Connected

__all__ = ["ALL_QUEUES", "TICK_S", "WAKE_POPS", "HeldPop", "PopHold", "PopLimits"]

ALL_QUEUES: Final = -1
"""The queue id of a waiter for any queue of a topic."""
TICK_S: Final = 0.02
"""How late after its deadline a waiter may be answered."""
WAKE_POPS: Final = 32
"""Pops that run again before others get their turn: each is a read and a check point."""
EXPIRE_POPS: Final = 500
"""Deadlines that are handled before others get their turn."""


class PopLimits(NamedTuple):
    """How many may wait: in all, for one queue and group, and in how many topics and groups."""

    quota: HoldLimits = HoldLimits()
    of_queue: int = 1_024
    lines: int = 100_000


@dataclass(slots=True, eq=False, kw_only=True)
class HeldPop(HeldRequest):
    """One held pop or notification.

    `resume(last)` runs it again; unless it is the last time, it may be held once more.
    """

    topic: str
    queue_id: int
    kind: str
    """A message wakes one request of each kind."""
    look_at: float
    """When it runs again without an arrival, at most `deadline`."""
    resume: Callable[[bool], None]


class WaitingLine:
    """The waiters for one topic in one group, by queue id, the longest wait first."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[int, deque[HeldPop]] = {}

    def first(self, queue_id: int, tags_code: int, properties: bytes) -> HeldPop | None:
        """The waiter with the longest wait for this queue whose filter passes the message."""
        refused: Filter | None = None
        for waiting in self.queues.get(queue_id, ()):
            if refused is not None and waiting.matches is refused:
                continue
            if passes(waiting.matches, tags_code, properties):
                return waiting
            refused = waiting.matches
        return None


class LineKey(NamedTuple):
    """Topic, group and kind of waiters: a message is for any of them."""

    topic: str
    group: str
    kind: str


class PopHold:
    """All waiters. `listening` is called when the first one parks and when the last one has gone.

    `finish_round` is called after waiters were woken by the clock, in slices.

    Invariant: a waiter in a line counts in the quota and is not done.
    """

    at_once = WAKE_POPS
    """How many run again at the end of a round."""

    def __init__(
        self,
        limits: PopLimits,
        listening: Callable[[bool], None],
        finish_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._limits = limits
        self._finish_round = finish_round
        self.quota: HoldQuota[HeldPop] = HoldQuota(limits.quota)
        self._listening = listening
        self.lines: dict[LineKey, WaitingLine] = {}
        self.by_topic: dict[str, dict[LineKey, WaitingLine]] = {}
        self.deadlines: Deadlines[HeldPop] = Deadlines()
        self._woken: deque[tuple[HeldPop, bool]] = deque()
        self._somebody = trio.Event()
        """Set while there are waiters."""
        self._more = trio.Event()
        """Set when a slice of the woken waiters left some."""

    @property
    def parked(self) -> int:
        """How many wait."""
        return self.quota.count

    @property
    def waking(self) -> bool:
        """Whether woken waiters are still to run again."""
        return bool(self._woken)

    # ── Parking ──

    def park(self, waiting: HeldPop) -> bool:
        """Hold a request; False when there is no room."""
        key = LineKey(waiting.topic, waiting.group, waiting.kind)
        line = self.lines.get(key)
        queue = None if line is None else line.queues.get(waiting.queue_id)
        quota, limits = self.quota, self._limits
        if (line is None and len(self.lines) >= limits.lines) or (
            queue is not None and len(queue) >= limits.of_queue
        ):
            return False
        if not quota.admit(waiting, evict=self._mark_last):
            return False
        line = self.lines.get(key) or self._open(key)
        line.queues.setdefault(waiting.queue_id, deque()).append(waiting)
        if quota.count == 1:
            self._listening(True)
            self._somebody.set()
        self.deadlines.add(waiting.look_at, waiting, quota.count)
        return True

    def count(self, topic: str, group: str, queue_id: int, kind: str) -> int:
        """How many wait for a topic, group and queue."""
        line = self.lines.get(LineKey(topic, group, kind))
        return 0 if line is None else len(line.queues.get(queue_id, ()))

    def _open(self, key: LineKey) -> WaitingLine:
        line = self.lines[key] = WaitingLine()
        for name in _names(key):
            self.by_topic.setdefault(name, {})[key] = line
        return line

    def _close(self, key: LineKey) -> None:
        del self.lines[key]
        for name in _names(key):
            lines = self.by_topic[name]
            del lines[key]
            if not lines:
                del self.by_topic[name]

    # ── Waking ──

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_timestamp: int,
        properties: bytes,
    ) -> bool:
        """A message became readable; called by the dispatch of the store while there are
        waiters. Returns whether nobody waits for later ones of the topic.
        """
        lines = self.by_topic.get(topic)
        if lines is None:
            return True
        for key, line in list(lines.items()):
            back = topic != key.topic
            first = line.first(ALL_QUEUES, tags_code, properties)
            if first is not None:
                self._mark(first, last=False)
            # A retry wakes a waiter for any queue; a new message also one for its queue.
            if not back:
                first = line.first(queue_id, tags_code, properties)
            elif first is None:
                queues = (line.first(one, tags_code, properties) for one in line.queues)
                first = next((one for one in queues if one is not None), None)
            else:
                first = None
            if first is not None:
                self._mark(first, last=False)
        return topic not in self.by_topic

    def freed(self, topic: str, group: str, queue_id: int) -> None:
        """A blocked queue is free, or the time when it will be has changed: one of each kind tries
        again.
        """
        for key, line in list(self.by_topic.get(topic, {}).items()):
            if (key.topic, key.group) != (topic, group):
                continue
            waiting = (
                one for queue in (ALL_QUEUES, queue_id) for one in line.queues.get(queue, ())
            )
            first = next(waiting, None)
            if first is not None:
                self._mark(first, last=False)

    def wake(self, most: int = WAKE_POPS) -> int:
        """Run up to `most` woken waiters again; returns how many ran.

        Others run before the rest, which `run` continues.
        """
        woken = self._woken
        count = min(len(woken), most)
        for _ in range(count):
            waiting, last = woken.popleft()
            if not waiting.connection.closed:
                waiting.resume(last)
        if woken:
            self._more.set()
        return count

    def expire(self, now: float) -> bool:
        """Wake waiters whose deadline or next try has come; True if some are left."""
        for waiting in self.deadlines.over(now, EXPIRE_POPS):
            self._mark(waiting, last=waiting.deadline <= now)
        return self.deadlines.due(now)

    def closed(self, connection: Connected) -> None:
        """Drop the waiters of a closed connection."""
        for waiting in self.quota.of(connection):
            self._release(waiting)
            waiting.resume = nothing

    def release_all(self) -> None:
        """Wake all: the broker stops. `waking` is true until they are answered."""
        for line in list(self.lines.values()):
            for queue in list(line.queues.values()):
                for waiting in list(queue):
                    self._mark(waiting, last=True)
        self.wake()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Answer deadlines until cancelled."""
        task_status.started()
        tick = trio.current_time()
        while True:
            if not self._woken:
                await self._somebody.wait()
            with trio.move_on_at(tick):
                await self._more.wait()
            self._more = trio.Event()
            now = trio.current_time()
            if now >= tick and not self.expire(now):
                tick = now + TICK_S
            if self._woken:
                self._finish_round()
            await trio.lowlevel.checkpoint()

    def _mark_last(self, waiting: HeldPop) -> None:
        self._mark(waiting, last=True)

    def _mark(self, waiting: HeldPop, *, last: bool) -> None:
        self._release(waiting)
        self._woken.append((waiting, last))

    def _release(self, waiting: HeldPop) -> None:
        key = LineKey(waiting.topic, waiting.group, waiting.kind)
        line = self.lines[key]
        queue = line.queues[waiting.queue_id]
        if queue[0] is waiting:
            queue.popleft()
        else:
            queue.remove(waiting)
        if not queue:
            del line.queues[waiting.queue_id]
            if not line.queues:
                self._close(key)
        waiting.done = True
        self.quota.release(waiting)
        if not self.quota.count:
            self._listening(False)
            self._somebody = trio.Event()


def _names(key: LineKey) -> tuple[str, str, str]:
    """The topics whose arrivals concern a line."""
    topic, group, _ = key
    return topic, retry_topic_v1(topic, group), retry_topic_v2(topic, group)


def nothing(_: bool) -> None:
    """Replaces the callback of a waiter whose peer has gone, until its deadline."""
