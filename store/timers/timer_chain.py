"""The chain of a slot: its timers, as the units of the timer log link them.

Walked from the newest to the oldest; numbered and handed out from the oldest on. Pure.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from aerobee.store.format.timer import DELETE, ROLL


class ChainUnits(NamedTuple):
    """Units of one chain, the newest first."""

    positions: list[int]
    units: list[tuple[int, ...]]
    """The fields of each, as TimerUnit names them."""


class DueTimer(NamedTuple):
    """One timer of a chain."""

    physical_offset: int
    size: int
    magic: int
    enqueued_ms: int


class Chain:
    """The timers of one slot, walked from the newest to the oldest; `settle` removes them."""

    __slots__ = (
        "_enqueued",
        "_magic",
        "_physical_offsets",
        "_positions",
        "_sizes",
        "last",
        "next",
        "settled",
        "time_ms",
    )

    def __init__(self, time_ms: int, last: int) -> None:
        self.time_ms = time_ms
        self.last = last
        self.next = last
        """The next unit of the walk."""
        self.settled = 0
        """How many of the oldest were removed from the slot."""
        self._positions = array("q")
        self._physical_offsets = array("q")
        self._sizes = array("i")
        self._magic = array("i")
        self._enqueued = array("q")

    def __len__(self) -> int:
        return len(self._physical_offsets)

    def take(self, units: ChainUnits) -> None:
        """Add the next older ones, at least one."""
        _, previous, magic, enqueued, _, physical_offsets, sizes, *_ = zip(
            *units.units, strict=True
        )
        self._positions.extend(units.positions)
        self._physical_offsets.extend(physical_offsets)
        self._sizes.extend(sizes)
        self._magic.extend(magic)
        self._enqueued.extend(enqueued)
        self.next = previous[-1]

    def due(self, number: int) -> DueTimer:
        """A timer by its number: the oldest is 0."""
        return self.dues(number, 1)[0]

    def dues(self, number: int, most: int) -> list[DueTimer]:
        """Timers from that number on, at most so many. Hot."""
        end = len(self._physical_offsets) - number
        begin = max(0, end - most)
        columns = self._physical_offsets, self._sizes, self._magic, self._enqueued
        oldest_first = (reversed(column[begin:end]) for column in columns)
        return [*map(DueTimer._make, zip(*oldest_first, strict=True))]

    def deletions(self, end: int | None = None) -> list[int]:
        """Numbers of the recalls among those before `end`, the newest first."""
        bits = self._magic if end is None else self._magic[len(self._magic) - end :]
        last = (len(self._magic) if end is None else end) - 1
        return [last - at for at, magic in enumerate(bits) if magic & (DELETE | ROLL) == DELETE]

    def net(self, begin: int, end: int) -> int:
        """The share of these in the count of their slot."""
        newest = len(self._magic)
        bits = self._magic[newest - end : newest - begin]
        return sum(-1 if magic & DELETE else 1 for magic in bits)

    def position(self, number: int) -> int:
        """The position of a timer's unit in the timer log."""
        return self._positions[len(self._positions) - 1 - number]
