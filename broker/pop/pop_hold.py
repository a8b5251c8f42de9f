"""Held pops and notifications, by topic and group, until a message comes.

Unlike for pulls, one message is for one of them. So an arrival wakes one waiter of each group whose
filter passes it, preferring waiters for any queue of the topic. A woken one runs again; if others
were faster it waits until its deadline. Messages that are delivered again arrive in a retry topic,
and wake waiters for the topic itself. Invariant: nothing is called per message while nobody waits,
and what a message costs does not grow with groups and filters that it wakes nobody of. Source:
semantics §11.1 (PopLongPollingService).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

import trio

from aerobee.broker.holds.deadlines import Deadlines
from aerobee.broker.holds.held_request import HeldRequest
from aerobee.broker.holds.quota import HoldLimits, HoldQuota
from aerobee.broker.holds.waiting_lines import WaitingLines
from aerobee.broker.pop.pop_records import retry_topic_v1, retry_topic_v2
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from aerobee.broker.holds.held_request import HoldingConnection
    from aerobee.broker.holds.waiting_lines import WaitingLine

ALL_QUEUES: Final = -1
"""The queue id of a waiter for any queue of a topic."""
POPS: Final = "pop"
NOTIFICATIONS: Final = "notification"
KINDS: Final = (POPS, NOTIFICATIONS)
TICK_S: Final = 0.02
"""How late after its deadline a waiter may be answered."""
WAKE_POPS: Final = 32
"""Pops that run again before others get their turn: each is a read and a check point."""
EXPIRE_POPS: Final = 500
"""Deadlines that are handled before others get their turn."""

SHARING: Final = 32
"""Lines of a group that may want the same tag of a queue: a message looks at all, and wakes one."""


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
    """A kind out of `KINDS`: a message wakes one request of each."""
    look_at: float
    """When it runs again without an arrival, at most `deadline`."""
    resume: Callable[[bool], None]
    number: int = field(init=False)
    """Set by `PopHold.park`, as the fields below: the longest wait has the lowest."""
    key: GroupKey = field(init=False)
    line: WaitingLine[HeldPop] = field(init=False)


class GroupKey(NamedTuple):
    """Topic, group and kind of waiters: a message is for any of them."""

    topic: str
    group: str
    kind: str


Waiters: TypeAlias = dict[int, dict["HeldPop", None]]
"""The waiters of one topic, group and kind, by queue id, the longest wait first."""


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
        self.groups: dict[GroupKey, Waiters] = {}
        self.places: dict[tuple[str, int], WaitingLines[HeldPop]] = {}
        """By topic and queue id: the waiters of all groups, whose key is the owner of a line."""
        self.by_retry_topic: dict[str, dict[GroupKey, None]] = {}
        self._numbers = count()
        self.deadlines: Deadlines[HeldPop] = Deadlines()
        self._woken: deque[tuple[HeldPop, bool]] = deque()
        self._somebody = trio.Event()
        """Set while there are waiters."""
        self._changed: set[str] = set()
        """Topics and groups that have changed since the last tick."""
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
        topic, queue_id = waiting.topic, waiting.queue_id
        key = waiting.key = GroupKey(topic, waiting.group, waiting.kind)
        waiters = self.groups.get(key)
        queue = None if waiters is None else waiters.get(queue_id)
        quota, limits = self.quota, self._limits
        if (waiters is None and len(self.groups) >= limits.lines) or (
            queue is not None and len(queue) >= limits.of_queue
        ):
            return False
        if not quota.admit(waiting, evict=self._mark_last):
            return False
        waiting.number = next(self._numbers)
        # The eviction may have removed the group, or all who wait for the queue.
        waiters = self.groups.get(key) or self._open(key)
        waiters.setdefault(queue_id, {})[waiting] = None
        place = self.places.get((topic, queue_id))
        if place is None:
            place = self.places[topic, queue_id] = WaitingLines(SHARING)
        waiting.line = place.add(waiting, key)
        if quota.count == 1:
            self._listening(True)
            self._somebody.set()
        self.deadlines.add(waiting.look_at, waiting, quota.count)
        return True

    def count(self, topic: str, group: str, queue_id: int, kind: str) -> int:
        """How many wait for a topic, group and queue."""
        waiters = self.groups.get(GroupKey(topic, group, kind))
        return 0 if waiters is None else len(waiters.get(queue_id, ()))

    def _open(self, key: GroupKey) -> Waiters:
        waiters: Waiters = {}
        self.groups[key] = waiters
        for name in _retry_topics(key):
            self.by_retry_topic.setdefault(name, {})[key] = None
        return waiters

    def _close(self, key: GroupKey) -> None:
        del self.groups[key]
        for name in _retry_topics(key):
            groups = self.by_retry_topic[name]
            del groups[key]
            if not groups:
                del self.by_retry_topic[name]

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
        places, message = self.places, (tags_code, properties)
        # A new message wakes a waiter for any queue, and one for its own.
        for place in (topic, ALL_QUEUES), (topic, queue_id):
            lines = places.get(place)
            if lines is not None:
                self._wake_groups(lines.passing(*message))
        back = self.by_retry_topic.get(topic)
        if back is not None:
            for key in list(back):
                self._wake_back(key, *message)
        return not (
            (topic, ALL_QUEUES) in places
            or (topic, queue_id) in places
            or topic in self.by_retry_topic
        )

    def _wake_groups(self, waiting: list[WaitingLine[HeldPop]]) -> None:
        """Wake one waiter of each group and kind that has one of these lines."""
        if len(waiting) == 1:
            self._mark(waiting[0].first, last=False)
            return
        by_owner: dict[Hashable, list[WaitingLine[HeldPop]]] = {}
        for line in waiting:
            by_owner.setdefault(line.owner, []).append(line)
        for lines in by_owner.values():
            self._mark(_longest(lines), last=False)

    def _wake_back(self, key: GroupKey, tags_code: int, properties: bytes) -> None:
        """Wake a waiter for a message that is delivered again: best one for any queue."""
        for queue_id in (ALL_QUEUES, *self.groups[key]):
            place = self.places.get((key.topic, queue_id))
            if place and (waiting := place.passing_of(key, tags_code, properties)):
                self._mark(_longest(waiting), last=False)
                return

    def freed(self, topic: str, group: str, queue_id: int) -> None:
        """A blocked queue is free, or the time when it will be has changed, or a waiter for it has
        gone: one of each kind tries again.
        """
        # A pop reads the retry topics of its group as well, all of their queues.
        back = [key for key in self.by_retry_topic.get(topic, ()) if key.group == group]
        for key in (*(GroupKey(topic, group, kind) for kind in KINDS), *back):
            waiters = self.groups.get(key)
            if waiters is None:
                continue
            every = queue_id == ALL_QUEUES or key.topic != topic
            queues = waiters if every else (ALL_QUEUES, queue_id)
            first = next(chain.from_iterable(waiters.get(queue, {}) for queue in queues), None)
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
            elif not last:
                self.freed(*waiting.key[:2], waiting.queue_id)
        if woken:
            self._more.set()
        return count

    def expire(self, now: float) -> bool:
        """Wake waiters whose deadline or next try has come; True if some are left."""
        for waiting in self.deadlines.over(now, EXPIRE_POPS):
            self._mark(waiting, last=waiting.deadline <= now)
        return self.deadlines.due(now)

    def closed(self, connection: HoldingConnection) -> None:
        """Drop the waiters of a closed connection."""
        for waiting in self.quota.of(connection):
            self._release(waiting)
            waiting.resume = nothing

    def changed(self, names: Iterable[str]) -> None:
        """Topics or groups have changed, or are gone: who waits soon runs again, which checks."""
        if self.parked:
            self._changed.update(names)

    def recheck(self) -> Iterator[None]:
        """Wake the waiters of changed topics and groups. Others may run between two groups."""
        changed, self._changed = self._changed, set()
        for key in list(self.groups):
            if key.topic in changed or key.group in changed:
                for queue in list(self.groups.get(key, {}).values()):
                    for waiting in list(queue):
                        self._mark(waiting, last=False)
                yield

    def release_all(self) -> None:
        """Wake all: the broker stops. `waking` is true until they are answered."""
        for waiters in list(self.groups.values()):
            for queue in list(waiters.values()):
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
            if self._changed:
                await in_slices(self.recheck())
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
        place_key = (waiting.topic, waiting.queue_id)
        if not self.places[place_key].remove(waiting, waiting.line):
            del self.places[place_key]
        key = waiting.key
        waiters = self.groups[key]
        queue = waiters[waiting.queue_id]
        del queue[waiting]
        if not queue:
            del waiters[waiting.queue_id]
            if not waiters:
                self._close(key)
        waiting.done = True
        self.quota.release(waiting)
        if not self.quota.count:
            self._listening(False)
            self._somebody = trio.Event()


def _longest(lines: Sequence[WaitingLine[HeldPop]]) -> HeldPop:
    """The one of these lines with the longest wait."""
    if len(lines) == 1:
        return lines[0].first
    return min((line.first for line in lines), key=attrgetter("number"))


def _retry_topics(key: GroupKey) -> tuple[str, str]:
    """The topics of the messages that are delivered again to a group."""
    return retry_topic_v1(key.topic, key.group), retry_topic_v2(key.topic, key.group)


def nothing(_: bool) -> None:
    """Replaces the callback of a waiter whose peer has gone, until its deadline."""
