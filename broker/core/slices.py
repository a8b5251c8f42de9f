"""Work that grows with the number of topics, groups or clients, done a little at a time.

Whoever knows the work writes it as a generator that yields between its pieces, each well below a
millisecond; whoever has the clock drives it here, and everybody else gets a turn in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SLICE_S", "in_slices"]

SLICE_S: Final = 0.002
"""How long a slice may take; the piece that is begun then is finished."""

T = TypeVar("T")


async def in_slices(pieces: Iterable[T]) -> list[T]:
    """All that `pieces` yields. Others may run between any two: nothing may count on a moment."""
    done: list[T] = []
    ends = trio.current_time() + SLICE_S
    for piece in pieces:
        done.append(piece)
        if trio.current_time() > ends:
            await trio.lowlevel.checkpoint()
            ends = trio.current_time() + SLICE_S
    return done
