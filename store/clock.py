"""Where time comes from: the clocks that every part is given, and those of the machine.

A part that needs the time takes a `Clock`; only the start of a process makes a `SystemClock`.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall clock in ms since 1970; may step back."""

    def monotonic(self) -> float:
        """Seconds that never step back."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
