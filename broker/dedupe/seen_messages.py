"""The first of several equal messages: topic and key → its place in a queue, for a while.

Of a key only a digest is kept, which no two keys share, so that nothing has to be read again to
compare them: some 200 bytes each. All times are monotonic: a clock that is set neither drops nor
keeps an entry. A window consists of time slices: a slice is dropped as a whole, so an entry takes
memory for the window and up to a slice longer, or until the next message of its topic.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.config.settings.dedupe import DedupeRule

SLICES: Final = 4
"""Slices per window; more would only mean more look-ups."""
DIGEST_BYTES: Final = 16
PLACE: Final = Struct(">iqqq")


class FirstMessage(NamedTuple):
    """A stored message."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    stored_ms: int
    """When it was stored, by the monotonic clock."""


class Slice(NamedTuple):
    """The first messages of a part of the window."""

    ends_ms: int
    """All of them were noted before this time."""
    entries: dict[bytes, bytes]
    """Digest of a key → the packed `FirstMessage`."""


class FirstMessages:
    """The first messages of one topic, newest slice first."""

    __slots__ = ("by", "slice_ms", "slices", "window_ms")

    def __init__(self, rule: DedupeRule) -> None:
        self.by = rule.by
        """The property whose value makes two messages equal."""
        self.window_ms = rule.window_s * 1_000
        self.slice_ms = max(1, self.window_ms // SLICES)
        self.slices: list[Slice] = []

    def find(self, key: str, now_ms: int) -> FirstMessage | None:
        """The message with this key that was stored last, if that is within the window."""
        wanted = _digest(key)
        for part in self.slices:
            packed = part.entries.get(wanted)
            if packed is not None:
                first = FirstMessage(*PLACE.unpack(packed))
                return first if now_ms - first.stored_ms <= self.window_ms else None
        return None


class DedupeTable:
    """The first messages of every topic with a rule.

    Invariant: `count` is the number of entries, and not above `max_entries` after `note`.
    """

    def __init__(self, rules: Iterable[DedupeRule], *, max_entries: int) -> None:
        self.topics = {rule.topic: FirstMessages(rule) for rule in rules}
        self.max_entries = max_entries
        self.count = 0

    def note(self, topic: str, key: str, first: FirstMessage, now_ms: int) -> None:
        """Record a stored message; drop those that were noted before the window."""
        firsts = self.topics[topic]
        self._turn(firsts, now_ms)
        newest = firsts.slices[0].entries
        before = len(newest)
        newest[_digest(key)] = PLACE.pack(*first)
        self.count += len(newest) - before
        while self.count > self.max_entries:
            self._make_room()

    def _turn(self, firsts: FirstMessages, now_ms: int) -> None:
        """Drop the slices outside the window, and begin a new one when it is time."""
        slices = firsts.slices
        # Each has begun with a message, so that there may be any time between two of them.
        while slices and slices[-1].ends_ms <= now_ms - firsts.window_ms:
            self._drop_oldest(firsts)
        if not slices or now_ms >= slices[0].ends_ms:
            slices.insert(0, Slice(now_ms + firsts.slice_ms, {}))

    def _drop_oldest(self, firsts: FirstMessages) -> None:
        self.count -= len(firsts.slices.pop().entries)

    def _make_room(self) -> None:
        """Drop the oldest slice of the topic with most entries in it."""
        self._drop_oldest(max(self.topics.values(), key=_oldest))


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _oldest(firsts: FirstMessages) -> int:
    """The number of entries in the oldest slice; −1 without a slice."""
    return len(firsts.slices[-1].entries) if firsts.slices else -1
