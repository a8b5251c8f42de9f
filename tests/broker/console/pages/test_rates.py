"""Rates that were looked at, kept for the chart."""

from __future__ import annotations

from typing import Any

from aerobee.broker.console.looks.snapshot import Snapshot
from aerobee.broker.console.pages.rates import ACCOUNTS_MAX, DRAWN_MAX, POINTS_MAX, Rates, thinned


def snapshot(at_ms: int, **figures: Any) -> Snapshot:
    return Snapshot(
        at_ms=at_ms,
        took_ms=0.0,
        overview={"in_per_s": 1.0, "out_per_s": 2.0, **figures},
        findings=[],
        topics=[],
        groups=[],
        clients=[],
        dead_letters=[],
    )


def test_a_snapshot_is_a_point_once_however_many_look() -> None:
    rates = Rates()
    for at_ms in (2_000, 2_000, 4_000):
        rates.note("ann", snapshot(at_ms))
    assert rates.chart("ann")["times"] == [2, 4]


def test_rates_that_are_not_known_are_no_point() -> None:
    rates = Rates()
    rates.note("ann", snapshot(2_000, in_per_s=None))
    assert rates.chart("ann")["times"] == []


def test_an_account_sees_no_rates_that_others_were_told() -> None:
    rates = Rates()
    rates.note("ann", snapshot(2_000))
    assert rates.chart("bob")["times"] == []
    for number in range(ACCOUNTS_MAX):
        rates.note(number, snapshot(2_000))
    assert rates.chart("ann")["times"] == [], "the account that looked longest ago is left out"


def test_an_hour_is_drawn_in_few_points() -> None:
    rates = Rates()
    for number in range(POINTS_MAX + 5):
        rates.note("ann", snapshot(number * 2_000))
    drawn = rates.chart("ann")
    assert POINTS_MAX // 8 <= len(drawn["times"]) <= DRAWN_MAX
    assert drawn["times"][-1] == (POINTS_MAX + 4) * 2
    assert len(str(drawn)) < 30_000


def test_of_several_points_the_mean_is_drawn() -> None:
    points = [(float(at), float(at % 2), 4.0) for at in range(2 * DRAWN_MAX)]
    assert thinned(points) == [(2.0 * at + 1, 0.5, 4.0) for at in range(DRAWN_MAX)]
    assert thinned(points[:3]) == points[:3]
