"""Long polling: pulls that found nothing wait here until a message comes or their time is up.

Law: a pull is parked in the same step in which it saw the end of its queue, so it misses nothing.
Arrivals only mark; `wake` runs the marked pulls again once per round, so that one answer carries
everything that the round brought. A pull that wakes always answers.
Places are bounded in all, by connection and by group (`tables/waiting_places.py`).
Source: spec of the Java side (PullRequestHoldService).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

import trio

from broker.filters.sql_filter import SqlFilter
from broker.services.deadlines import Deadlines
from broker.tables.waiting_places import WaitingPlaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.filters.subscription import Filter
    from broker.tables.waiting_places import PlaceLimits
    from remoting.server.connection import Connection

__all__ = ["DEADLINE_TICK_S", "SWEEP_S", "Held", "Hold"]

DEADLINE_TICK_S = 0.05
"""How late after its deadline a held pull may be answered."""
SWEEP_S = 5.0
"""How often the end of each queue is compared, for pulls whose filter no arrival matched."""


class Held:
    """One parked pull. `resume` runs the whole pull again, with parking disallowed."""

    __slots__ = (
        "connection",
        "deadline",
        "done",
        "group",
        "matches",
        "places",
        "queue",
        "queue_offset",
        "resume",
    )

    def __init__(
        self,
        connection: Connection,
        group: str,
        queue: tuple[str, int],
        queue_offset: int,
        matches: Filter | None,
        deadline: float,
        resume: Callable[[], None],
        *,
        places: int = 1,
    ) -> None:
        self.connection = connection
        self.group = group
        self.queue = queue
        self.queue_offset = queue_offset
        self.matches = matches
        self.deadline = deadline
        self.resume = resume
        self.places = places
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

    Law: a pull in `_by_queue` has a place and is not done; one in `_deadlines` may be (it is
    skipped there later).
    """

    def __init__(self, max_offset: Callable[[str, int], int], limits: PlaceLimits) -> None:
        self._max_offset = max_offset
        self._places: WaitingPlaces[Held] = WaitingPlaces(limits)
        self._by_queue: dict[tuple[str, int], dict[Held, None]] = {}
        self._deadlines: Deadlines[Held] = Deadlines()
        self._woken: list[Held] = []

    @property
    def parked(self) -> int:
        """How many pulls are held."""
        return self._places.count

    def park(self, held: Held) -> bool:
        """Hold a pull that found nothing at the end of its queue; False when there is no room."""
        places = self._places
        while not places.take(held):
            other = places.gives_way(held)
            if other is None:
                return False
            self._wake_one(other)
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._deadlines.add(held.deadline, held, places.count)
        return True

    def closed(self, connection: Connection) -> None:
        """A connection is gone, and its pulls with it."""
        for held in self._places.of(connection):
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
            self._wake_one(expired)
        self.wake()

    def sweep(self) -> None:
        """Wake every pull behind the end of its queue, whatever its filter.

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
        for held in [held for held in self._by_queue[queue] if wakes(held)]:
            self._wake_one(held)

    def _wake_one(self, held: Held) -> None:
        self._release(held)
        self._woken.append(held)

    def _release(self, held: Held) -> None:
        held.done = True
        self._places.leave(held)
        waiting = self._by_queue[held.queue]
        del waiting[held]
        if not waiting:
            del self._by_queue[held.queue]


def _overtaken(max_offset: int, held: Held) -> bool:
    """Whether the queue has grown past what the pull asked for."""
    return max_offset > held.queue_offset


def nothing() -> None:
    """What is left of a pull whose peer is gone, until its deadline."""
