"""Long polling: pulls that found nothing wait here until a message comes or their time is up.

Invariant: a pull is parked in the same step in which it saw the end of its queue, so it misses
nothing. Arrivals only mark; `wake` runs marked pulls again once per round, so that one answer has
everything of the round. A woken pull always answers. Marking costs the same however many wait for a
queue; they are answered in slices, so that others get their turn. The number of held pulls is
bounded in all, by connection and by group (`holds/quota.py`), and what a message costs does not
grow with their filters (`holds/waiting_lines.py`). Source: PullRequestHoldService.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import trio

from aerobee.broker.holds.deadlines import Deadlines
from aerobee.broker.holds.held_request import HeldRequest
from aerobee.broker.holds.quota import HoldQuota
from aerobee.broker.holds.waiting_lines import WaitingLines
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from aerobee.broker.holds.held_request import HoldingConnection
    from aerobee.broker.holds.quota import HoldLimits
    from aerobee.broker.holds.waiting_lines import WaitingLine

DEADLINE_TICK_S = 0.05
"""How late after its deadline a held pull may be answered."""
WAKE_PULLS = 32
"""Pulls answered in one slice, about two milliseconds."""
EXPIRE_PULLS = 500
"""Deadlines that are handled before others get their turn, about a millisecond."""
SHARING = 256
"""Lines that may want the same tag of a queue: a message wakes all of them in one step."""
SWEEP_S = 5.0
"""How often the end of each queue is compared, for pulls whose filter no arrival passed."""


@dataclass(slots=True, eq=False, kw_only=True)
class HeldPull(HeldRequest):
    """One held pull. `resume` runs the whole pull again, which is not held a second time."""

    queue: tuple[str, int]
    queue_offset: int
    resume: Callable[[], None]
    line: WaitingLine[HeldPull] = field(init=False)
    """Set by `Hold.park`."""


class Hold:
    """All held pulls by (topic, queue id) and filter; `flush` sends answers made by the clock.

    Invariant: a pull that is not done counts in the quota, and is in `_lines` until it is in
    `_woken`. A pull in `deadlines` or `_woken` may be done; then it does not count.
    """

    at_once = WAKE_PULLS
    """How many run again at the end of a round."""

    def __init__(
        self,
        max_offset: Callable[[str, int], int],
        limits: HoldLimits,
        flush: Callable[[], None] = lambda: None,
        listening: Callable[[bool], None] = lambda on: None,
        still: Callable[[str, str, int], bool] = lambda group, topic, queue_id: True,
    ) -> None:
        """`listening` is called when the first pull parks and when the last one has gone. `still`:
        whether the pull of a group at a queue may go on waiting.
        """
        self._max_offset = max_offset
        self._flush = flush
        self._listening = listening
        self._still = still
        self.quota: HoldQuota[HeldPull] = HoldQuota(limits)
        self._lines: dict[tuple[str, int], WaitingLines[HeldPull]] = {}
        self.deadlines: Deadlines[HeldPull] = Deadlines()
        self._woken: deque[HeldPull] = deque()
        self._changed: set[str] = set()
        """Topics and groups that have changed since the last tick."""
        self._more = trio.Event()

    @property
    def parked(self) -> int:
        """How many pulls are held."""
        return self.quota.count

    @property
    def queues(self) -> Collection[tuple[str, int]]:
        """The queues at which pulls wait."""
        return self._lines.keys()

    @property
    def waking(self) -> bool:
        """Whether woken pulls are still to be answered."""
        return bool(self._woken)

    def park(self, held: HeldPull) -> bool:
        """Hold a pull that found nothing at the end of its queue; False when there is no room."""
        quota = self.quota
        if not quota.admit(held, evict=self._wake_one):
            return False
        lines = self._lines.get(held.queue)
        if lines is None:
            if not self._lines:
                self._listening(True)
            lines = self._lines[held.queue] = WaitingLines(SHARING)
        line = held.line = lines.add(held)
        queue_offset = held.queue_offset
        if queue_offset < line.lowest:
            line.lowest = queue_offset
        if queue_offset > line.highest:
            line.highest = queue_offset
        self.deadlines.add(held.deadline, held, quota.count)
        return True

    def closed(self, connection: HoldingConnection) -> None:
        """Drop the pulls of a closed connection."""
        for held in self.quota.of(connection):
            self._release(held)
            held.resume = nothing

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_timestamp: int,
        properties: bytes,
    ) -> bool:
        """A message became readable; called for each one by the dispatch of the store, while it is
        asked to. Returns whether nobody waits for later ones of the queue.
        """
        lines = self._lines.get((topic, queue_id))
        if lines is None:
            return True
        for line in lines.passing(tags_code, properties):
            if max_offset > line.lowest:
                self._wake_below((topic, queue_id), line, max_offset)
        return (topic, queue_id) not in self._lines

    def wake(self, most: int = WAKE_PULLS) -> int:
        """Run marked pulls again; called once at the end of a round. 0: pulls put nothing.

        Thousands may wait for one message: others run before the rest of a slice, which `run`
        continues.
        """
        woken = self._woken
        for _ in range(min(len(woken), most)):
            held = woken.popleft()
            if not held.done:
                self._release(held)
            if not held.connection.closed:
                resume, held.resume = held.resume, nothing
                resume()
        if woken:
            self._more.set()
        return 0

    def expire(self, now: float) -> bool:
        """Answer pulls whose deadline has come; True if some are left for the next step."""
        for expired in self.deadlines.over(now, EXPIRE_PULLS):
            self._wake_one(expired)
        self.wake()
        return self.deadlines.due(now)

    def sweep(self) -> Iterator[None]:
        """Wake every pull behind the end of its queue, whatever its filter.

        This advances a consumer whose queue got only messages that its filter does not pass. Others
        may run between two lines.
        """
        for queue, lines in list(self._lines.items()):
            end = self._max_offset(*queue)
            for line in lines:
                self._wake_below(queue, line, end)
                yield

    def changed(self, names: Iterable[str]) -> None:
        """Topics or groups are new, changed or gone: soon their pulls are looked at."""
        if self.parked:
            self._changed.update(names)

    def recheck(self) -> Iterator[None]:
        """Wake the pulls that may wait no more: of changed topics and groups. Others may run
        between two queues.
        """
        changed, self._changed = self._changed, set()
        groups = changed & self.quota.by_group.keys()
        for queue, lines in list(self._lines.items()):
            if queue[0] not in changed and not groups:
                continue
            for line in lines:
                for held in list(line.held):
                    of_changed = queue[0] in changed or held.group in groups
                    if of_changed and not self._still(held.group, *queue):
                        self._wake_one(held)
            yield

    def release_all(self) -> None:
        """Wake all: the broker stops. `waking` is true until they are answered."""
        for queue, lines in list(self._lines.items()):
            for line in lines:
                self._wake_line(queue, line)
        self.wake()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Answer deadlines and sweep until cancelled."""
        task_status.started()
        next_tick = trio.current_time() + DEADLINE_TICK_S
        next_sweep = trio.current_time() + SWEEP_S
        while True:
            with trio.move_on_at(next_tick):
                await self._more.wait()
            self._more = trio.Event()
            now = trio.current_time()
            if now >= next_tick:
                if self._changed:
                    await in_slices(self.recheck())
                if not self.expire(now):
                    next_tick = now + DEADLINE_TICK_S
            else:
                self.wake()
            self._flush()
            if now >= next_sweep:
                next_sweep = now + SWEEP_S
                await in_slices(self.sweep())
                self.wake()
                self._flush()
            await trio.lowlevel.checkpoint()

    def _wake_line(self, queue: tuple[str, int], line: WaitingLine[HeldPull]) -> None:
        self._woken.extend(line.held)
        self._forget(queue, line)

    def _wake_below(self, queue: tuple[str, int], line: WaitingLine[HeldPull], end: int) -> None:
        """Wake the pulls of a line that asked for less than its queue has."""
        if end > line.highest:
            self._wake_line(queue, line)
            return
        below = [held for held in line.held if held.queue_offset < end]
        # Pulls that asked for more are not looked at again by messages in between.
        line.lowest = end
        for held in below:
            self._wake_one(held)

    def _wake_one(self, held: HeldPull) -> None:
        self._release(held)
        self._woken.append(held)

    def _release(self, held: HeldPull) -> None:
        held.done = True
        self.quota.release(held)
        line = held.line
        del line.held[held]
        if not line.held:
            self._forget(held.queue, line)

    def _forget(self, queue: tuple[str, int], line: WaitingLine[HeldPull]) -> None:
        """Remove a line, unless it was woken before: then a later one may have its place."""
        lines = self._lines.get(queue)
        if lines is not None and not lines.close(line):
            del self._lines[queue]
            if not self._lines:
                self._listening(False)


def nothing() -> None:
    """Replaces the callback of a pull that was answered, or whose peer has gone, until its
    deadline.
    """
