"""Turns: work that has piled up is done in slices, and those who ask for something come first.

A slice is a few milliseconds. Behind each, everybody else runs once; when many clients were served
there, the work rests for longer than it took, so that they keep most of the loop. A few are served
between the slices without that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock

__all__ = ["Pace"]

SLICE_S: Final = 0.003
"""How long one slice may take; what is begun then is finished."""
REST: Final = 1.8
"""How many times as long as a slice took others may run, while they have work."""
BUSY: Final = 1_000.0
"""Requests within the time of a slice, per second of it, from which on clients have work."""


class Pace:
    """One piled-up work. `served` counts what others do; it never goes back."""

    def __init__(self, clock: Clock, served: Callable[[], int]) -> None:
        self._clock = clock
        self._served = served
        self._began = clock.monotonic()
        self._seen = 0

    def begin(self) -> None:
        """A slice begins now."""
        self._began = self._clock.monotonic()

    def over(self) -> bool:
        """Whether the slice has had its time."""
        return self._clock.monotonic() - self._began > SLICE_S

    async def rest(self) -> None:
        """End the slice; the next one begins when this returns."""
        spent_s = self._clock.monotonic() - self._began
        await trio.lowlevel.checkpoint()
        if self._served() - self._seen > BUSY * spent_s:
            await trio.sleep(REST * spent_s)
        self._seen = self._served()
        self.begin()
