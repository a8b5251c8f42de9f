"""The clock that every part is given.

A part that needs the time takes a `Clock`; only the start of a process makes the system's.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock."""

    def now_ms(self) -> int:
        """Wall clock in ms since 1970; may step back."""

    def monotonic(self) -> float:
        """Seconds that never step back."""


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds that never step back: the clock of tables whose entries expire."""
    return int(clock.monotonic() * 1000)
