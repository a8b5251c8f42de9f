"""Cooperative scheduling: long work is cut into turns, between which others run.

There are three kinds of such work, each with its own way:
- Work of a request that never waits is a generator that yields between its steps: the `Steps` of
  `routes`. Its connection runs them in its turns; a request with many steps needs one of a few
  permits (`long_requests`).
- A service, or an answer that waits for the disk, runs in a task of its own. If its work is a
  generator, `in_slices` drives it; if it waits in between, it calls `give_way`.
- Background work that clients cause, such as due deliveries, pauses while clients are busy (`Pace`,
  in the broker).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

TURN_S: Final = 0.001
"""How long one task may occupy the loop, since there may be many; steps are not interrupted."""

T = TypeVar("T")


class Turns:
    """The turns of one task: between them every other task may run."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_S

    @property
    def over(self) -> bool:
        """Whether the turn is over: a generator yields then, and begins another."""
        return monotonic() > self._until

    async def give_way(self) -> None:
        """Let other tasks run if the turn is over."""
        if self.over:
            await trio.lowlevel.checkpoint()
            self._until = monotonic() + TURN_S


async def in_slices(pieces: Iterable[T]) -> list[T]:
    """All items of `pieces`. Others may run between any two, so state may change in between."""
    done: list[T] = []
    turns = Turns()
    for piece in pieces:
        done.append(piece)
        await turns.give_way()
    return done
