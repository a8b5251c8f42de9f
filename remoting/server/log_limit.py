"""Limits log lines that any peer can provoke: a number per period, and how many were left out.

left_out = limit.admit(now)
if left_out is not None:
    log.info("frame.rejected", reason=reason, left_out=left_out)
"""

from __future__ import annotations


class LogLimit:
    """At most `lines` in each period of `period_s`, which begins with its first line."""

    __slots__ = ("_began", "_left_out", "_lines", "_period_s", "_said")

    def __init__(self, lines: int = 20, period_s: float = 10.0) -> None:
        self._lines = lines
        self._period_s = period_s
        self._began = float("-inf")
        self._said = 0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """How many lines were left out since the last one; None: leave this one out as well.

        `now`: seconds of a monotonic clock.
        """
        if now - self._began >= self._period_s:
            self._began = now
            self._said = 0
        if self._said >= self._lines:
            self._left_out += 1
            return None
        self._said += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
