"""The page has everything in it, shows what there is, and nothing from elsewhere."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from html.parser import HTMLParser

from aerobee.spark.jobs.page import Report, render, windows_ms

START = datetime(2025, 1, 31, 9, 0)  # noqa: DTZ001 - Spark answers naive times
MINUTE = timedelta(minutes=1)
VOID = {"meta", "br"}
Rows = list[dict[str, object]]


def rates(*topics: str, windows: int = 3) -> Rows:
    return [
        {
            "windowStart": START + number * MINUTE,
            "topic": topic,
            "messages": 60 * (number + 1),
            "bytes": 24_000,
            "messagesPerSecond": number + 1.0,
            "bytesPerSecond": 400.0,
            "latencyP50Ms": 2,
            "latencyP90Ms": 8,
            "latencyP99Ms": 90,
            "latencyMaxMs": 120,
        }
        for number in range(windows)
        for topic in topics
    ]


def topics(*names: str) -> Rows:
    sizes = {"bytes": 72_000, "sizeMean": 200.0, "sizeP50": 180, "sizeP99": 900, "sizeMax": 901}
    late = {"latencyP50Ms": 2, "latencyP90Ms": 8, "latencyP99Ms": 90}
    return [{"topic": name, "messages": 360} | sizes | late for name in names]


def report(*names: str) -> Report:
    return Report(
        title="Shop",
        place="127.0.0.1:9876",
        made_at=datetime(2025, 1, 31, 10, tzinfo=UTC),
        window_ms=60_000,
        rates=rates(*names),
        totals=rates("all"),
        topics=topics(*names),
    )


class Balanced(HTMLParser):
    """Every element that begins ends, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(page: str) -> None:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"(https?:)?//\w|url\((?!#)|@import|<script|<link|src=", page)


def headings(page: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", page)


def test_the_page_is_whole_and_brings_everything_along() -> None:
    page = render(report("orders"))
    check(page)
    assert headings(page) == ["Throughput", "Latency", "Topics", "Sizes"]
    assert "2025-01-31 09:00 to 2025-01-31 09:03" in page
    assert "prefers-color-scheme: dark" in page


def test_tiles_add_up_what_the_pictures_show() -> None:
    lag = [{"group": "g", "topic": "orders", "lag": 1_500, "timeLagMs": 61_000, "queues": 4}]
    page = render(replace(report("orders", "emails"), lag=lag, dead_letters=[]))
    tiles = dict(re.findall("<span>(.*?)</span><b>(.*?)</b>", page))
    assert tiles == {
        "messages": "720",
        "stored": "141 KiB",
        "peak": "3/s",
        "worst p99": "90 ms",
        "behind": "1.5k",
        "dead letters": "0",
    }
    assert "1.5k · 1.02 min" in page
    assert ">None.</p>" in page


def test_more_topics_than_colours_are_one_area() -> None:
    names = [f"t{number}" for number in range(8)]
    page = render(report(*names))
    picture = page[page.index("<svg") : page.index("</svg>")]
    assert re.findall(r">(t\d|\d more)</text>", picture) == ["t0", "t1", "t2", "t3", "t4", "3 more"]
    assert "var(--rest)" in picture


def test_windows_without_messages_are_zero_and_no_straight_line_over_them() -> None:
    rows = [row for row in rates("orders", windows=5) if row["messages"] != 180]
    assert len(windows_ms(rows, 60_000)) == 5
    gap, whole = (
        render(replace(report("orders"), rates=one)) for one in (rows, rates("orders", windows=5))
    )
    assert drawing(gap) != drawing(whole)
    assert len(drawing(gap)) == len(drawing(whole)), "a place for every window"


def drawing(page: str) -> list[str]:
    """The first area of the first picture, move by move."""
    areas = re.findall(r'd="(M [^"]*?)"', page[page.index("<svg") :])
    return str(max(areas[:4], key=len)).split("\n")


def test_names_cannot_smuggle_markup_in() -> None:
    evil = "<script>alert(1)</script>"
    letters = [
        {"group": evil, "origin": None, "tags": evil, "why": evil, "tries": 1, "messages": 2}
        | {"first": START, "last": START}
    ]
    lag = [{"group": evil, "topic": evil, "lag": None, "timeLagMs": None, "queues": 1}]
    late = [
        {"topic": evil, "delay": "level 1", "messages": 1, "lateMinMs": -3, "lateP50Ms": 1}
        | {"lateP90Ms": 1, "lateP99Ms": 1, "lateMaxMs": 1}
    ]
    page = render(
        replace(report(evil), title=evil, notes=[evil], dead_letters=letters, lag=lag, delays=late)
    )
    check(page)
    assert headings(page)[-3:] == ["Lag", "Dead letters", "Delays"]
    assert "2 · 1 try" in page
    assert f"? · {escape(evil, quote=False)}</text>" in page, "bars of two tags have two names"


def test_no_messages_at_all_make_a_page_that_says_so() -> None:
    page = render(replace(report(), rates=[], totals=[], lag=[]))
    check(page)
    assert "No messages in this time." in page
    assert "No consumer groups." in page


def test_a_single_window_is_a_picture_too() -> None:
    one = replace(report("a"), rates=rates("a", windows=1), totals=rates("all", windows=1))
    check(render(one))
