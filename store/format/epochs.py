"""The epochs of a log: which master wrote which part of it, and where two logs stop being equal.

Pure. An epoch begins where the log of its master ended when it became the master, and ends where
the next begins. No two masters have the same epoch, so two logs that have an epoch with the same
begin are equal up to the end of the shorter one in it.
Source: store format §8 (EpochFileCache).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Epoch(NamedTuple):
    """The part of a log that one master wrote."""

    epoch: int
    start: int
    """Physical offset of its first byte."""


def end_of(epochs: Sequence[Epoch], number: int, max_offset: int) -> int:
    """Where the epoch at this place of the row ends, in a log that ends at `max_offset`."""
    return epochs[number + 1].start if number + 1 < len(epochs) else max_offset


def common_end(
    own: Sequence[Epoch], own_max: int, theirs: Sequence[Epoch], their_max: int
) -> int | None:
    """Up to where two logs are equal; None: they have no epoch in common.

    It is the end of the newest epoch that both have, in the log where it ends first.
    Source: store format §8 (EpochFileCache.findConsistentPoint).
    """
    places = {epoch: number for number, epoch in enumerate(theirs)}
    for number in range(len(own) - 1, -1, -1):
        place = places.get(own[number])
        if place is not None:
            return min(end_of(own, number, own_max), end_of(theirs, place, their_max))
    return None


def cut_at(epochs: Sequence[Epoch], max_offset: int) -> tuple[Epoch, ...]:
    """The epochs of a log that is cut at `max_offset`: those that begin in front of it."""
    return tuple(epoch for epoch in epochs if epoch.start < max_offset)


def shortened(epochs: tuple[Epoch, ...], most: int) -> tuple[Epoch, ...]:
    """The epochs of a log, at most so many: beyond that the older ones count as one.

    No other log has that one, unless it has had the newer ones, too, and so the same bytes. A log
    that ends in an older one has none in common from then on.
    """
    if len(epochs) <= most:
        return epochs
    kept = most // 2
    last = epochs[-kept - 1]
    return Epoch(last.epoch, epochs[0].start), *epochs[-kept:]


def in_order(epochs: Sequence[Epoch]) -> bool:
    """Whether both numbers ascend: an epoch may be empty, and no two are the same."""
    return all(
        before.epoch < epoch.epoch and before.start <= epoch.start
        for before, epoch in pairwise(epochs)
    )
