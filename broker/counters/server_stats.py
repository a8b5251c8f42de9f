"""Counters of each process that serves, a broker or a name server alone: of its loop, of access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.store.stats import Durations

LOOP_LAG_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)


class LoopStats:
    """How long the loop was blocked, as its ticker measured it."""

    __slots__ = ("lag", "last_stall_s", "last_turn", "stall_s", "stalls", "turning")

    def __init__(self) -> None:
        self.lag = Durations(LOOP_LAG_BOUNDS_S)
        self.last_turn = float("-inf")
        """Monotonic seconds of the ticker's last turn; minus infinity before the first."""
        self.turning = False
        """Whether the ticker runs."""
        self.stall_s = float("inf")
        """From this long on a block is a stall."""
        self.stalls = 0
        self.last_stall_s = 0.0


@dataclass(slots=True)
class AccessStats:
    """Requests that access control refused."""

    not_authenticated: int = 0
    """Of nobody: unknown account, wrong signature, or none."""
    not_authorized: int = 0
    """Of an account without the right."""
    dropped: int = 0
    """The one-way requests among them, so that nobody was told."""
