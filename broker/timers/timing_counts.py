"""Waiting timers per target topic: for people, and for Java's broker.

Not needed for delivery. Saved with the other counts, so a crash may leave it slightly wrong; it is
corrected when no timer waits. Source: semantics §9.3 (TimerMetrics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Mapping


class TimingCounts:
    """The table in `timermetrics`."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        """Topic → timers in the wheel, less recalls of some of them."""
        self.changed_ms: dict[str, int] = {}
        self.changes = 0

    def add(self, topic: str, timers: int, now_ms: int) -> None:
        """Add `timers`; a topic without waiting timers is left out."""
        count = self.waiting.get(topic, 0) + timers
        if count:
            self.waiting[topic] = count
            self.changed_ms[topic] = now_ms
        else:
            self.waiting.pop(topic, None)
            self.changed_ms.pop(topic, None)
        self.changes += 1

    def nothing_waits(self) -> None:
        """Reset: the wheel is empty."""
        if self.waiting:
            self.waiting.clear()
            self.changed_ms.clear()
            self.changes += 1

    def document(self) -> dict[str, Any]:
        """The content of the file."""
        counts = {
            topic: {"count": count, "timeStamp": self.changed_ms[topic]}
            for topic, count in self.waiting.items()
        }
        newest_ms = max(self.changed_ms.values(), default=0)
        version = {"counter": self.changes, "stateVersion": 0, "timestamp": newest_ms}
        return {"dataVersion": version, "timingCount": counts}

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by the content of the file. Raises: ValueError for another shape."""
        counts = {
            str(topic): (int(entry["count"]), int(entry["timeStamp"]))
            for topic, entry in mapping(document, "timingCount").items()
        }
        self.waiting = {topic: count for topic, (count, _) in counts.items() if count}
        self.changed_ms = {topic: counts[topic][1] for topic in self.waiting}
