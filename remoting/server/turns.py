"""Turns of an answer that is worked out in a task of its own, because it may wait for the disk.

What waits for nobody is a generator instead: the steps of `routes.Steps`.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

import trio

__all__ = ["TURN_S", "Turns"]

TURN_S: Final = 0.001
"""How long an answer that is worked out in turns keeps the loop: many may be at it."""


class Turns:
    """One answer that takes long: after each millisecond of it everybody else runs once."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_S

    async def give_way(self) -> None:
        """Let others run, if it is time for that."""
        if monotonic() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = monotonic() + TURN_S
