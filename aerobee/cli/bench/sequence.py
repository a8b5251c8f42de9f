"""The bodies of bench messages, and the check for lost, duplicate and reordered ones.

magic | run | sender | number | intended send time in ns     32 bytes, then filling
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

MAGIC = 0xAE20BE9C
HEAD = Struct(">IIIIqq")
HEAD_BYTES = HEAD.size


class Mark(NamedTuple):
    """The run and the number of a message, and its intended send time."""

    run: int
    sender: int
    number: int
    intended_ns: int


def marked(mark: Mark, size: int) -> bytes:
    """A body of `size` bytes, at least HEAD_BYTES."""
    head = HEAD.pack(MAGIC, mark.run, mark.sender, 0, mark.number, mark.intended_ns)
    return head.ljust(size, b"x")


def read_mark(body: bytes, run: int) -> Mark | None:
    """The mark of a body; None if it is not of a bench, or of another run."""
    if len(body) < HEAD_BYTES:
        return None
    magic, of_run, sender, _, number, intended_ns = HEAD.unpack_from(body)
    if magic != MAGIC or of_run != run:
        return None
    return Mark(of_run, sender, number, intended_ns)


@dataclass(slots=True)
class Checker:
    """Counts received messages. Order is that of each sender within each queue."""

    seen: set[tuple[int, int]] = field(default_factory=set)
    duplicates: int = 0
    reordered: int = 0
    _last: dict[tuple[Hashable, int], int] = field(default_factory=dict)

    def add(self, mark: Mark, queue: Hashable) -> None:
        """Count a message that was received from a queue."""
        identity = mark.sender, mark.number
        if identity in self.seen:
            self.duplicates += 1
            return
        self.seen.add(identity)
        place = queue, mark.sender
        if mark.number < self._last.get(place, -1):
            self.reordered += 1
        self._last[place] = max(mark.number, self._last.get(place, -1))

    def lost(self, sent: set[tuple[int, int]]) -> int:
        """The number of acknowledged messages that never arrived."""
        return len(sent - self.seen)
