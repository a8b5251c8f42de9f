"""The state of one revive queue: its open check points, and how far it is done with."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.broker.pop.pop_records import Ack, CheckPoint, PopKey

__all__ = ["Open", "ReviveQueue"]


class Open:
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


class Due(NamedTuple):
    """A check point in the order of its time."""

    due_ms: int
    number: int
    entry: Open


class ReviveQueue:
    """The state of one revive queue, up to where it was read."""

    def __init__(self, topic: str, queue_id: int, position: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.position = position
        """The next offset to read."""
        self.open: dict[PopKey, Open] = {}
        self._by_place: deque[Open] = deque()
        self._by_time: list[Due] = []

    def add(self, point: CheckPoint, revive_offset: int) -> None:
        """Add a check point. One that was delivered twice counts once."""
        key = point.key
        if key in self.open:
            return
        entry = Open(point, revive_offset)
        if not entry.left:
            return
        self.open[key] = entry
        self._by_place.append(entry)
        heappush(self._by_time, Due(point.due_ms, revive_offset, entry))

    def acknowledge(self, ack: Ack) -> bool:
        """Apply an acknowledgement; whether its check point was open."""
        entry = self.open.get(ack.key)
        if entry is None:
            return False
        for offset in ack.all_offsets():
            entry.left.pop(offset, None)
        if not entry.left:
            self.close(entry)
        return True

    def close(self, entry: Open) -> None:
        """Remove a check point."""
        entry.done = True
        del self.open[entry.point.key]

    def due(self, until_ms: int) -> Open | None:
        """The open check point with the earliest time, if that is before `until_ms`."""
        by_time = self._by_time
        while by_time and by_time[0].entry.done:
            heappop(by_time)
        if by_time and by_time[0].due_ms < until_ms:
            return by_time[0].entry
        return None

    def put_back(self) -> list[Open]:
        """Check points, of which messages were put back, that a start would read again."""
        self.done_with()
        return [entry for entry in self._by_place if entry.put_back]

    def done_with(self) -> int:
        """All offsets before this one are finished."""
        by_place = self._by_place
        while by_place and by_place[0].done:
            by_place.popleft()
        return by_place[0].revive_offset if by_place else self.position
