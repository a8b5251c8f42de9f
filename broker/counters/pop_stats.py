"""Plain counters of POP: messages in flight, and records of the revive log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Key = TypeVar("Key", bound=tuple[str, ...])


class Counts(dict[Key, int], Generic[Key]):
    """How many there were of each key, which begins with topic and group."""

    __slots__ = ("overflow",)

    def __init__(self) -> None:
        super().__init__()
        self.overflow = 0
        """The messages of keys that are not counted by themselves."""

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop what was counted for a group or topic."""
        for key in [key for key in self if topic == key[0] or group == key[1]]:
            del self[key]


class PopStats:
    """Records written to and read from the revive log, and messages put back."""

    __slots__ = (
        "_known",
        "_limit",
        "behind",
        "deleted",
        "in_flight",
        "late_ms",
        "retried",
        "revive_in",
        "revive_out",
        "since_ms",
    )

    def __init__(self, series_limit: int, known: Callable[[str, str], bool]) -> None:
        """`known`: whether there are such a topic and such a group."""
        self._limit = series_limit
        self._known = known
        self.since_ms = 0
        """Messages popped before that time are not in `in_flight`."""
        self.in_flight: dict[tuple[str, str], dict[int, int]] = {}
        """(group, topic) → queue id → messages popped, and neither acknowledged nor put again."""
        self.revive_in: Counts[tuple[str, str, str, str]] = Counts()
        """By topic, group, CK or ACK, and status of the put."""
        self.deleted = {"CK": 0, "ACK": 0}
        """How many of them were of deleted topics and groups: a total does not go back."""
        self.revive_out: Counts[tuple[str, str, str, str]] = Counts()
        """By topic, group, revive queue, and CK or ACK."""
        self.retried: Counts[tuple[str, str, str]] = Counts()
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
            if len(self.in_flight) >= self._limit or not self._known(topic, group):
                return
            queues = self.in_flight[pair] = {}
        queues[queue_id] = queues.get(queue_id, 0) + count

    def done(self, group: str, topic: str, queue_id: int, count: int, pop_time: int) -> None:
        """Count `count` messages, popped at `pop_time` in ms, as acknowledged or put again.

        A message that is acknowledged twice counts twice, as in RocketMQ; the number never gets
        below 0.
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
        """Drop the counts of a deleted group or topic."""
        for pair in [pair for pair in self.in_flight if group == pair[0] or topic == pair[1]]:
            del self.in_flight[pair]
        for key, count in self.revive_in.items():
            if topic == key[0] or group == key[1]:
                self.deleted[key[2]] += count
        for counts in (self.revive_in, self.revive_out, self.retried):
            counts.forget(group=group, topic=topic)

    def add(self, counts: Counts[Key], key: Key) -> None:
        """Count one under a key; keys beyond the limit, and those of topics and groups that are not
        here, are counted together.
        """
        known = counts.get(key)
        if known is not None:
            counts[key] = known + 1
        elif len(counts) < self._limit and self._known(key[0], key[1]):
            counts[key] = 1
        else:
            counts.overflow += 1
