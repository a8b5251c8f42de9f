"""The first of several equal messages: topic and key → physical offset, for a while.

Only hashes are kept, some 120 bytes each; a match is compared with the record before it counts. A
window consists of time slices: a slice is dropped as a whole, so an entry lives for the window and
up to a slice longer, or until the next message of its topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.dedupe.dedupe_settings import DedupeRule

__all__ = ["SLICES", "DedupeTable", "Firsts"]

SLICES: Final = 4
"""Slices per window; more would only mean more look-ups."""


class Slice(NamedTuple):
    """The first messages of a part of the window."""

    ends_ms: int
    """All of them were stored before this time."""
    entries: dict[int, int]
    """Hash of a key → physical offset."""


class Firsts:
    """The first messages of one topic, newest slice first."""

    __slots__ = ("by", "slice_ms", "slices", "window_ms")

    def __init__(self, rule: DedupeRule) -> None:
        self.by = rule.by
        """The property whose value makes two messages equal."""
        self.window_ms = rule.window_s * 1_000
        self.slice_ms = max(1, self.window_ms // SLICES)
        self.slices: list[Slice] = []

    def find(self, key: str) -> int | None:
        """The physical offset of a message that may have this key; the newest if there are
        several.
        """
        wanted = hash(key)
        for part in self.slices:
            at = part.entries.get(wanted)
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
        newest = firsts.slices[0].entries
        before = len(newest)
        newest[hash(key)] = physical_offset
        self.count += len(newest) - before
        while self.count > self.max_entries:
            self._make_room()

    def _turn(self, firsts: Firsts, now_ms: int) -> None:
        """Drop the slices outside the window, and begin a new one when it is time."""
        slices = firsts.slices
        # Each has begun with a message, so that there may be any time between two of them.
        while slices and slices[-1].ends_ms <= now_ms - firsts.window_ms:
            self._drop_oldest(firsts)
        if not slices or now_ms >= slices[0].ends_ms:
            slices.insert(0, Slice(now_ms + firsts.slice_ms, {}))

    def _drop_oldest(self, firsts: Firsts) -> None:
        self.count -= len(firsts.slices.pop().entries)

    def _make_room(self) -> None:
        """Drop the oldest slice of the topic with most entries in it."""
        self._drop_oldest(max(self.topics.values(), key=_oldest))


def _oldest(firsts: Firsts) -> int:
    """The number of entries in the oldest slice; −1 without a slice."""
    return len(firsts.slices[-1].entries) if firsts.slices else -1
