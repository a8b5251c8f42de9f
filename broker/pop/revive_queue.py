"""The state of one revive queue: its open check points, and how far it is done with."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET

if TYPE_CHECKING:
    from aerobee.broker.pop.pop_records import Ack, CheckPoint, PopKey

AHEAD_MAX: Final = 10_000
"""Acknowledged messages that are remembered without a check point; the oldest are forgotten."""


class OpenCheckPoint:
    """A check point with unacknowledged messages."""

    __slots__ = ("done", "left", "point", "put_back", "revive_offset")

    def __init__(self, point: CheckPoint, revive_offset: int) -> None:
        self.point = point
        self.revive_offset = revive_offset
        self.left = dict.fromkeys(point.offsets())
        """Unacknowledged queue offsets."""
        self.put_back: list[int] = []
        """Queue offsets of which a copy is stored. Not those with a later check point: where that
        has this one's key, an acknowledgement would be for both.
        """
        self.done = False

    def join(self, point: CheckPoint) -> None:
        """Take the messages of another check point with this key, which is not this one once more.

        It is of a pop of the same moment, which a reset began at the same place, or of a message
        that could not be put back before.
        """
        own, offsets = self.point, point.offsets()
        if point.due_ms == own.due_ms and set(offsets) <= set(own.offsets()):
            return
        self.left.update(dict.fromkeys(offsets))
        if own.log_end is not UNSET:
            own.log_end = UNSET if point.log_end is UNSET else max(own.log_end, point.log_end)


class DueCheckPoint(NamedTuple):
    """A check point in the order of its time."""

    due_ms: int
    number: int
    entry: OpenCheckPoint


class ReviveQueue:
    """The state of one revive queue, up to where it was read."""

    def __init__(self, topic: str, queue_id: int, position: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.position = position
        """The next offset to read."""
        self.open: dict[PopKey, OpenCheckPoint] = {}
        self._ahead: dict[tuple[PopKey, int], None] = {}
        """Messages that were acknowledged in front of their check point, as it may be where that
        went back to the timers: pop and queue offset.
        """
        self.latest_ms = 0
        """No open check point is due later."""
        self._by_place: deque[OpenCheckPoint] = deque()
        self._by_time: list[DueCheckPoint] = []

    def add(self, point: CheckPoint, revive_offset: int) -> None:
        """Add a check point. A check point that was delivered twice counts once."""
        key = point.key
        if (known := self.open.get(key)) is not None:
            known.join(point)
            return
        entry = OpenCheckPoint(point, revive_offset)
        if self._ahead:
            for offset in [
                acknowledged for acknowledged in entry.left if (key, acknowledged) in self._ahead
            ]:
                del self._ahead[key, offset], entry.left[offset]
        if not entry.left:
            return
        self.open[key] = entry
        self.latest_ms = max(self.latest_ms, point.due_ms)
        self._by_place.append(entry)
        heappush(self._by_time, DueCheckPoint(point.due_ms, revive_offset, entry))

    def acknowledge(self, ack: Ack) -> bool:
        """Apply an acknowledgement; whether its check point was open."""
        entry = self.open.get(ack.key)
        if entry is None:
            key, offsets = ack.key, ack.all_offsets()
            self._ahead.update(((key, offset), None) for offset in offsets[-AHEAD_MAX:])
            for oldest in list(islice(self._ahead, max(0, len(self._ahead) - AHEAD_MAX))):
                del self._ahead[oldest]
            return False
        for offset in ack.all_offsets():
            entry.left.pop(offset, None)
        if not entry.left:
            self.close(entry)
        return True

    def close(self, entry: OpenCheckPoint) -> None:
        """Remove a check point."""
        entry.done = True
        del self.open[entry.point.key]

    def due(self, until_ms: int) -> OpenCheckPoint | None:
        """The open check point with the earliest time, if that is before `until_ms`."""
        by_time = self._by_time
        while by_time and by_time[0].entry.done:
            heappop(by_time)
        if by_time and by_time[0].due_ms < until_ms:
            return by_time[0].entry
        return None

    def due_beyond(self, time_ms: int) -> list[OpenCheckPoint]:
        """The open check points that are due later, in the order of the queue."""
        if self.latest_ms <= time_ms:
            return []
        self.latest_ms = max((entry.point.due_ms for entry in self.open.values()), default=0)
        return [entry for entry in self.open.values() if entry.point.due_ms > time_ms]

    def put_back(self) -> list[OpenCheckPoint]:
        """Check points, of which messages were put back, that a start would read again."""
        self.done_with()
        return [entry for entry in self._by_place if entry.put_back]

    def done_with(self) -> int:
        """All offsets before this one are finished."""
        by_place = self._by_place
        while by_place and by_place[0].done:
            by_place.popleft()
        return by_place[0].revive_offset if by_place else self.position
