"""Plain counters of POP: messages in flight, and records of the revive log."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["PopStats"]

Key = TypeVar("Key", bound=tuple[str, ...])


class PopStats:
    """Records written to and read from the revive log, and messages put back."""

    __slots__ = (
        "_limit",
        "behind",
        "in_flight",
        "late_ms",
        "retried",
        "revive_in",
        "revive_out",
        "since_ms",
    )

    def __init__(self, series_limit: int) -> None:
        self._limit = series_limit
        self.since_ms = 0
        """Messages popped before that time are not in `in_flight`."""
        self.in_flight: dict[tuple[str, str], dict[int, int]] = {}
        """(group, topic) → queue id → messages popped, and neither acknowledged nor put again."""
        self.revive_in: dict[tuple[str, str, str, str], int] = {}
        """By topic, group, CK or ACK, and status of the put."""
        self.revive_out: dict[tuple[str, str, str, str], int] = {}
        """By topic, group, revive queue, and CK or ACK."""
        self.retried: dict[tuple[str, str, str], int] = {}
        """By topic, group and status of the put."""
        self.behind: dict[str, int] = {}
        """Revive queue → unfinished records, as of the last check."""
        self.late_ms: dict[str, int] = {}
        """Revive queue → how long the oldest unacknowledged message is overdue."""

    def handed_out(self, group: str, topic: str, queue_id: int, count: int) -> None:
        """Count `count` messages of a queue as popped."""
        pair = (group, topic)
        queues = self.in_flight.get(pair)
        if queues is None:
            if len(self.in_flight) >= self._limit:
                return
            queues = self.in_flight[pair] = {}
        queues[queue_id] = queues.get(queue_id, 0) + count

    def done(self, group: str, topic: str, queue_id: int, count: int, pop_time: int) -> None:
        """Count `count` messages, popped at `pop_time` in ms, as acknowledged or put again.

        One that is acknowledged twice counts twice, as in RocketMQ; the number never gets below 0.
        """
        queues = self.in_flight.get((group, topic))
        if queues is None or pop_time < self.since_ms:
            return
        left = queues.get(queue_id, 0) - count
        if left > 0:
            queues[queue_id] = left
        else:
            queues.pop(queue_id, None)
            if not queues:
                del self.in_flight[group, topic]

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop the messages in flight of a deleted group or topic."""
        for pair in [pair for pair in self.in_flight if group == pair[0] or topic == pair[1]]:
            del self.in_flight[pair]

    def add(self, counts: dict[Key, int], key: Key) -> None:
        """Count one under a key; a key beyond the limit is not counted."""
        known = counts.get(key)
        if known is not None:
            counts[key] = known + 1
        elif len(counts) < self._limit:
            counts[key] = 1
