"""How fast clients may send to each topic, and each group may receive: messages and bytes per
second, by their attributes.

A topic or group with neither attribute has no bucket, and costs nothing. A message that went
through is taken from the bucket even if that holds less: one long message may pass a limit, and its
topic or group waits afterwards until it is paid for. Retries, dead letters and delayed messages
that are due count as sent no second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.topics.attributes import limit_of
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.wire.bodies.topic import MAX_BYTES, MAX_RATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aerobee.broker.errors import Refusal
    from aerobee.store.clock import Clock

UNITS: Final = {MAX_RATE: "messages", MAX_BYTES: "bytes"}


class Buckets(NamedTuple):
    """The limits of a name, and what is left of each; None: there is none."""

    limits: tuple[int, int]
    messages: RateLimit | None
    size: RateLimit | None


class Rates:
    """The buckets of the topics, or the groups, that have limits. `refused` counts by name."""

    def __init__(
        self,
        clock: Clock,
        refused: dict[str, int],
        too_fast: Callable[[str, str, int, str], Refusal],
    ) -> None:
        """`too_fast` makes the refusal from name, attribute, limit and what it counts."""
        self._clock = clock
        self._refused = refused
        self._too_fast = too_fast
        self._buckets: dict[str, Buckets] = {}

    @property
    def limited(self) -> bool:
        """Whether any name has a bucket; without one `spend` need not be called."""
        return bool(self._buckets)

    def admit(self, name: str, attributes: Mapping[str, str]) -> None:
        """Check that another message may go through now. Raises: what `too_fast` gives."""
        buckets = self._of(name, attributes)
        if buckets is None:
            return
        now_ms = self._clock.monotonic() * 1000
        for key, bucket in ((MAX_RATE, buckets.messages), (MAX_BYTES, buckets.size)):
            if bucket is not None and not bucket.allows(1, now_ms):
                self._refused[name] = self._refused.get(name, 0) + 1
                raise self._too_fast(name, key, int(bucket.per_s), UNITS[key])

    def spend(self, name: str, attributes: Mapping[str, str], count: int, size: int) -> None:
        """Take what went through: messages and bytes."""
        buckets = self._of(name, attributes)
        if buckets is None:
            return
        now_ms = self._clock.monotonic() * 1000
        if buckets.messages is not None:
            buckets.messages.spend(count, now_ms)
        if buckets.size is not None:
            buckets.size.spend(size, now_ms)

    def forget(self, name: str) -> None:
        """Drop what a deleted topic or group has used."""
        self._buckets.pop(name, None)

    def _of(self, name: str, attributes: Mapping[str, str]) -> Buckets | None:
        limits = limit_of(attributes, MAX_RATE), limit_of(attributes, MAX_BYTES)
        known = self._buckets.get(name)
        if known is not None and known.limits == limits:
            return known
        if limits == (0, 0):
            self._buckets.pop(name, None)
            return None
        made = Buckets(limits, *(RateLimit(limit, limit) if limit else None for limit in limits))
        self._buckets[name] = made
        return made
