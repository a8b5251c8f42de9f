"""For how long a slave has not had all of its master's log. Pure.

In: what it has acknowledged and where the log ends, at moments of the loop's clock. A report may be
seconds old, so what counts is when it said that it had everything there was at a known moment.
"""

from __future__ import annotations


class Lag:
    """The lag of one slave, over one connection."""

    __slots__ = ("_asked_at", "_asked_end", "_had_all_at")

    def __init__(self, now: float) -> None:
        self._had_all_at = now
        """At this moment the slave had everything that was in the log; at first, when it came."""
        self._asked_at, self._asked_end = now, 0
        """The moment of its last report, and the end of the log then."""

    def reported(self, acknowledged: int, end: int, now: float) -> None:
        """A report has come."""
        if acknowledged >= end:
            self._had_all_at = now
        elif acknowledged >= self._asked_end > 0:
            self._had_all_at = max(self._had_all_at, self._asked_at)
        self._asked_at, self._asked_end = now, end

    def to_send(self, acknowledged: int, sent: int, now: float) -> None:
        """There is more to send: what was sent before was everything until now."""
        if acknowledged >= sent:
            self._had_all_at = now

    def seconds(self, acknowledged: int, end: int, now: float) -> float:
        """How long ago it had everything; 0 while it has."""
        return 0.0 if acknowledged >= end else max(0.0, now - self._had_all_at)
