"""Token buckets: for effects that any client can cause, and for the requests of each client.

`now_ms` may be the wall clock: one that jumps back removes no tokens, one that jumps ahead adds no
more than a full bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

BUCKETS_MAX: Final = 10_000
"""Names with a bucket; beyond it, the one that asked longest ago is forgotten."""


class RateLimit:
    """A bucket that holds `burst` and gains `per_s` each second; full at first."""

    __slots__ = ("_filled_ms", "_left", "burst", "per_s")

    def __init__(self, burst: int = 1_000, per_s: float = 20) -> None:
        assert burst > 0, "a bucket for nothing lets nothing happen"
        self.burst = burst
        self.per_s = per_s
        self._left = float(burst)
        self._filled_ms = 0.0

    def allow(self, burst: int, per_s: float) -> None:
        """Change the limits; tokens that were taken stay taken."""
        self._left += burst - self.burst
        self.burst, self.per_s = burst, per_s

    def allows(self, count: int, now_ms: float) -> bool:
        """Whether there are `count` tokens; takes none."""
        gained = max(0.0, now_ms - self._filled_ms) * self.per_s / 1000
        self._left = min(self.burst, self._left + gained)
        self._filled_ms = now_ms
        return self._left >= count

    def take(self, now_ms: float, count: int = 1) -> bool:
        """Take `count` tokens if there is one: more than there are too, as `spend` does."""
        if not self.allows(1, now_ms):
            return False
        self._left -= count
        return True

    def spend(self, count: int, now_ms: float) -> None:
        """Take tokens for what has happened, more than there are too: nothing is allowed before
        they are there again.
        """
        self.allows(0, now_ms)
        self._left -= count

    def taken(self, now_ms: float) -> int:
        """How many tokens are missing from a full bucket."""
        self.allows(0, now_ms)
        return round(self.burst - self._left)


class RateLimits:
    """A bucket for each name, such as an address: `per_s` each second, and `burst` at once, or as
    many as in a second.

    With `per_s` 0 there is no limit, and callers need not ask.
    """

    __slots__ = ("_buckets", "_burst", "per_s")

    def __init__(self, per_s: float = 0, burst: int | None = None) -> None:
        self.per_s = per_s
        self._burst = burst
        self._buckets: dict[Hashable, RateLimit] = {}

    def allow(self, per_s: float) -> None:
        """Change the limit; everybody begins with a full bucket."""
        if per_s != self.per_s:
            self.per_s = per_s
            self._buckets.clear()

    def take(self, name: Hashable, now_ms: float, count: int = 1) -> bool:
        """Take `count` tokens of `name` if it has one."""
        buckets = self._buckets
        bucket = buckets.pop(name, None)
        if bucket is None:
            bucket = RateLimit(self._burst or round(self.per_s), self.per_s)
            if len(buckets) >= BUCKETS_MAX:
                del buckets[next(iter(buckets))]
        # The last in the order of a dict is the one that was put last.
        buckets[name] = bucket
        return bucket.take(now_ms, count)

    def spent(self, name: Hashable, now_ms: float) -> bool:
        """Whether `name` has no token left; takes none."""
        bucket = self._buckets.get(name)
        return bucket is not None and not bucket.allows(1, now_ms)

    def busiest(self, now_ms: float) -> int:
        """How many tokens the name with the fewest left has taken."""
        return max((bucket.taken(now_ms) for bucket in self._buckets.values()), default=0)


class Excess(NamedTuple):
    """The setting that a client has used up, and what it allows each second."""

    key: str
    per_s: float


class ClientRates:
    """The requests of each client, and the bytes of the messages that it sends."""

    __slots__ = ("_keys", "limited", "requests", "sent")

    def __init__(self, requests_key: str, bytes_key: str) -> None:
        self._keys = requests_key, bytes_key
        self.requests = RateLimits()
        self.sent = RateLimits()
        self.limited = False
        """Whether there is any limit; without one callers need not ask."""

    def allow(self, requests_per_s: float, bytes_per_s: float) -> None:
        """Change the limits; 0: none."""
        self.requests.allow(requests_per_s)
        self.sent.allow(bytes_per_s)
        self.limited = bool(requests_per_s or bytes_per_s)

    def take(self, name: Hashable, size_bytes: int, now_ms: float) -> Excess | None:
        """Count a request of a client, with so many bytes of messages; what it is beyond, if it is.
        A request of more bytes than are left is served, and the client's sends wait afterwards.
        """
        requests, sent = self.requests, self.sent
        if requests.per_s and not requests.take(name, now_ms):
            return Excess(self._keys[0], requests.per_s)
        if size_bytes and sent.per_s and not sent.take(name, now_ms, size_bytes):
            return Excess(self._keys[1], sent.per_s)
        return None
