"""Segments of a log, and how they are split into tasks. Pure; `files` has the I/O.

`store.format` interprets the bytes of a segment: `walk`, `record_arrays`, `faults`.
Source: spark §9, store format §1.2.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLOCK_SLACK_MS = 3_600_000
"""How far a clock may step back between two records before pruning by time is wrong."""


class Segment(NamedTuple):
    """One file of the log: bytes [start, start + size) of it."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.start + self.size

    @property
    def name(self) -> str:
        """The file name, 20 digits."""
        return PurePath(self.path).name


class Split(NamedTuple):
    """A part of a segment: the records that begin in [begin, end), wherever they end.

    `limit` is the end of the segment's data; nothing after it is read.
    """

    segment: Segment
    begin: int
    end: int
    limit: int
    first: bool = False
    """Whether no split reads the bytes before it."""
    last: bool = False
    """Whether no split reads the bytes after it."""


def splits_of(segment: Segment, begin: int, end: int, limit: int, split_bytes: int) -> list[Split]:
    """Split into parts of about `split_bytes` that own the records beginning in [begin, end)."""
    begin, end = max(begin, segment.start), min(end, limit)
    # Cuts are at multiples from the segment's start, so that they do not depend on the bounds.
    first = segment.start + (begin - segment.start) // split_bytes * split_bytes
    cuts = [begin, *range(first + split_bytes, end, split_bytes), end]
    return [
        Split(segment, low, high, limit, first=low == begin, last=high == end)
        for low, high in pairwise(cuts)
        if low < high
    ]


def holes_between(segments: Sequence[Segment]) -> Iterator[tuple[Segment, Segment]]:
    """Adjacent pairs of the list with a missing segment between them."""
    return ((left, two) for left, two in pairwise(segments) if left.end != two.start)


def within_times(
    firsts: Sequence[int | None], starting_ms: int | None, ending_ms: int | None
) -> list[bool]:
    """Which segments can have records of [starting, ending), by the time of each first record.

    A segment without a time is always kept. Clocks that step back by less than an hour are allowed.
    """
    kept = []
    for number, first in enumerate(firsts):
        following = firsts[number + 1] if number + 1 < len(firsts) else None
        past = (
            starting_ms is not None
            and following is not None
            and following < starting_ms - CLOCK_SLACK_MS
        )
        future = ending_ms is not None and first is not None and first >= ending_ms + CLOCK_SLACK_MS
        kept.append(not past and not future)
    return kept
