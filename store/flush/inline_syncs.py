"""When a sync of the log is made in the loop itself, and not in the sync thread.

On a fast disk a sync takes some 100 µs, and the way to another thread and back about as long: a
lone sender would wait twice, and half of many senders would miss the sync of their round. On a slow
disk the loop must not wait. So what the last syncs took, also in the thread, decides about the next
one: a disk has to be fast for `LONG_PAUSE_S` in the thread before the loop trusts it again.
"""

from __future__ import annotations

from typing import Final

INLINE_BYTES: Final = 256 << 10
"""A sync of more bytes is the thread's: it takes the longer, the more there is to write."""
MEAN_MAX_S: Final = 0.0005
"""Syncs that take longer on average are the thread's: the loop gets more done meanwhile than two
wake-ups cost."""
SINGLE_MAX_S: Final = 0.020
"""A longer one ends inline syncs at once: no more stall of the loop than is promised elsewhere."""
PAUSE_S: Final = 1.0
"""How long the thread has them when their mean was too long."""
LONG_PAUSE_S: Final = 10.0
"""How long the thread has them after a single one that was, its own included."""
WEIGHT: Final = 1 / 64
"""The weight of one sync in the mean."""


class InlineSyncs:
    """The moving mean of the inline syncs, and until when there are none."""

    __slots__ = ("_mean_s", "_not_before")

    def __init__(self) -> None:
        self._mean_s = 0.0
        self._not_before = float("-inf")

    def allows(self, size_bytes: int, now: float) -> bool:
        """Whether a sync of so many bytes may be made inline at this monotonic time. Hot."""
        return size_bytes <= INLINE_BYTES and now >= self._not_before

    def thread_took(self, seconds: float, size_bytes: int, now: float) -> None:
        """Take in what a sync of the thread took. Only a long one counts: how long a short one
        seems to take there says more about hand-overs than about the disk.
        """
        if seconds > SINGLE_MAX_S and size_bytes <= INLINE_BYTES:
            self._not_before = max(self._not_before, now + LONG_PAUSE_S)

    def took(self, seconds: float, now: float) -> bool:
        """Take in what an inline sync took; False when the next ones are the thread's. Hot."""
        self._mean_s += (seconds - self._mean_s) * WEIGHT
        if seconds > SINGLE_MAX_S:
            pause_s = LONG_PAUSE_S
        elif self._mean_s > MEAN_MAX_S:
            pause_s = PAUSE_S
        else:
            return True
        self._mean_s = 0.0
        self._not_before = now + pause_s
        return False
