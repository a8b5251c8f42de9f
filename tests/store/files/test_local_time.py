"""Hours as the clock on the wall shows them."""

from __future__ import annotations

import time

import pytest

from aerobee.store.files.local_time import local_hour, local_stamp

NOON_UTC_MS = 1_700_049_600_000


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 12), ("UTC+8", 4), ("UTC-8", 20)])
def test_the_hour_is_that_of_the_time_zone_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, zone: str, hour: int
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_hour(NOON_UTC_MS) == hour
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_stamp_is_year_to_millisecond_in_that_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-8")
    time.tzset()
    try:
        assert local_stamp(NOON_UTC_MS + 1_007) == 20231115200001007
    finally:
        monkeypatch.undo()
        time.tzset()
