"""Long polling: pulls that found nothing wait here until a message comes or their time is up.

Law: a pull is parked in the same step in which it saw the end of its queue, so it misses nothing.
Arrivals only mark; `wake` runs the marked pulls again once per round, so that one answer carries
everything that the round brought. A pull that wakes always answers.
Source: spec of the Java side (PullRequestHoldService).
"""

from __future__ import annotations

from functools import partial
from operator import is_
from typing import TYPE_CHECKING, NoReturn

import trio

from broker.filters.sql_filter import SqlFilter
from broker.services.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.filters.subscription import Filter
    from remoting.server.connection import Connection

__all__ = ["DEADLINE_TICK_S", "SWEEP_S", "Held", "Hold"]

DEADLINE_TICK_S = 0.05
"""How late after its deadline a held pull may be answered."""
SWEEP_S = 5.0
"""How often the end of each queue is compared, for pulls whose filter no arrival matched."""


class Held:
    """One parked pull. `resume` runs the whole pull again, with parking disallowed."""

    __slots__ = ("connection", "deadline", "done", "matches", "queue", "queue_offset", "resume")

    def __init__(
        self,
        connection: Connection,
        queue: tuple[str, int],
        queue_offset: int,
        matches: Filter | None,
        deadline: float,
        resume: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.queue = queue
        self.queue_offset = queue_offset
        self.matches = matches
        self.deadline = deadline
        self.resume = resume
        self.done = False

    def wants(self, max_offset: int, tags_code: int, properties: bytes) -> bool:
        """Whether a message with these properties, below `max_offset`, ends the wait."""
        matches = self.matches
        if max_offset <= self.queue_offset or matches is None:
            return max_offset > self.queue_offset
        if isinstance(matches, SqlFilter):
            return matches.matches(properties)
        return matches.matches(tags_code)


class Hold:
    """All held pulls by (topic, queue id).

    Law: a pull in `_by_queue` is not done; one in `_deadlines` may be (it is skipped there later).
    """

    def __init__(self, max_offset: Callable[[str, int], int], limit: int) -> None:
        self._max_offset = max_offset
        self._limit = limit
        self._by_queue: dict[tuple[str, int], list[Held]] = {}
        self._deadlines: Deadlines[Held] = Deadlines()
        self._woken: list[Held] = []
        self.parked = 0

    @property
    def full(self) -> bool:
        """Whether the limit on held pulls is reached."""
        return self.parked >= self._limit

    def park(self, held: Held) -> None:
        """Hold a pull that found nothing at the end of its queue."""
        self._by_queue.setdefault(held.queue, []).append(held)
        self.parked += 1
        held.connection.held += 1
        self._deadlines.add(held.deadline, held, self.parked)

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_timestamp: int,
        properties: bytes,
    ) -> None:
        """A message became readable; called for each one by the dispatch of the store."""
        if (topic, queue_id) in self._by_queue:
            self._mark(
                (topic, queue_id), lambda held: held.wants(max_offset, tags_code, properties)
            )

    def wake(self) -> None:
        """Run the marked pulls again; called once at the end of a round."""
        while self._woken:
            woken, self._woken = self._woken, []
            for held in woken:
                if not held.connection.closed:
                    held.resume()

    def expire(self, now: float) -> None:
        """Answer the pulls whose deadline has come."""
        for expired in self._deadlines.over(now):
            self._mark(expired.queue, partial(is_, expired))
        self.wake()

    def sweep(self) -> None:
        """Wake every pull behind the end of its queue, whatever its filter; drop closed peers.

        This moves the progress of a consumer whose queue brought only messages it does not want.
        """
        for queue in list(self._by_queue):
            self._mark(queue, partial(_overtaken, self._max_offset(*queue)))
        self.wake()

    def release_all(self) -> None:
        """Answer every held pull now: the broker stops."""
        for queue in list(self._by_queue):
            self._mark(queue, lambda _: True)
        self.wake()

    async def run(self, flush: Callable[[], None]) -> NoReturn:
        """Answer deadlines and sweep until cancelled; `flush` sends what became ready."""
        next_sweep = trio.current_time() + SWEEP_S
        while True:
            await trio.sleep(DEADLINE_TICK_S)
            now = trio.current_time()
            self.expire(now)
            if now >= next_sweep:
                next_sweep = now + SWEEP_S
                self.sweep()
            flush()

    def _mark(self, queue: tuple[str, int], wakes: Callable[[Held], bool]) -> None:
        waiting = self._by_queue[queue]
        woken = [held for held in waiting if wakes(held)]
        if not woken:
            return
        for held in woken:
            held.done = True
            held.connection.held -= 1
        self._woken += woken
        self.parked -= len(woken)
        left = [held for held in waiting if not held.done]
        if left:
            self._by_queue[queue] = left
        else:
            del self._by_queue[queue]


def _overtaken(max_offset: int, held: Held) -> bool:
    """Whether the queue has grown past what the pull asked for, or nobody waits any more."""
    return held.connection.closed or max_offset > held.queue_offset
