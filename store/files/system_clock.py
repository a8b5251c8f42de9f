"""The clocks of the machine."""

from __future__ import annotations

import time

import structlog

from aerobee.store.wall_time import WallTime

_SLEEPS_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where the system has it, a clock that goes on while the machine sleeps."""

log = structlog.stdlib.get_logger(__name__)


class SystemClock:
    """Wall clock and monotonic clock; see `store.clock.Clock`."""

    __slots__ = ("_wall",)

    def __init__(self) -> None:
        self._wall = WallTime(_shown_ms(), _passed_ms(), _tell)

    def now_ms(self) -> int:
        return self._wall.at(_shown_ms(), _passed_ms())

    def monotonic(self) -> float:
        return time.monotonic()


def _shown_ms() -> int:
    return time.time_ns() // 1_000_000


def _passed_ms() -> int:
    return time.clock_gettime_ns(_SLEEPS_TOO) // 1_000_000


def _tell(jump_ms: int, believed: bool) -> None:
    if believed:
        log.warning("clock.jump_believed", jump_ms=jump_ms)
    else:
        log.warning("clock.jumped", jump_ms=jump_ms)
