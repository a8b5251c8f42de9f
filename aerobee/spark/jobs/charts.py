"""Pictures as markup: lines or stacked areas over time (SVG), and bars. Pure: numbers in, text out.

Colours are CSS classes of the page (`s0` … for things, `q0` … for an order), so the same picture
is light or dark. Curves and bars stretch with the page, texts keep their size: places along the
width are shares of it. What a picture shows is also in its tooltips; nothing needs a script.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Bar",
    "Series",
    "bars",
    "bytes_text",
    "count_text",
    "duration_text",
    "lines",
    "nice_ticks",
    "time_ticks",
]

WIDTH, HEIGHT = 1_000, 220
"""Units of a plot: its width is stretched to what there is, its height is in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 28
"""Pixels around the plot for the labels of its axes."""
TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
DAY_MS = 86_400_000
NOTHING = 1e-9
"""A value as small as that is none."""
LABELS_MAX = 7
LOG_TICKS = (
    *(1.0, 10.0, 100.0, 1_000.0, 10_000.0, 60_000.0, 600_000.0, 3_600_000.0, 36_000_000.0),
    *(10.0**power * DAY_MS for power in range(8)),
)
"""Lines of a log scale: times in ms that are round for people."""


class Series(NamedTuple):
    """One line: `values` has a number or None (a gap) for each time; `style` is a CSS class."""

    name: str
    values: Sequence[float | None]
    style: str


class Bar(NamedTuple):
    """One bar: its name, its length, and what is written behind it."""

    name: str
    value: float
    text: str
    style: str = "s0"


# ── Numbers for people ──


def count_text(value: float) -> str:
    """A count or rate, three digits and a unit: 0.25, 12.3k, 4M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{_three(value / limit)}{unit}"
    return _three(value)


def bytes_text(value: float) -> str:
    """Bytes in binary units: 512 B, 1.5 MiB."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1_024**power:
            return f"{_three(value / 1_024**power)} {unit}"
    return f"{_three(value)} B"


def duration_text(value_ms: float) -> str:
    """Milliseconds as ms, s, min, h or d."""
    for limit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(value_ms) >= limit_ms:
            return f"{_three(value_ms / limit_ms)} {unit}"
    return f"{_three(value_ms)} ms"


def _three(value: float) -> str:
    """Three digits that count, no zeros behind them."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ── Axes ──


def nice_ticks(top: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to `top` or just above, about `count` steps of 1, 2 or 5 · 10ⁿ."""
    if top < NOTHING:
        return [0.0, 1.0]
    rough = top / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(
        step
        for factor in (1, 2, 5, 10)
        # A hair of slack: 0.3 / 3 is not quite 0.1.
        if (step := factor * magnitude) >= rough * (1 - 1e-9)
    )
    return [number * step for number in range(math.ceil(top / step - 1e-9) + 1)]


def time_ticks(first_ms: int, last_ms: int) -> list[tuple[int, str]]:
    """Round instants between two, with labels in UTC; at most LABELS_MAX and one."""
    span_s = max(1, (last_ms - first_ms) // 1_000)
    step_s = next((step for step in TIME_STEPS_S if span_s / step <= LABELS_MAX), TIME_STEPS_S[-1])
    pattern = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < 86_400 else "%d %b"
    begin = -(-first_ms // (step_s * 1_000)) * step_s * 1_000
    return [
        # Midnight is said by the day that begins.
        (at_ms, at.strftime(pattern if at_ms % DAY_MS else "%d %b"))
        for at_ms in range(begin, last_ms + 1, step_s * 1_000)
        for at in [datetime.fromtimestamp(at_ms / 1_000, UTC)]
    ]


class _Plot(NamedTuple):
    """Where a time and a value lie in the plot."""

    first_ms: int
    last_ms: int
    top: float
    log: bool

    def share(self, at_ms: float) -> float:
        """How far along the width a time is, from 0 to 1."""
        return (at_ms - self.first_ms) / max(1, self.last_ms - self.first_ms)

    def x(self, at_ms: float) -> float:
        return self.share(at_ms) * WIDTH

    def y(self, value: float) -> float:
        share = value / self.top
        if self.log:
            # Below 1 there is nothing worth a picture: everything fast lies on the ground.
            share = math.log10(max(value, 1.0)) / math.log10(self.top)
        return HEIGHT - max(0.0, share) * HEIGHT


def _log_ticks(top: float) -> list[float]:
    """1, 10, 100 … up to the first that is not below `top`; at least two."""
    above = next((place for place, tick in enumerate(LOG_TICKS) if tick >= top), len(LOG_TICKS))
    return list(LOG_TICKS[: max(above, 1) + 1])


# ── Pictures ──


def lines(
    times_ms: Sequence[int],
    series: Sequence[Series],
    text: Callable[[float], str],
    title: str,
    *,
    stacked: bool = False,
    log: bool = False,
) -> str:
    """Series over time, as lines or as areas on top of each other.

    `times_ms` ascend, with a value of each series for each. `title` is for those who cannot see.
    """
    curves = _stack(series) if stacked else [list(one.values) for one in series]
    highest = max((value for curve in curves for value in curve if value is not None), default=0)
    ticks = _log_ticks(highest) if log else nice_ticks(highest)
    plot = _Plot(times_ms[0], times_ms[-1], ticks[-1], log)
    parts = []
    floor: list[float | None] = [0.0] * len(times_ms)
    for one, curve in zip(series, curves, strict=True):
        if stacked:
            parts.append(_area(plot, times_ms, curve, floor, one.style))
            floor = curve
        parts.append(_line(plot, times_ms, curve, one.style))
    parts.append(_tooltips(plot, times_ms, series, text))
    label = escape(title)
    return (
        f'<div class="plot" role="img" aria-label="{label}" '
        f'style="height:{TOP + HEIGHT + BOTTOM}px">{_values(plot, ticks, text)}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'style="{_inside(TOP, HEIGHT)}">{"".join(parts)}</svg>{_times(plot)}</div>'
    )


def _inside(top: int, height: int) -> str:
    """The style of what lies between the axes of a plot."""
    return f"left:{LEFT}px;top:{top}px;width:calc(100% - {LEFT + RIGHT}px);height:{height}px"


def _stack(series: Sequence[Series]) -> list[list[float | None]]:
    """The upper edge of each area; a gap counts as nothing."""
    heights = [0.0] * len(series[0].values) if series else []
    edges: list[list[float | None]] = []
    for one in series:
        heights = [
            height + (value or 0.0) for height, value in zip(heights, one.values, strict=True)
        ]
        edges.append(list(heights))
    return edges


def _values(plot: _Plot, ticks: Sequence[float], text: Callable[[float], str]) -> str:
    """The axis of values: a line over the whole width for each, and its label."""
    parts = []
    for value in ticks:
        y = TOP + plot.y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(text(value))}</text>'
        )
    return f'<svg style="left:0;top:0;width:100%;height:100%">{"".join(parts)}</svg>'


def _times(plot: _Plot) -> str:
    """The axis of times; every other label gives way where there is little room."""
    labels = "".join(
        f'<text class="mid{" odd" if place % 2 else ""}" x="{plot.share(at_ms):.2%}" '
        f'y="{BOTTOM - 8}">{label}</text>'
        for place, (at_ms, label) in enumerate(time_ticks(plot.first_ms, plot.last_ms))
    )
    return f'<svg style="{_inside(TOP + HEIGHT, BOTTOM)}">{labels}</svg>'


def _line(plot: _Plot, times_ms: Sequence[int], values: Sequence[float | None], style: str) -> str:
    """A line that is interrupted at gaps; a value between two gaps is a dot."""
    words, dots, pen_down = [], [], False
    for place, (at_ms, value) in enumerate(zip(times_ms, values, strict=True)):
        if value is None:
            pen_down = False
            continue
        x, y = plot.x(at_ms), plot.y(value)
        words.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        alone = not pen_down and (place + 1 == len(values) or values[place + 1] is None)
        if alone:
            # A line of no length has round ends, however the plot is stretched.
            dots.append(f'<path class="{style} dot" d="M{x:.1f} {y:.1f}h0"/>')
        pen_down = True
    return f'<path class="{style} line" d="{" ".join(words)}"/>' + "".join(dots)


def _area(
    plot: _Plot,
    times_ms: Sequence[int],
    upper: Sequence[float | None],
    lower: Sequence[float | None],
    style: str,
) -> str:
    """What is between two curves."""
    way = [(at, value or 0.0) for at, value in zip(times_ms, upper, strict=True)]
    way += reversed([(at, value or 0.0) for at, value in zip(times_ms, lower, strict=True)])
    points = " ".join(f"{plot.x(at):.1f},{plot.y(value):.1f}" for at, value in way)
    return f'<polygon class="{style} area" points="{points}"/>'


def _tooltips(
    plot: _Plot,
    times_ms: Sequence[int],
    series: Sequence[Series],
    text: Callable[[float], str],
) -> str:
    """An unseen strip per time that says all values of it."""
    width = WIDTH / max(1, len(times_ms) - 1)
    strips = []
    for place, at_ms in enumerate(times_ms):
        when = datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        said = [when] + [
            f"{one.name}: {'–' if value is None else text(value)}"
            for one in series
            for value in [one.values[place]]
        ]
        strips.append(
            f'<rect class="hit" x="{plot.x(at_ms) - width / 2:.1f}" y="0" width="{width:.1f}" '
            f'height="{HEIGHT}"><title>{escape(chr(10).join(said))}</title></rect>'
        )
    return "".join(strips)


def bars(rows: Sequence[Bar], title: str) -> str:
    """Bars that lie, in the order given, each below its name and its text."""
    longest = max((row.value for row in rows), default=0) or 1
    parts = []
    for row in rows:
        # What is little can still be seen.
        length = max(0.5 if row.value else 0.0, row.value / longest * 100)
        name, text = escape(row.name), escape(row.text)
        parts.append(
            f'<li title="{name}: {text}"><span class="name">{name}</span><span>{text}</span>'
            f'<i class="{row.style}" style="width:{length:.1f}%"></i></li>'
        )
    return f'<ul class="bars" aria-label="{escape(title)}">{"".join(parts)}</ul>'
