"""Straight lines through what was measured again and again, over runs that are added up.

Each life of a process has a level of its own and all have one slope: so restarts are no growth.
What is kept of a life is a few sums, and sums of lives add up exactly, in whatever order and on
whatever machine they were taken. Pure.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sums(NamedTuple):
    """Of points around the mean of their life: how many, in how many lives, and the sums."""

    points: int = 0
    lives: int = 0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """Both of them."""
        return Sums(
            self.points + other.points,
            self.lives + other.lives,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
        )

    @property
    def slope(self) -> float:
        """By how much y grows while x grows by one; 0 where nothing says."""
        return self.xy / self.xx if self.xx else 0.0

    @property
    def error(self) -> float:
        """The standard error of the slope; infinite with too few points."""
        free = self.points - self.lives - 1
        if free <= 0 or not self.xx:
            return float("inf")
        left = max(0.0, self.yy - self.slope * self.xy)
        return sqrt(left / free / self.xx)

    def grows(self, limit: float) -> bool:
        """Whether the slope is above the limit by more than twice its error."""
        return self.slope - 2 * self.error > limit


def of_life(points: Sequence[tuple[float, float]]) -> Sums:
    """What is kept of the points (x, y) of one life."""
    if len(points) < 2:
        return Sums()
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    near = [(x - mean_x, y - mean_y) for x, y in points]
    return Sums(
        len(points),
        1,
        sum(x * x for x, _ in near),
        sum(x * y for x, y in near),
        sum(y * y for _, y in near),
    )
