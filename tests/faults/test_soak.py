"""The judge of the soak: a leak is found in an hour, and a thread that comes late is none."""

from __future__ import annotations

import random
from functools import reduce
from typing import TYPE_CHECKING

import pytest

from tests.faults.soak import LARGE, LIMITS
from tests.kit.slopes import Sums, of_life

if TYPE_CHECKING:
    from collections.abc import Callable

LEVEL, NOISE, ARENA = 54.0, 0.1, 0.2
"""The memory of a life, by how much it goes up and down, and what a new thread takes once: MiB."""


def hours(number: float, more: Callable[[float], float]) -> Sums:
    """The memory of lives for so long; `more` says how much there is at a share of what counts."""
    rng = random.Random(12)
    lives = round(number * 3_600 / LARGE.life)
    windows = round((LARGE.life - LARGE.warm) / LARGE.window)
    points = (
        [
            (
                (LARGE.warm + number * LARGE.window) / 3_600,
                LEVEL + rng.gauss(0, NOISE) + more(number / windows),
            )
            for number in range(windows)
        ]
        for _ in range(lives)
    )
    return reduce(Sums.plus, map(of_life, points))


def leak(per_hour: float) -> Callable[[float], float]:
    return lambda share: per_hour * share * (LARGE.life - LARGE.warm) / 3_600


@pytest.mark.parametrize(("of", "per_hour"), [(1.0, 2.0), (12.0, 1.2)])
def test_a_leak_is_found(of: float, per_hour: float) -> None:
    assert hours(of, leak(per_hour)).grows(LIMITS["memory MiB"])


@pytest.mark.parametrize("of", [1.0, 12.0])
def test_memory_that_only_goes_up_and_down_does_not_grow(of: float) -> None:
    assert not hours(of, leak(0.0)).grows(LIMITS["memory MiB"])


def test_a_thread_that_comes_at_the_worst_time_of_each_life_is_no_leak() -> None:
    assert not hours(12.0, lambda share: ARENA * (share > 0.5)).grows(LIMITS["memory MiB"])


def test_a_leak_beside_such_threads_is_found() -> None:
    more = leak(2.0)
    found = hours(1.0, lambda share: ARENA * (share > 0.5) + more(share))
    assert found.grows(LIMITS["memory MiB"])
