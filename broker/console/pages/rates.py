"""The rates at which an account has looked in the last hour, for the chart of its next page.

Each account has its own: brokers do not tell all of them the same.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aerobee.broker.console.pages import states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.console.looks.snapshot import Snapshot

TICK_S: Final = 2.0
"""Between two points while somebody looks."""
POINTS_MAX: Final = 1_800
"""Kept of an account: an hour."""
DRAWN_MAX: Final = 240
"""Of a chart: all of an hour would be most of the page, and hold the loop."""
ACCOUNTS_MAX: Final = 32
"""Whose rates are kept; the account that looked longest ago is left out."""
MILLI: Final = 1_000


Point: TypeAlias = tuple[float, float, float]
"""A time in seconds, and the rates in and out."""


class Rates:
    """The figures that the overview has shown lately."""

    def __init__(self) -> None:
        self._points: dict[object, deque[Point]] = {}

    def note(self, account: object, snapshot: Snapshot) -> None:
        """Keep the figures of a snapshot, once."""
        at = snapshot.at_ms / MILLI
        figures = snapshot.overview
        points = self._points.pop(account, None)
        if points is None:
            points = deque(maxlen=POINTS_MAX)
        self._points[account] = points
        if len(self._points) > ACCOUNTS_MAX:
            del self._points[next(iter(self._points))]
        if points and at - points[-1][0] < TICK_S / 2:
            return
        if figures["in_per_s"] is not None and figures["out_per_s"] is not None:
            points.append((at, figures["in_per_s"], figures["out_per_s"]))

    def chart(self, account: object) -> dict[str, Any]:
        """The lines of the chart."""
        return states.drawn(thinned([*self._points.get(account, ())]))


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most DRAWN_MAX points: of several the last time, and the mean of the rates."""
    each = -(-len(points) // DRAWN_MAX) or 1
    parts = [points[at : at + each] for at in range(0, len(points), each)]
    return [
        (part[-1][0], fmean(ins for _, ins, _ in part), fmean(outs for _, _, outs in part))
        for part in parts
    ]
