"""What groups consume that never say so in a heartbeat, as their pulls and pops tell it.

A request that brings its own subscription leaves it here, so that one who asks for the group finds
it. Nothing is delivered by it. What no request has renewed for a while is gone. `now_ms` is a clock
that never goes back. Source: semantics §1.1, §11.1 (ConsumerManager's compensation table).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["COMPENSATIONS_MAX", "Compensation", "CompensationTable"]

COMPENSATIONS_MAX: Final = 100_000
"""Pairs of group and topic; further ones are not noted."""


@dataclass(slots=True)
class Compensation:
    """What the last request of a group said about a topic."""

    expression_type: str | None
    expression: str | None
    last_update_ms: int


class CompensationTable:
    """Group → topic → subscription."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Compensation]] = {}
        self.count = 0

    def note(
        self,
        group: str,
        topic: str,
        expression_type: str | None,
        expression: str | None,
        now_ms: int,
    ) -> None:
        """A request of the group brought this subscription. Hot: once per request."""
        topics = self.groups.get(group)
        known = None if topics is None else topics.get(topic)
        if known is not None:
            known.expression_type, known.expression = expression_type, expression
            known.last_update_ms = now_ms
        elif self.count < COMPENSATIONS_MAX:
            new = Compensation(expression_type, expression, now_ms)
            self.groups.setdefault(group, {})[topic] = new
            self.count += 1

    def topics(self, group: str) -> dict[str, Compensation]:
        """What a group is known to consume."""
        return self.groups.get(group, {})

    def groups_of(self, topic: str) -> list[str]:
        """Which groups are known to consume a topic."""
        return [group for group, topics in self.groups.items() if topic in topics]

    def expire(self, now_ms: int, timeout_ms: int) -> None:
        """Forget what was not renewed in time."""
        limit_ms = now_ms - timeout_ms
        for group, topics in list(self.groups.items()):
            kept = {topic: one for topic, one in topics.items() if one.last_update_ms >= limit_ms}
            self.count -= len(topics) - len(kept)
            if kept:
                self.groups[group] = kept
            else:
                del self.groups[group]
