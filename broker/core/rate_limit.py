"""A token bucket for effects that any client can cause.

`now_ms` may be the wall clock: one that jumps back removes no tokens, one that jumps ahead adds no
more than a full bucket.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AUTO_CREATE_BURST", "AUTO_CREATE_PER_S", "RateLimit"]

AUTO_CREATE_BURST: Final = 1_000
"""Topics, and as many groups, that clients may auto-create at once."""
AUTO_CREATE_PER_S: Final = 20
"""And as many more in each second."""


class RateLimit:
    """A bucket that holds `burst` and gains `per_s` each second; full at first."""

    __slots__ = ("_filled_ms", "_left", "burst", "per_s")

    def __init__(self, burst: int = AUTO_CREATE_BURST, per_s: int = AUTO_CREATE_PER_S) -> None:
        assert burst > 0, "a bucket for nothing lets nothing happen"
        self.burst = burst
        self.per_s = per_s
        self._left = float(burst)
        self._filled_ms = 0

    def allows(self, count: int, now_ms: int) -> bool:
        """Whether there are `count` tokens; takes none."""
        gained = max(0, now_ms - self._filled_ms) * self.per_s / 1000
        self._left = min(self.burst, self._left + gained)
        self._filled_ms = now_ms
        return self._left >= count

    def take(self, now_ms: int) -> bool:
        """Take a token, if there is one."""
        if not self.allows(1, now_ms):
            return False
        self._left -= 1
        return True
