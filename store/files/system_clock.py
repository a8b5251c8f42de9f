"""The clocks of the machine."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """Wall clock and monotonic clock; see `store.clock.Clock`."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
