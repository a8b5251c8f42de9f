"""Numbers become pictures: what is drawn lies where it belongs, and is well-formed."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.spark.jobs.charts import (
    Bar,
    Series,
    bars,
    bytes_text,
    count_text,
    duration_text,
    lines,
    nice_ticks,
    time_ticks,
)

HOUR_MS = 3_600_000
values = st.floats(min_value=1e-3, max_value=1e12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (count_text(0), "0"),
        (count_text(0.254), "0.25"),
        (count_text(999), "999"),
        (count_text(12_345), "12.3k"),
        (count_text(4e6), "4M"),
        (bytes_text(512), "512 B"),
        (bytes_text(1_572_864), "1.5 MiB"),
        (duration_text(-4), "-4 ms"),
        (duration_text(1_500), "1.5 s"),
        (duration_text(90 * 60_000), "1.5 h"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(text: str, expected: str) -> None:
    assert text == expected


@given(values)
def test_ticks_begin_at_nothing_and_reach_the_top_in_few_even_steps(top: float) -> None:
    ticks = nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-9)
    assert ticks[-2] < top
    assert 2 <= len(ticks) <= 6


@given(st.integers(0, 4_000_000_000_000), st.integers(1_000, 90 * 24 * HOUR_MS))
def test_times_on_the_axis_are_few_and_inside(first_ms: int, span_ms: int) -> None:
    ticks = time_ticks(first_ms, first_ms + span_ms)
    assert len(ticks) <= 8
    assert all(first_ms <= at_ms <= first_ms + span_ms for at_ms, _ in ticks)


def test_times_are_labelled_by_how_much_is_seen() -> None:
    noon_ms = 1_700_049_600_000
    assert time_ticks(noon_ms, noon_ms + 30_000)[1][1] == "12:00:05"
    assert time_ticks(noon_ms, noon_ms + 6 * HOUR_MS)[1][1] == "13:00"
    assert time_ticks(noon_ms, noon_ms + 7 * 24 * HOUR_MS)[0][1] == "16 Nov"


def heights(svg: str, style: str) -> list[float]:
    """The y of each point of a line."""
    [way] = re.findall(rf'class="{style} line" d="([^"]*)"', svg)
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", way)]


def test_what_is_more_stands_higher_and_a_gap_lifts_the_pen() -> None:
    times = [0, 60_000, 120_000, 180_000, 240_000]
    svg = lines(times, [Series("a", [1, 4, None, 2, None], "s0")], count_text, "rates")
    one, four, two = heights(svg, "s0")
    assert four < two < one
    assert svg.count('class="s0 dot"') == 1, "a value between two gaps is a dot"
    assert "a: –" in svg
    assert ElementTree.fromstring(svg).get("aria-label") == "rates"


def test_stacked_areas_lie_on_each_other() -> None:
    series = [Series("a", [1, 1], "s0"), Series("b", [1, None], "s1")]
    svg = lines([0, 1_000], series, count_text, "stack", stacked=True)
    lower, upper = heights(svg, "s0"), heights(svg, "s1")
    assert upper[0] < lower[0]
    assert upper[1] == lower[1], "a gap counts as nothing"


def test_a_log_scale_has_lines_at_times_that_are_round_for_people() -> None:
    svg = lines([0, 1], [Series("a", [3, 700_000], "q0")], duration_text, "late", log=True)
    labels = re.findall(r'class="end"[^>]*>(.*?)<', svg)
    assert labels == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"]


def test_on_a_log_scale_each_power_of_ten_is_as_far() -> None:
    svg = lines([0, 1, 2], [Series("a", [-5, 10, 100], "q0")], duration_text, "late", log=True)
    below, ten, hundred = heights(svg, "q0")
    assert below - ten == pytest.approx(ten - hundred, abs=0.2)


def test_bars_are_as_long_as_their_values_and_names_are_whole_and_escaped() -> None:
    name = "a-group-with-a-long-name ← a-topic-with-a-long-name<b>&"
    drawn = bars([Bar(name, 10, "10"), Bar("half", 5, "5"), Bar("none", 0, "0")], 'of "sizes"')
    root = ElementTree.fromstring(drawn)
    assert root.get("aria-label") == 'of "sizes"'
    widths = [bar.get("style") for bar in root.iter("i")]
    assert widths == ["width:100.0%", "width:50.0%", "width:0.0%"]
    assert [text.text for text in root.iter("span")][:2] == [name, "10"]


def test_texts_keep_their_size_however_wide_the_page_is() -> None:
    hours = range(0, 30 * HOUR_MS, HOUR_MS)
    drawn = lines(hours, [Series("a", [1.0] * 30, "s0")], count_text, "rates")
    for svg in ElementTree.fromstring(drawn).iter("svg"):
        assert svg.get("viewBox") is None or not list(svg.iter("text"))
    labels = re.findall(r'class="mid( odd)?" x="([\d.]+)%" y="20">(.*?)<', drawn)
    assert [label for _, _, label in labels] == ["01 Jan", "06:00", "12:00", "18:00", "02 Jan"]
    assert [odd for odd, _, _ in labels] == ["", " odd", "", " odd", ""]
    assert float(labels[2][1]) == pytest.approx(12 / 29 * 100, abs=0.01)


@example([None, 5e-324], False)
@given(st.lists(st.none() | st.floats(0, 1e9), min_size=2, max_size=20), st.booleans())
def test_any_values_make_a_picture(found: list[float | None], log: bool) -> None:
    times = [place * 1_000 for place in range(len(found))]
    ElementTree.fromstring(lines(times, [Series("a", found, "s0")], count_text, "any", log=log))
