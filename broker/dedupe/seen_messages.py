"""The first of several equal messages: topic and key → physical offset, for a while.

Only hashes are kept, some 120 bytes each; a match is compared with the record before it counts. A
window consists of time slices: a slice is dropped as a whole, so an entry lives for the window and
up to a slice longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.dedupe.dedupe_settings import DedupeRule

__all__ = ["SLICES", "DedupeTable", "Firsts"]

SLICES: Final = 4
"""Slices per window; more would only mean more look-ups."""


class Firsts:
    """The first messages of one topic, newest slice first."""

    __slots__ = ("by", "ends_ms", "slice_ms", "slices", "window_ms")

    def __init__(self, rule: DedupeRule) -> None:
        self.by = rule.by
        """The property whose value makes two messages equal."""
        self.window_ms = rule.window_s * 1_000
        self.slice_ms = max(1, self.window_ms // SLICES)
        self.slices: list[dict[int, int]] = []
        self.ends_ms = 0
        """When the newest slice ends."""

    def find(self, key: str) -> int | None:
        """The physical offset of a message that may have this key; the newest if there are
        several.
        """
        wanted = hash(key)
        for entries in self.slices:
            at = entries.get(wanted)
            if at is not None:
                return at
        return None


class DedupeTable:
    """The first messages of every topic with a rule.

    Invariant: `count` is the number of entries, and not above `max_entries` after `note`.
    """

    def __init__(self, rules: Iterable[DedupeRule], *, max_entries: int) -> None:
        self.topics = {rule.topic: Firsts(rule) for rule in rules}
        self.max_entries = max_entries
        self.count = 0

    def note(self, topic: str, key: str, physical_offset: int, stored_ms: int) -> None:
        """Record a stored message; drop those older than it by more than the window."""
        firsts = self.topics[topic]
        self._turn(firsts, stored_ms)
        newest = firsts.slices[0]
        before = len(newest)
        newest[hash(key)] = physical_offset
        self.count += len(newest) - before
        while self.count > self.max_entries:
            self._make_room()

    def _turn(self, firsts: Firsts, now_ms: int) -> None:
        """Begin a new slice when it is time, and drop those outside the window."""
        if now_ms < firsts.ends_ms:
            return
        passed = (now_ms - firsts.ends_ms) // firsts.slice_ms + 1 if firsts.ends_ms else 1
        firsts.ends_ms = now_ms + firsts.slice_ms
        if passed > SLICES:
            self._drop(firsts, 0)
        firsts.slices.insert(0, {})
        self._drop(firsts, SLICES + 1)

    def _drop(self, firsts: Firsts, keep: int) -> None:
        self.count -= sum(map(len, firsts.slices[keep:]))
        del firsts.slices[keep:]

    def _make_room(self) -> None:
        """Drop the oldest slice of the topic with most entries in it."""
        fullest = max(self.topics.values(), key=_oldest)
        self._drop(fullest, len(fullest.slices) - 1)
        if not fullest.slices:
            fullest.ends_ms = 0


def _oldest(firsts: Firsts) -> int:
    """The number of entries in the oldest slice; −1 without a slice."""
    return len(firsts.slices[-1]) if firsts.slices else -1
