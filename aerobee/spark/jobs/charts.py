"""Charts of the report as inline SVG, drawn by matplotlib, and numbers formatted for people.

Colours of a chart are CSS variables of the page, so that they follow its light or dark scheme. No
display, font or network is needed, and matplotlib's global state is not changed.
"""

from __future__ import annotations

import re
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Any

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

COLOURS = {
    "#2f6fde": "c0",
    "#d9820f": "c1",
    "#138a6b": "c2",
    "#7a52d6": "c3",
    "#c9388a": "c4",
    "#98a2b3": "rest",
    "#667085": "soft",
    "#e6e3dc": "edge",
}
"""The CSS variable of each colour in a chart."""
SERIES = tuple(COLOURS)[:6]
SOFT, EDGE = tuple(COLOURS)[6:]
WIDTH, HEIGHT, BAR_HEIGHT = 8.0, 2.6, 0.3
"""Inches; the page scales them."""
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), SOFT),
    "axes.edgecolor": EDGE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": EDGE,
}


def over_time(
    times_ms: Sequence[int],
    series: Mapping[str, Sequence[float | None]],
    text: Callable[[float], str],
    *,
    stacked: bool = False,
    log: bool = False,
) -> str:
    """Draw lines over time, or stacked areas; None is a gap. `text` formats a value."""
    with _drawing(HEIGHT) as (figure, axes):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        at = [datetime.fromtimestamp(ms / 1_000, UTC) for ms in times_ms]
        values = [[float("nan") if one is None else one for one in row] for row in series.values()]
        if stacked:
            axes.stackplot(at, values, labels=list(series), colors=SERIES, alpha=0.8)
        else:
            for name, row, colour in zip(series, values, SERIES, strict=False):
                axes.plot(at, row, label=name, color=colour, marker="o" if len(at) < 3 else "")
        if log:
            axes.set_yscale("symlog", linthresh=1.0)
        else:
            axes.set_ylim(bottom=0)
        locator = AutoDateLocator(tz=UTC)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        axes.yaxis.set_major_formatter(lambda value, _place: text(value))
        axes.grid(axis="y")
        axes.legend(loc="upper left", ncols=6, frameon=False, bbox_to_anchor=(0, 1.15))
        return _svg(figure)


def bars(rows: Sequence[tuple[str, float, str]], colour: int = 0) -> str:
    """Draw a bar for each name, of a length, with a label behind it; the first on top."""
    with _drawing(0.3 + BAR_HEIGHT * len(rows)) as (figure, axes):
        places = range(len(rows))
        drawn = axes.barh(places, [max(0.0, value) for _, value, _ in rows], color=SERIES[colour])
        axes.bar_label(drawn, [said for _, _, said in rows], padding=4)
        axes.set_yticks(places, [name for name, _, _ in rows])
        axes.invert_yaxis()
        axes.set_axisbelow(True)
        axes.xaxis.set_visible(False)
        axes.margins(x=0.2)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        return _svg(figure)


@contextmanager
def _drawing(height: float) -> Iterator[tuple[Any, Any]]:
    """A figure without a backend. Raises: ConfigurationError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigurationError(
            f"matplotlib is not here ({error}); install it with: pip install 'aerobee[spark]'"
        ) from error
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def _svg(figure: Any) -> str:
    """The figure as an element of an HTML page, without ids that it does not refer to itself."""
    out = StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings():
        # Glyphs that matplotlib's font lacks: the reader's browser has them.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(out, format="svg", transparent=True, metadata=metadata)
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r'<g id="[^"]*"', "<g", re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawn))
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    tag, picture = drawn[: drawn.index(">")], drawn[drawn.index(">") :]
    drawn = re.sub(r' (width|height)="[^"]*"', "", tag) + picture
    for colour, name in COLOURS.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    return drawn


# ── Numbers for people ──


def count_text(value: float) -> str:
    """Format a count or rate with three digits and a unit: 0.25, 12.3k, 4M."""
    return _scaled(value, ((1e9, "G"), (1e6, "M"), (1e3, "k")), "")


def bytes_text(value: float) -> str:
    """Format bytes in binary units: 512 B, 1.5 MiB."""
    units = ((4, " TiB"), (3, " GiB"), (2, " MiB"), (1, " KiB"))
    return _scaled(value, tuple((1_024.0**power, unit) for power, unit in units), " B")


def duration_text(value_ms: float) -> str:
    """Format milliseconds as ms, s, min, h or d."""
    units = ((86_400_000, " d"), (3_600_000, " h"), (60_000, " min"), (1_000, " s"))
    return _scaled(value_ms, units, " ms")


def _scaled(value: float, units: Sequence[tuple[float, str]], least: str) -> str:
    """Format three significant digits without trailing zeros, in the largest unit that fits."""
    one, unit = next((found for found in units if abs(value) >= found[0]), (1.0, least))
    scaled = value / one
    digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    text = f"{scaled:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
