"""Values as people read them; what is not known stays unknown."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.console.pages import formats


def with_no_breaks(shown: str) -> str:
    """A text with the spaces at which no line ends, here written as _."""
    return shown.replace("_", "\u00a0")


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (12_400, "12,400"), (0.26, "0.3"), (3.0, "3"), (99.6, "100")]
)
def test_a_rate_has_a_decimal_while_it_is_small(value: float, shown: str) -> None:
    assert formats.rate(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0_B"), (1_023, "1,023_B"), (1_536, "1.5_KiB"), (48 * 2**30, "48_GiB")],
)
def test_a_size_is_told_in_the_unit_that_fits(value: int, shown: str) -> None:
    assert formats.size(value) == with_no_breaks(shown)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0_s"), (0.2, "<_1_s"), (61, "1_min 1_s"), (3_600, "1_h"), (190_080, "2_d 4_h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, shown: str) -> None:
    assert formats.duration(seconds) == with_no_breaks(shown)


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_no_figure_is_not_known(figure: float) -> None:
    """A foreign broker may send it, and no page may fail for that."""
    shown = (formats.number, formats.rate, formats.size, formats.percent, formats.duration)
    assert [show(figure) for show in shown] == [None] * len(shown)


def test_a_duration_is_told_in_chinese() -> None:
    assert formats.duration(61, "zh") == with_no_breaks("1_分 1_秒")


def test_what_is_not_known_stays_so() -> None:
    for shown in (formats.number, formats.rate, formats.size, formats.percent, formats.duration):
        assert shown(None) is None
    assert formats.iso(None) == formats.utc("no time") == ""


@pytest.mark.parametrize("value", [1_767_225_600_000, "2026-01-01T01:00:00+01:00"])
def test_a_time_is_told_in_utc(value: object) -> None:
    assert formats.iso(value) == "2026-01-01T00:00:00.000Z"
    assert formats.utc(value) == "2026-01-01 00:00:00 UTC"
    assert formats.moment(datetime(2026, 1, 1, tzinfo=UTC)) == formats.moment(value)


@given(st.text())
def test_no_sign_without_a_shape_is_left(text: str) -> None:
    shown = formats.visible(text)
    assert not formats.HIDDEN.search(shown)
    assert shown.isascii() or formats.visible(shown) == shown


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_share_is_never_out_of_its_bar(part: float, whole: float) -> None:
    assert 0 <= formats.share(part, whole) <= 100


def test_a_body_that_is_no_text_is_told_in_hex() -> None:
    assert formats.hexadecimal(b"\x00AB", 16).startswith("00000000  00 41 42 ")
    assert formats.hexadecimal(b"\x00AB", 16).endswith("  .AB")


@pytest.mark.parametrize(
    ("text", "zoned"),
    [
        ("2026-01-31T12:00", "2026-01-31T12:00:00+00:00"),
        ("2026-01-31 12:00:30.5", "2026-01-31T12:00:30.500000+00:00"),
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T12:00+08:00", "2026-01-31T12:00+08:00"),
        ("2026-01-31T12:00Z", "2026-01-31T12:00Z"),
        ("20260131", "20260131"),
        ("1769860800000", "1769860800000"),
        ("10m ago", "10m ago"),
        ("", ""),
    ],
)
def test_a_time_without_a_zone_is_one_of_utc(text: str, zoned: str) -> None:
    assert formats.zoned(text) == zoned
