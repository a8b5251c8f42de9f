"""The rates that anybody has looked at in the last hour, for the chart of the next who looks."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.console.pages import states

if TYPE_CHECKING:
    from aerobee.broker.console.looks.snapshot import Snapshot

TICK_S: Final = 2.0
"""Between two points while somebody looks."""
POINTS_MAX: Final = 1_800
"""Of the chart: an hour."""
MILLI: Final = 1_000


class Rates:
    """The figures that the overview has shown lately."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float, float]] = deque(maxlen=POINTS_MAX)

    def note(self, snapshot: Snapshot) -> None:
        """Keep the figures of a snapshot, once."""
        at = snapshot.at_ms / MILLI
        figures = snapshot.overview
        if self._points and at - self._points[-1][0] < TICK_S / 2:
            return
        if figures["in_per_s"] is not None and figures["out_per_s"] is not None:
            self._points.append((at, figures["in_per_s"], figures["out_per_s"]))

    def chart(self) -> dict[str, Any]:
        """The lines of the chart."""
        return states.drawn([*self._points])
