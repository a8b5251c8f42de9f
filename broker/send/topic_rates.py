"""How fast clients may send to each topic: messages and bytes per second, by its attributes.

A topic with attributes is never served in a run, so sends to other topics cost nothing for this.
What was sent is taken from the bucket even if that holds less: one long message may pass a limit,
and the topic waits afterwards until it is paid for. Retries, dead letters and delayed messages that
are due count no second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.errors import TopicTooFast
from aerobee.broker.topics.attributes import limit_of
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.wire.bodies.topic import MAX_BYTES, MAX_RATE

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.store.clock import Clock

UNITS: Final = {MAX_RATE: "messages", MAX_BYTES: "bytes"}


class Buckets(NamedTuple):
    """The limits of a topic, and what is left of each; None: there is none."""

    limits: tuple[int, int]
    messages: RateLimit | None
    size: RateLimit | None


class TopicRates:
    """The buckets of the topics that have limits. `refused` counts by topic."""

    def __init__(self, clock: Clock, refused: dict[str, int]) -> None:
        self._clock = clock
        self._refused = refused
        self._buckets: dict[str, Buckets] = {}

    def admit(self, topic: TopicConfig) -> None:
        """Check that a topic takes another message now. Raises: TopicTooFast."""
        buckets = self._of(topic)
        if buckets is None:
            return
        now_ms = self._clock.monotonic() * 1000
        for key, bucket in ((MAX_RATE, buckets.messages), (MAX_BYTES, buckets.size)):
            if bucket is not None and not bucket.allows(1, now_ms):
                name = topic.topic_name
                self._refused[name] = self._refused.get(name, 0) + 1
                raise TopicTooFast(name, key, int(bucket.per_s), UNITS[key])

    def spend(self, topic: TopicConfig, count: int, size: int) -> None:
        """Take what was sent; `size` in bytes of bodies."""
        buckets = self._of(topic)
        if buckets is None:
            return
        now_ms = self._clock.monotonic() * 1000
        if buckets.messages is not None:
            buckets.messages.spend(count, now_ms)
        if buckets.size is not None:
            buckets.size.spend(size, now_ms)

    def forget(self, topic: str) -> None:
        """Drop what a deleted topic has used."""
        self._buckets.pop(topic, None)

    def _of(self, topic: TopicConfig) -> Buckets | None:
        attributes, name = topic.attributes, topic.topic_name
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
