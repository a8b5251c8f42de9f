"""Pictures are parts of a page: no names, colours or fonts of their own, and numbers for people."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from aerobee.spark.jobs.charts import bars, bytes_text, count_text, duration_text, over_time

MINUTES = [1_738_314_000_000 + number * 60_000 for number in range(4)]


def whole(svg: str) -> None:
    """One element, which needs nothing from elsewhere and follows the colours of the page."""
    assert ElementTree.fromstring(svg.replace("xlink:", "")).tag == "svg"
    assert not re.search(r"https?:|<g id=|#2f6fde|#667085|<script|<image", svg)
    assert "var(--soft)" in svg


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_lines_are_drawn_with_their_names_and_axes(stacked: bool, log: bool) -> None:
    series = {"orders": [0.0, 2.0, 1.5, 4_000.0], "bills": [1.0, 1.0, 0.0, 0.0]}
    svg = over_time(MINUTES, series, duration_text, stacked=stacked, log=log)
    whole(svg)
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert {"orders", "bills"} <= set(texts)
    assert any(text.endswith(" s") for text in texts), "the axis is written for people"


def test_a_gap_is_no_line_over_it() -> None:
    drawn = over_time(MINUTES, {"p50": [1.0, None, 2.0, 2.0]}, count_text)
    whole(drawn)
    assert over_time(MINUTES, {"p50": [1.0, 1.5, 2.0, 2.0]}, count_text) != drawn


def test_bars_have_their_names_and_texts_as_they_are() -> None:
    svg = bars([("a$x_1$ & <b>", 9.0, "9 · 1 try"), ("中文", -3.0, "none"), ("z", 0.0, "0")])
    whole(svg)
    assert "a$x_1$ &amp; &lt;b&gt;</text>" in svg, "no formulas"
    assert "中文</text>" in svg
    assert "9 · 1 try</text>" in svg


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        (count_text, 0, "0"),
        (count_text, 0.25, "0.25"),
        (count_text, 999, "999"),
        (count_text, 12_340, "12.3k"),
        (count_text, 4_000_000, "4M"),
        (count_text, -1_500, "-1.5k"),
        (bytes_text, 512, "512 B"),
        (bytes_text, 1_536, "1.5 KiB"),
        (bytes_text, 3 << 40, "3 TiB"),
        (duration_text, 5, "5 ms"),
        (duration_text, 61_000, "1.02 min"),
        (duration_text, 7_200_000, "2 h"),
        (duration_text, 90 * 86_400_000, "90 d"),
    ],
)
def test_numbers_are_written_for_people(text: object, value: float, said: str) -> None:
    assert callable(text)
    assert text(value) == said
