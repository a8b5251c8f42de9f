"""How long requests take: from the arrival of their bytes until their answer is sent.

Answers of a round are sent together, so their requests end together: `Latencies.ended` keeps the
arrival times of those that were answered since the last flush, and `sent` counts them all. Arrival
times are estimates that include the time in the kernel (`server/arrivals.py`).
Source: semantics §20.1 (NettyRemotingAbstract.writeResponse).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
"""RocketMQ's buckets."""
BOUNDS_S: Final = tuple(bound / 1_000 for bound in BOUNDS_MS)
SERIES_MAX: Final = 1_000
"""Kinds of requests that are counted by themselves: a peer may send any request code."""

UNKNOWN_MAX: Final = 20
"""The most of them with request codes that we do not know: they leave room for the others."""
REQUEST_CODES: Final = frozenset(map(int, RequestCode))

SUCCESS_RESULT: Final = "success"
"""The answer was given to the kernel, or queued behind what the peer has not read."""
ONEWAY_RESULT: Final = "oneway"
"""There is no answer."""
UNSENT_RESULT: Final = "write_channel_failed"
"""The peer had disconnected."""


class LatencyKey(NamedTuple):
    """The key by which requests are counted."""

    request_code: int
    response_code: int
    held: bool
    """Whether it waited for a message (long polling)."""
    result: str


class Latency:
    """The requests of one kind: how many in each bucket, the last one without bound, and the sum of
    their times.
    """

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0


class Latencies:
    """The latencies of all requests."""

    __slots__ = ("_unknown", "ended", "kinds", "overflow", "when_sent")

    def __init__(self) -> None:
        self.ended: defaultdict[tuple[int, int, bool, str], list[float]] = defaultdict(list)
        """Key → arrival times of requests that were answered since the last flush."""
        self.when_sent: list[Callable[[float], None]] = []
        """Called once, after the next flush, with its time."""
        self.kinds: dict[tuple[int, int, bool, str], Latency] = {}
        """By the fields of a LatencyKey."""
        self.overflow = Latency()
        """Requests of kinds beyond SERIES_MAX and UNKNOWN_MAX."""
        self._unknown = 0

    def sent(self, now: float) -> None:
        """Count the requests whose answers were sent. Hot: called at the end of every round."""
        for key, arrivals in self.ended.items():
            kind = self.kinds.get(key) or self._new(key)
            counts, number = kind.counts, len(arrivals)
            kind.total_s += now * number - sum(arrivals)
            longest = bisect_left(BOUNDS_S, now - min(arrivals))
            if number == 1 or longest == bisect_left(BOUNDS_S, now - max(arrivals)):
                counts[longest] += number
            else:
                for arrived in arrivals:
                    counts[bisect_left(BOUNDS_S, now - arrived)] += 1
        self.ended.clear()
        if self.when_sent:
            called, self.when_sent = self.when_sent, []
            for call in called:
                call(now)

    def _new(self, kind: tuple[int, int, bool, str]) -> Latency:
        if kind[0] not in REQUEST_CODES:
            if self._unknown >= UNKNOWN_MAX:
                return self.overflow
            self._unknown += 1
        if len(self.kinds) >= SERIES_MAX:
            return self.overflow
        return self.kinds.setdefault(kind, Latency())
