"""Topics of groups without heartbeats for them, learned from their pulls and pops.

A request with its own subscription is recorded here, so that queries for the group find the topic.
It does not affect delivery. Entries expire when no request renews them. `now_ms` is a monotonic
clock. Source: semantics §1.1, §11.1 (ConsumerManager's compensation table).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.consumers.consumer_offsets import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPENSATIONS_MAX: Final = 100_000
"""Pairs of group and topic; further ones are not recorded."""
OF_GROUP_MAX: Final = 1_024
"""Topics that are recorded of one group, while there is much room."""
OF_GROUP_LEAST: Final = 16
"""Topics that are recorded of one group, when there is little room."""


class CompensationTable:
    """Group → topic → time of the last request."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, int]] = {}
        self.count = 0

    def note(self, group: str, topic: str, now_ms: int) -> None:
        """Record that a request of the group had a subscription to the topic. Hot: once per
        request.
        """
        topics = self.groups.get(group)
        if topics is not None and topic in topics:
            topics[topic] = now_ms
            return
        left = COMPENSATIONS_MAX - self.count
        if left and len(topics or ()) < share(OF_GROUP_MAX, left, OF_GROUP_LEAST):
            self.groups.setdefault(group, {})[topic] = now_ms
            self.count += 1

    def topics(self, group: str) -> Mapping[str, int]:
        """The topics of a group, and when each was last renewed."""
        return self.groups.get(group, {})

    def delete_topic(self, topic: str) -> None:
        """Remove a deleted topic from all groups."""
        for group, topics in list(self.groups.items()):
            if topics.pop(topic, None) is not None:
                self.count -= 1
                if not topics:
                    del self.groups[group]

    def delete_group(self, group: str) -> None:
        """Remove the topics of a deleted group."""
        self.count -= len(self.groups.pop(group, ()))

    def expire(self, now_ms: int, timeout_ms: int) -> Iterator[None]:
        """Remove entries that were not renewed in time; others may run between two groups."""
        limit_ms = now_ms - timeout_ms
        for group, topics in list(self.groups.items()):
            yield
            if self.groups.get(group) is not topics:
                continue  # The group was deleted meanwhile.
            kept = {topic: noted_ms for topic, noted_ms in topics.items() if noted_ms >= limit_ms}
            self.count -= len(topics) - len(kept)
            if kept:
                self.groups[group] = kept
            else:
                del self.groups[group]
