"""Times and durations as people write them."""

import time
from datetime import UTC, datetime, timedelta

import click
import pytest

from aerobee.cli.output import shown
from aerobee.cli.times import duration_of, position_of, time_of
from aerobee.client.settings.client import ConsumeFrom


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_of(text, "--delay") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5 years", "-3s", "s", "9999999999d"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="--delay"):
        duration_of(text, "--delay")


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "UTC", "America/St_Johns"])
def test_a_printed_time_names_its_zone_and_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        # Two hours that one clock shows alike when summer time ends there.
        for hour in (13, 14):
            at = datetime(2025, 4, 5, hour, 30, tzinfo=UTC)
            assert time_of(shown(at), "--since") == at
        if zone == "UTC":
            assert shown(at) == "2025-04-05 14:30:00+00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["²", "offset:²", "9" * 5_000, "offset:" + "9" * 5_000])
def test_digits_that_are_no_number_are_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="--from"):
        position_of(text, "--from")


def test_times() -> None:
    assert time_of("1700000000000", "--since") == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert time_of("2025-01-31T12:00+00:00", "--since") == datetime(2025, 1, 31, 12, tzinfo=UTC)
    assert time_of("2025-01-31T12:00", "--since").tzinfo is not None
    ago = datetime.now(UTC) - time_of("10m ago", "--since")
    assert timedelta(minutes=9) < ago < timedelta(minutes=11)


@pytest.mark.parametrize("text", ["yesterday", "1" * 20, "9" * 20, "x ago", "9999999999d ago"])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="--since"):
        time_of(text, "--since")


def test_a_time_in_seconds_is_wrong_usage_wherever_a_time_may_be() -> None:
    for parse in (time_of, position_of):
        with pytest.raises(click.UsageError, match="--from 1700000000: these are seconds"):
            parse("1700000000", "--from")


def test_positions() -> None:
    assert position_of("earliest", "--from") is ConsumeFrom.FIRST
    assert position_of("last", "--from") is ConsumeFrom.LAST
    assert position_of("offset:12", "--from") == 12
    with pytest.raises(click.UsageError, match="offset:N"):
        position_of("offset:x", "--from")
