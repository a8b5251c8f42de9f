"""Giving way: work that would keep the loop for long lets everybody else run after each turn of it.

There are three kinds of such work, and a way for each:
- What a request asks for and what waits for nobody is a generator that yields between its steps:
  the `Steps` of `routes`. Its connection takes them in its turns, and a request that has many has
  one of a few permits (`long_requests`).
- A service, or an answer that waits for the disk, runs in a task of its own. Where it knows its
  work as a generator, `in_slices` drives it; where it waits in between, it calls `give_way`.
- Work that piles up behind clients, such as deliveries that are due, rests beside that while they
  are busy (`Pace`, in the broker).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TURN_S", "Turns", "in_slices"]

TURN_S: Final = 0.001
"""How long one task keeps the loop: many may be at it. The step that is begun then is finished."""

T = TypeVar("T")


class Turns:
    """The turns of one task: after each everybody else runs once."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_S

    async def give_way(self) -> None:
        """Let others run, if it is time for that."""
        if monotonic() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = monotonic() + TURN_S


async def in_slices(pieces: Iterable[T]) -> list[T]:
    """All that `pieces` yields. Others may run between any two: nothing may count on a moment."""
    done: list[T] = []
    turns = Turns()
    for piece in pieces:
        done.append(piece)
        await turns.give_way()
    return done
