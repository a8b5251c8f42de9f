"""The clocks of the machine."""

from __future__ import annotations

import time
from functools import partial

import structlog

from aerobee.store.wall_time import WallTime

_SLEEPS_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where the system has it, a clock that goes on while the machine sleeps."""

log = structlog.stdlib.get_logger(__name__)


class SystemClock(WallTime):
    """Wall clock and monotonic clock; see `store.clock.Clock`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(time.time_ns, partial(time.clock_gettime_ns, _SLEEPS_TOO), _tell)

    monotonic = staticmethod(time.monotonic)


def _tell(jump_ms: int, believed: bool) -> None:
    if believed:
        log.warning("clock.jump_believed", jump_ms=jump_ms)
    else:
        log.warning("clock.jumped", jump_ms=jump_ms)
