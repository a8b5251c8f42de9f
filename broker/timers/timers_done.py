"""Which timers a master has delivered, as its slave knows it: for when it takes the master's place.

A slave has the wheel topic and no wheel. So as the next master it reads the topic from its begin,
and without this it would deliver every timer again that is still in the log. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.saved.documents import unknown_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.store.format.timer import TimerCheck

OUR_KEYS: Final = frozenset({"queueOffset", "readTime"})


class TimersDone:
    """The check point of a master, saved in `timersDone.json`; nothing of a broker that never was a
    slave.

    Invariant: the copies of the timers that it covers are in this log.
    """

    def __init__(self) -> None:
        self.queue_offset = 0
        """The master has put all before it in the wheel topic into a slot, or delivered it."""
        self.read_time_ms = 0
        """Slots of an earlier time were delivered."""
        self.changes = 0
        self.extra: dict[str, Any] = {}

    def covers(self, queue_offset: int, out_ms: int) -> bool:
        """Whether the timer at this place of the wheel topic, with this slot, was delivered. Hot.

        A slot has its own time, or an earlier one from which the timer was put in again.
        """
        return queue_offset < self.queue_offset and out_ms < self.read_time_ms

    def take(self, check: TimerCheck) -> None:
        """Take the check point of the master, once this log has what the master put before it.

        A check point that says less is left out: the next master reads the topic from its begin,
        and what an earlier one has delivered stays delivered.
        """
        place = check.queue_offset, check.last_read_time_ms
        if place > (self.queue_offset, self.read_time_ms):
            self.replace(check)

    def replace(self, check: TimerCheck) -> None:
        """Take the check point of the master as it is, also where it says less: what this broker
        knew of an earlier master may be of copies that were cut from its log.
        """
        place = check.queue_offset, check.last_read_time_ms
        if place != (self.queue_offset, self.read_time_ms):
            self.queue_offset, self.read_time_ms = place
            self.changes += 1

    def at_least(self, check: TimerCheck) -> TimerCheck:
        """The check point of this broker, or what it was told before it was the master, if that is
        more.
        """
        if (check.queue_offset, check.last_read_time_ms) >= (self.queue_offset, self.read_time_ms):
            return check
        return check._replace(
            last_read_time_ms=self.read_time_ms,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
        )

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace it by a decoded `timersDone.json`. Raises: ValueError when it is malformed."""
        places = document.get("queueOffset"), document.get("readTime")
        if not all(type(place) is int for place in places):
            raise ValueError(f"queueOffset and readTime are {places}, not two numbers")
        self.queue_offset, self.read_time_ms = places  # type: ignore[assignment]  # just checked
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """The content of `timersDone.json`."""
        return {**self.extra, "queueOffset": self.queue_offset, "readTime": self.read_time_ms}
