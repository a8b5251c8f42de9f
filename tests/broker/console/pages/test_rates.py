"""Rates that were looked at, kept for the chart."""

from __future__ import annotations

from typing import Any

from aerobee.broker.console.looks.snapshot import Snapshot
from aerobee.broker.console.pages.rates import POINTS_MAX, Rates


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
        rates.note(snapshot(at_ms))
    assert rates.chart()["times"] == [2, 4]


def test_rates_that_are_not_known_are_no_point() -> None:
    rates = Rates()
    rates.note(snapshot(2_000, in_per_s=None))
    assert rates.chart()["times"] == []


def test_an_hour_is_kept() -> None:
    rates = Rates()
    for number in range(POINTS_MAX + 5):
        rates.note(snapshot(number * 2_000))
    assert len(rates.chart()["times"]) == POINTS_MAX
