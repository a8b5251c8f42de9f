"""Counters over time: samples of the last minute, hour and day, for requests 315 and 28.

The existing counters are sampled every 10 s, 10 min and 1 h. A new counter began at 0 one period
before its first sample. Source: semantics §16 (StatsItem).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERIES_MAX: Final = 20_000
"""Pairs of counters that are sampled; about 0.8 KiB each."""


class Window(NamedTuple):
    """Number and distance of samples; they begin at `start` in the array of a series."""

    period_s: int
    size: int
    start: int


MINUTE: Final = Window(10, 7, 0)
HOUR: Final = Window(600, 7, 7)
DAY: Final = Window(3_600, 25, 14)
WINDOWS: Final = (MINUTE, HOUR, DAY)
SLOTS: Final = sum(window.size for window in WINDOWS)


class Growth(NamedTuple):
    """The growth of a pair of counters in a window, and the length of that."""

    messages: int = 0
    size_bytes: int = 0
    elapsed_s: int = 0

    @property
    def per_s(self) -> float:
        """Messages per second."""
        return self.messages / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second."""
        return self.size_bytes / self.elapsed_s if self.elapsed_s else 0.0


class Series:
    """The samples of messages and bytes, all windows in one array each."""

    __slots__ = ("messages", "seen", "size_bytes", "taken")

    def __init__(self) -> None:
        self.messages = array("q", bytes(8 * SLOTS))
        self.size_bytes = array("q", bytes(8 * SLOTS))
        self.taken = array("q", bytes(8 * len(WINDOWS)))
        """Samples so far, by window."""
        self.seen = 0
        """The number of the last sampling that had its counters."""

    def note(self, number: int, messages: int, size_bytes: int) -> None:
        """Add a sample to the window with this number."""
        window = WINDOWS[number]
        slot = window.start + self.taken[number] % window.size
        self.messages[slot] = messages
        self.size_bytes[slot] = size_bytes
        self.taken[number] += 1

    def growth(self, number: int) -> Growth:
        """From the oldest sample of a window to the newest."""
        window, count = WINDOWS[number], self.taken[number]
        if not count:
            return Growth()
        last = window.start + (count - 1) % window.size
        if count < window.size:
            elapsed_s = count * window.period_s
            return Growth(self.messages[last], self.size_bytes[last], elapsed_s)
        first = window.start + count % window.size
        return Growth(
            self.messages[last] - self.messages[first],
            self.size_bytes[last] - self.size_bytes[first],
            (window.size - 1) * window.period_s,
        )


class Samples:
    """Item and key → series. Beyond `limit` new series are not sampled."""

    def __init__(
        self,
        limit: int = SERIES_MAX,
        *,
        counted: Callable[[str, str], bool] = lambda item, key: False,
    ) -> None:
        """`counted`: whether a pair of counters without samples has counted anything."""
        self.limit = limit
        self.counted = counted
        self.series: dict[tuple[str, str], Series] = {}
        self.looks = 0

    def begin(self) -> None:
        """Begin a sampling of all counters; `forget` ends it."""
        self.looks += 1

    def note(self, item: str, key: str, window: Window, messages: int, size_bytes: int) -> None:
        """Add the current values of a pair of counters."""
        series = self.series.get((item, key))
        if series is None:
            if not messages or len(self.series) >= self.limit:
                return
            series = self.series[item, key] = Series()
        series.seen = self.looks
        series.note(WINDOWS.index(window), messages, size_bytes)

    def growth(self, item: str, key: str, window: Window = MINUTE) -> Growth | None:
        """The growth of a pair of counters, 0 before its first sample; None when it has not counted
        anything.
        """
        series = self.series.get((item, key))
        if series is None:
            return Growth() if self.counted(item, key) else None
        return series.growth(WINDOWS.index(window))

    def delete_topic(self, topic: str) -> None:
        """Remove the series of a deleted topic: the counters of one made anew begin at 0."""
        start = f"{topic}@"
        for name in [name for name in self.series if name[1] == topic or name[1].startswith(start)]:
            del self.series[name]

    def delete_group(self, group: str) -> None:
        """Remove the series of a deleted group."""
        end = f"@{group}"
        for name in [name for name in self.series if name[1].endswith(end)]:
            del self.series[name]

    def forget(self) -> Iterator[None]:
        """Remove the series without counters in this sampling; others may run in between."""
        for name, series in list(self.series.items()):
            if series.seen != self.looks and self.series.get(name) is series:
                del self.series[name]
            yield
