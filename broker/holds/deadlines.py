"""Deadlines, earliest first; an entry that was done before its time costs nothing then."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

STALE_DEADLINES: Final = 1024
"""Stale entries that may stay in the heap before it is rebuilt."""


class Waits(Protocol):
    """An entry says when it no longer waits."""

    done: bool


W = TypeVar("W", bound=Waits)


class Deadlines(Generic[W]):
    """A heap of times in seconds. An entry that is `done` is skipped, and removed in bulk."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, W]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, entry: W, waiting: int) -> None:
        """Add a deadline. `waiting` is how many entries are not done."""
        if len(self._heap) > 2 * waiting + STALE_DEADLINES:
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapify(self._heap)
        heappush(self._heap, (at, next(self._numbers), entry))

    def over(self, now: float, most: int) -> list[W]:
        """Remove up to so many entries whose time has come; returns those that still wait."""
        heap = self._heap
        entries: list[W] = []
        while most and heap and heap[0][0] <= now:
            entry = heappop(heap)[2]
            if not entry.done:
                entries.append(entry)
            most -= 1
        return entries

    def due(self, now: float) -> bool:
        """Whether the time of an entry has come."""
        return bool(self._heap) and self._heap[0][0] <= now
