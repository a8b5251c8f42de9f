"""Pictures as SVG text: lines or stacked areas over time, and bars. Pure: numbers in, markup out.

Colours are CSS classes of the page (`s0` … for things, `q0` … for an order), so the same picture
is light or dark. What a picture shows is also in its tooltips; nothing needs a script.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "WIDE",
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

WIDTH, WIDE, HEIGHT = 600, 1_200, 260
"""Units of a picture in half of the page, and over all of it: about a pixel each."""
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 28
"""Room around the plot for the labels of its axes."""
BAR_HEIGHT, BAR_GAP, BAR_NAME, BAR_TEXT = 18, 10, 210, 150
"""A bar, what is between two, and the room for names before and texts behind them."""
NAME_MAX = 34
TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
LABELS_MAX = 7


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
    if top <= 0:
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
        (at_ms, datetime.fromtimestamp(at_ms / 1_000, UTC).strftime(pattern))
        for at_ms in range(begin, last_ms + 1, step_s * 1_000)
    ]


class _Plot(NamedTuple):
    """Where a time and a value lie in the picture."""

    first_ms: int
    last_ms: int
    top: float
    log: bool
    width: int

    @property
    def right(self) -> int:
        return self.width - RIGHT

    def x(self, at_ms: float) -> float:
        span = max(1, self.last_ms - self.first_ms)
        return LEFT + (at_ms - self.first_ms) / span * (self.right - LEFT)

    def y(self, value: float) -> float:
        height = HEIGHT - TOP - BOTTOM
        share = value / self.top
        if self.log:
            # Below 1 there is nothing worth a picture: everything fast lies on the ground.
            share = math.log10(max(value, 1.0)) / math.log10(self.top)
        return HEIGHT - BOTTOM - max(0.0, share) * height


def _log_ticks(top: float) -> list[float]:
    """1, 10, 100 … up to the power of ten above `top`."""
    return [10.0**power for power in range(max(1, math.ceil(math.log10(max(top, 1.1)))) + 1)]


# ── Pictures ──


def lines(
    times_ms: Sequence[int],
    series: Sequence[Series],
    text: Callable[[float], str],
    title: str,
    *,
    stacked: bool = False,
    log: bool = False,
    width: int = WIDTH,
) -> str:
    """Series over time, as lines or as areas on top of each other.

    `times_ms` ascend, with a value of each series for each. `title` is for those who cannot see.
    """
    curves = _stack(series) if stacked else [list(one.values) for one in series]
    highest = max((value for curve in curves for value in curve if value is not None), default=0)
    ticks = _log_ticks(highest) if log else nice_ticks(highest)
    plot = _Plot(times_ms[0], times_ms[-1], ticks[-1], log, width)
    parts = [_frame(plot, ticks, text)]
    floor: list[float | None] = [0.0] * len(times_ms)
    for one, curve in zip(series, curves, strict=True):
        if stacked:
            parts.append(_area(plot, times_ms, curve, floor, one.style))
            floor = curve
        parts.append(_line(plot, times_ms, curve, one.style))
    parts.append(_tooltips(plot, times_ms, series, text))
    return _svg(width, HEIGHT, title, "".join(parts))


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


def _frame(plot: _Plot, ticks: Sequence[float], text: Callable[[float], str]) -> str:
    """Grid lines and the labels of both axes."""
    parts = []
    for value in ticks:
        y = plot.y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{plot.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        label = escape(text(value))
        parts.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{label}</text>')
    for at_ms, label in time_ticks(plot.first_ms, plot.last_ms):
        parts.append(f'<text class="mid" x="{plot.x(at_ms):.1f}" y="{HEIGHT - 8}">{label}</text>')
    return "".join(parts)


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
            dots.append(f'<circle class="{style} dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
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
    width = (plot.right - LEFT) / max(1, len(times_ms) - 1)
    strips = []
    for place, at_ms in enumerate(times_ms):
        when = datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        said = [when] + [
            f"{one.name}: {'–' if value is None else text(value)}"
            for one in series
            for value in [one.values[place]]
        ]
        strips.append(
            f'<rect class="hit" x="{plot.x(at_ms) - width / 2:.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(chr(10).join(said))}</title></rect>'
        )
    return "".join(strips)


def bars(rows: Sequence[Bar], title: str) -> str:
    """Bars that lie, in the order given, with their names before and their texts behind them."""
    room = WIDTH - BAR_NAME - BAR_TEXT
    longest = max((row.value for row in rows), default=0) or 1
    parts = []
    for place, row in enumerate(rows):
        y = place * (BAR_HEIGHT + BAR_GAP)
        length = max(2.0 if row.value else 0.0, row.value / longest * room)
        middle = y + BAR_HEIGHT - 5
        name = row.name if len(row.name) <= NAME_MAX else f"{row.name[: NAME_MAX - 1]}…"
        parts.append(
            f"<g><title>{escape(row.name)}: {escape(row.text)}</title>"
            f'<text class="end name" x="{BAR_NAME - 10}" y="{middle}">{escape(name)}</text>'
            f'<rect class="{row.style} bar" x="{BAR_NAME}" y="{y}" width="{length:.1f}" '
            f'height="{BAR_HEIGHT}" rx="3"/>'
            f'<text x="{BAR_NAME + length + 8:.1f}" y="{middle}">{escape(row.text)}</text></g>'
        )
    return _svg(WIDTH, max(1, len(rows)) * (BAR_HEIGHT + BAR_GAP), title, "".join(parts))


def _svg(width: int, height: int, title: str, inside: str) -> str:
    """A picture as wide as the page lets it be."""
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{inside}</svg>'
