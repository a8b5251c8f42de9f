"""Draws what `bench.beside_java` has measured: SVG that is read in light and in dark.

    python -m bench.plots RESULT [DIRECTORY]

`beside-java.svg`: rate and p99 of each kind of send and read as ratios to the Java broker, with the
lowest and highest turn. `growth.svg`: what a message costs with more topics, connections and log.
No library: an SVG of bars and lines is text. Colours come from the page's, by a media query.
"""

from __future__ import annotations

import argparse
from html import escape
from math import log10
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from bench.arguments import program, results
from bench.beside_java.figures import current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STYLE = """\
text{font:12px system-ui,sans-serif;fill:#1f2328}.faint{fill:#59636e}.title{font-weight:600}
.grid{stroke:#d1d9e0}.one{stroke:#59636e;stroke-dasharray:4 3}.whisker{stroke:#1f2328}
.good{fill:#1a7f64}.bad{fill:#c2591b}.line{fill:none;stroke-width:2}
.c0{stroke:#0969da;fill:#0969da}.c1{stroke:#c2591b;fill:#c2591b}.c2{stroke:#8250df;fill:#8250df}
.line{fill:none}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#3d444d}
.one{stroke:#9198a1}.whisker{stroke:#e6edf3}.good{fill:#3fb68b}.bad{fill:#f0883e}
.c0{stroke:#58a6ff;fill:#58a6ff}.c1{stroke:#f0883e;fill:#f0883e}.c2{stroke:#bc8cff;fill:#bc8cff}
.line{fill:none}}"""
WIDTH, LABEL, RIGHT = 920, 400, 60
BAR, GAP, TOP = 18, 8, 64
LEGEND = 310
OURS, THEIRS = "aerobee", "java"
LOWEST, HIGHEST = 0.05, 10.0
"""Ends of the axis of ratios, which is logarithmic: twice as much and half as much look alike."""
TICKS = (0.1, 0.2, 0.5, 1, 2, 5)


class Measured(TypedDict):
    """A row of the file of results, as far as it is drawn."""

    name: str
    turns: Mapping[str, Sequence[Mapping[str, float]]]


class Ratio(NamedTuple):
    """One bar: ours over Java's, the medians, and the ends of the turns."""

    name: str
    value: float
    lowest: float
    highest: float
    more_is_better: bool


def ratios(rows: Sequence[Measured], figure: str) -> list[Ratio]:
    """Of all rows in which both sides have the figure."""
    found = []
    for row in rows:
        turns = row["turns"]
        ours = [turn[figure] for turn in turns.get(OURS, ()) if turn.get(figure)]
        theirs = [turn[figure] for turn in turns.get(THEIRS, ()) if turn.get(figure)]
        if ours and theirs:
            pairs = [one / other for one, other in zip(ours, theirs, strict=False)]
            value = median(ours) / median(theirs)
            better = figure == "rate"
            found.append(Ratio(row["name"], value, min(pairs), max(pairs), better))
    return found


def at(ratio: float) -> float:
    """Where a ratio lies on the axis."""
    share = log10(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / log10(HIGHEST / LOWEST)
    return LABEL + share * (WIDTH - LABEL - RIGHT)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def page(height: float, title: str, parts: Sequence[str]) -> str:
    """The whole file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def beside_java(rows: Sequence[Measured], taken: str) -> str:
    """Rates, then p99, then CPU for each message: bars from 1, where both are alike."""
    parts = [
        text(8, 20, "Aerobee ÷ Java on the same machine", "title"),
        text(8, 38, taken, "faint"),
    ]
    y = float(TOP)
    for figure, title in (
        ("rate", "messages per second (more is better)"),
        ("p99", "99th percentile of the latency (less is better)"),
        ("cpu", "CPU of the broker per message (less is better)"),
    ):
        found = ratios(rows, figure)
        if figure == "rate":
            # In an open loop both have the rate that was offered.
            found = [one for one in found if "fixed rate" not in one.name and "/s," not in one.name]
        parts.append(text(8, y + 12, title, "title"))
        y += 22
        bottom = y + len(found) * (BAR + GAP)
        for tick in TICKS:
            parts.append(line(at(tick), y, at(tick), bottom, "one" if tick == 1 else "grid"))
            parts.append(text(at(tick), bottom + 12, f"{tick:g}", "faint", "middle"))
        for one in found:
            parts += bar(one, y)
            y += BAR + GAP
        y = bottom + 30
    return page(y, "Aerobee compared with the Java broker", parts)


def bar(one: Ratio, y: float) -> list[str]:
    """One bar with its name, its value and the ends of the turns."""
    better = one.value >= 1 if one.more_is_better else one.value <= 1
    left, right = sorted((at(1), at(one.value)))
    middle = y + BAR / 2
    return [
        text(LABEL - 10, middle + 4, one.name, "", "end"),
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="{BAR}" rx="2" '
        f'class="{"good" if better else "bad"}"/>',
        line(at(one.lowest), middle, at(one.highest), middle, "whisker"),
        text(WIDTH - RIGHT + 12, middle + 4, f"{one.value:.2f}"),
    ]


def growth(rows: Sequence[Measured], taken: str) -> str:
    """CPU per message with nothing, some and much of a kind, over that of an empty broker."""
    height, left, bottom, top = 320.0, 60.0, 270.0, 60.0
    parts = [
        text(8, 20, "CPU per message over that of an empty broker", "title"),
        text(8, 38, taken, "faint"),
    ]
    lines = [points(row) for row in rows if row["name"].startswith("rate with ")]
    lines = [one for one in lines if len(one) > 1]
    highest = max((value for one in lines for _, value in one), default=1.0) * 1.1
    for tick in (0.5, 1.0, 1.5, 2.0, 3.0):
        if tick <= highest:
            y = bottom - (bottom - top) * tick / highest
            parts.append(line(left, y, WIDTH - LEGEND - 10, y, "one" if tick == 1 else "grid"))
            parts.append(text(left - 8, y + 4, f"{tick:g}", "faint", "end"))
    step = (WIDTH - LEGEND - 60 - left) / 2
    for number, found in enumerate(lines):
        where = [
            (left + 20 + step * i, bottom - (bottom - top) * value / highest)
            for i, (_, value) in enumerate(found)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        parts.append(f'<polyline points="{path}" class="line c{number % 3}"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="c{number % 3}"/>' for x, y in where
        ]
        said = ", ".join(f"{name} {value:.2f}" for name, value in found[1:])
        place = f'x="{WIDTH - LEGEND}" y="{70 + 24 * number}" width="10" height="10"'
        parts.append(f'<rect {place} class="c{number % 3}"/>')
        parts.append(text(WIDTH - LEGEND + 16, 80 + 24 * number, said, ""))
    for i, words in enumerate(("empty", "some", "much")):
        parts.append(text(left + 20 + step * i, bottom + 18, words, "faint", "middle"))
    return page(height, "What grows with topics, connections and log", parts)


def points(row: Measured) -> list[tuple[str, float]]:
    """Name of a size and its CPU per message over that of the first."""
    medians = [(name, median(turn["cpu"] for turn in seen)) for name, seen in row["turns"].items()]
    return [(name, value / medians[0][1]) for name, value in medians]


@program
def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m bench.plots")
    parser.add_argument("result", type=results)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("docs/performance"))
    given = parser.parse_args()
    facts = given.result["facts"]
    rows = [row | {"name": current(row["name"])} for row in given.result["rows"]]
    taken = (
        f"{facts['date']}, {facts['machine'].split(', Linux')[0]}, {facts.get('note', '')}".rstrip(
            ", "
        )
    )
    given.directory.mkdir(parents=True, exist_ok=True)
    for name, draw in (("beside-java", beside_java), ("growth", growth)):
        path = given.directory / f"{name}.svg"
        path.write_text(draw(rows, taken))
        print(path)


if __name__ == "__main__":
    main()
