"""Slopes of lives that are added up."""

from __future__ import annotations

import random
from functools import reduce

import pytest

from tests.kit.slopes import Sums, of_life


def test_a_line_has_its_slope_and_no_error() -> None:
    found = of_life([(x, 3.0 * x + 7) for x in range(10)])
    assert found.slope == pytest.approx(3.0)
    assert found.error == pytest.approx(0.0, abs=1e-6)
    assert found.grows(2.9)
    assert not found.grows(3.1)


def test_lives_with_levels_of_their_own_are_no_growth() -> None:
    flat = [of_life([(x, level) for x in range(5)]) for level in (10.0, 20.0, 30.0)]
    assert reduce(Sums.plus, flat).slope == 0.0


def test_pieces_add_up_in_whatever_order() -> None:
    rng = random.Random(1)
    lives = [[(float(x), rng.gauss(x, 5)) for x in range(30)] for _ in range(6)]
    once = reduce(Sums.plus, map(of_life, lives))
    again = reduce(Sums.plus, map(of_life, reversed(lives)))
    assert once.slope == pytest.approx(again.slope)
    assert (once.points, once.lives) == (180, 6)


def test_the_error_is_that_of_the_slope() -> None:
    """In about nineteen of twenty draws the true slope lies within two errors."""
    rng = random.Random(2)
    within = 0
    for _ in range(400):
        found = of_life([(x / 10, 2 * x / 10 + rng.gauss(0, 1)) for x in range(60)])
        within += abs(found.slope - 2) <= 2 * found.error
    assert 0.92 <= within / 400 <= 0.98


def test_too_few_points_say_nothing() -> None:
    assert of_life([(1.0, 5.0)]) == Sums()
    assert not of_life([(1.0, 5.0), (2.0, 50.0)]).grows(0.0)
