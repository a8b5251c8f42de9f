"""Which topics groups consume that never say so in a heartbeat, as their pulls and pops show.

A request that brings its own subscription leaves a trace here, so that one who asks for the group
finds it. Nothing is delivered by it. What no request has renewed for a while is gone.
`now_ms` is a clock that never goes back.
Source: semantics §1.1, §11.1 (ConsumerManager's compensation table).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.core.shares import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["COMPENSATIONS_MAX", "CompensationTable"]

COMPENSATIONS_MAX: Final = 100_000
"""Pairs of group and topic; further ones are not noted."""
OF_GROUP_MAX: Final = 1_024
"""Topics of one group, while there is much room."""
OF_GROUP_LEAST: Final = 16
"""And when there is little."""


class CompensationTable:
    """Group → topic → when a request said so last."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, int]] = {}
        self.count = 0

    def note(self, group: str, topic: str, now_ms: int) -> None:
        """A request of the group brought a subscription to the topic. Hot: once per request."""
        topics = self.groups.get(group)
        if topics is not None and topic in topics:
            topics[topic] = now_ms
            return
        left = COMPENSATIONS_MAX - self.count
        if left and len(topics or ()) < share(OF_GROUP_MAX, left, OF_GROUP_LEAST):
            self.groups.setdefault(group, {})[topic] = now_ms
            self.count += 1

    def topics(self, group: str) -> Mapping[str, int]:
        """What a group is known to consume, and since when nobody has renewed it."""
        return self.groups.get(group, {})

    def expire(self, now_ms: int, timeout_ms: int) -> Iterator[None]:
        """Forget what was not renewed in time; others may run between two groups."""
        limit_ms = now_ms - timeout_ms
        for group, topics in list(self.groups.items()):
            yield
            kept = {topic: noted_ms for topic, noted_ms in topics.items() if noted_ms >= limit_ms}
            self.count -= len(topics) - len(kept)
            if kept:
                self.groups[group] = kept
            else:
                del self.groups[group]
