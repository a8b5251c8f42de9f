"""The progress of each delay level: level → next queue offset, and the messages before it that the
disk could not read.

It is saved in `delayOffset.json`. A crash loses the changes since the last save, and those messages
are delivered again. Source: semantics §8 (ScheduleMessageService).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.saved.data_version import bumped, version_document, version_of
from aerobee.broker.saved.documents import mapping, unknown_fields
from aerobee.remoting.wire.bodies.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEFT_KEY: Final = "aerobeeUnreadable"
"""Ours: level → queue offsets of messages that wait until the disk can read them."""
OUR_KEYS: Final = frozenset({"dataVersion", "offsetTable", LEFT_KEY})
LEFT_MAX: Final = 1_000
"""Such messages of one level. A level with more waits: its disk reads nothing at all."""


class MovedOffset(NamedTuple):
    """An offset outside its queue, and the end of the queue that replaced it."""

    level: int
    delay_offset: int
    queue_offset: int


class DelayOffsetTable:
    """Invariant: `changes` increases with every change, so an unchanged table need not be saved."""

    def __init__(self, *, version_step: int = 200, now_ms: int = 0) -> None:
        self.offsets: dict[int, int] = {}
        self.left: dict[int, set[int]] = {}
        """The messages before these offsets that are still to be delivered, where there are any."""
        self.version = DataVersion(timestamp=now_ms)
        self.version_step = version_step
        self.deliveries = 0
        self.changes = 0
        self.extra: dict[str, Any] = {}

    def offset(self, level: int) -> int:
        """The next message of a level."""
        return self.offsets.get(level, 0)

    def delivered(self, level: int, at: int, following: int, count: int, now_ms: int) -> None:
        """`count` messages from `at` on were delivered; the next one is at `following`.

        The version changes with every `version_step`th message.
        """
        steps = self.deliveries // self.version_step
        self.deliveries += count
        for _ in range(self.deliveries // self.version_step - steps):
            self.version = bumped(self.version, now_ms)
        self.go_on(level, at, following)

    def go_on(self, level: int, at: int, following: int) -> None:
        """The messages from `at` to before `following` were deleted or delivered."""
        left = self.left.get(level, set())
        if at not in left:
            self.move(level, following)
            return
        left.remove(at)
        if not left:
            del self.left[level]
        self.changes += 1

    def leave(self, level: int, at: int) -> bool:
        """Continue behind a message that the disk cannot read now; False: there are too many."""
        left = self.left.get(level, set())
        if len(left) >= LEFT_MAX:
            return False
        self.left[level] = left | {at}
        self.move(level, at + 1)
        return True

    def move(self, level: int, queue_offset: int) -> None:
        """Continue elsewhere."""
        self.offsets[level] = queue_offset
        self.changes += 1

    def clamp(
        self, min_offset: Callable[[int], int], max_offset: Callable[[int], int]
    ) -> list[MovedOffset]:
        """Move each offset outside its queue to the nearer end; returns those that moved.

        Called once after recovery. Both functions take a level.
        """
        moved: list[MovedOffset] = []
        for level, at in self.offsets.items():
            inside = min(max(at, min_offset(level)), max_offset(level))
            if inside != at:
                moved.append(MovedOffset(level, at, inside))
        for level, _, inside in moved:
            self.move(level, inside)
        # Behind the end of a queue that was cut there are no messages any more.
        self._take_left(self.left)
        return moved

    def merge(self, document: Mapping[str, Any]) -> None:
        """Take the progress of a master where it is further. Raises: ValueError for no table."""
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        self.version = version_of(document)
        for level, at in offsets.items():
            if at > self.offset(level):
                self.move(level, at)
        self._take_left_of(document)

    def replace(self, document: Mapping[str, Any]) -> None:
        """Take the progress of a master, even where it is less: what this broker delivered beyond
        that was cut off. Raises: ValueError for no table.
        """
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        self.version = version_of(document)
        if offsets != self.offsets:
            self.offsets = offsets
            self.changes += 1
        self._take_left_of(document)

    def _take_left_of(self, document: Mapping[str, Any]) -> None:
        """Take the messages that a master has left; one of Java has none, and knows of none."""
        if LEFT_KEY in document:
            self._take_left(_left_in(document))

    def _take_left(self, left: Mapping[int, set[int]]) -> None:
        """Take those before the offset of their level: it comes to the others by itself."""
        before = {
            level: {at for at in offsets if at < self.offset(level)}
            for level, offsets in left.items()
        }
        kept = {level: offsets for level, offsets in before.items() if offsets}
        self.changes += kept != self.left
        self.left = kept

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `delayOffset.json`.

        Raises: ValueError when it is not one; the table is unchanged then.
        """
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        left = _left_in(document)
        self.version = version_of(document)
        self.offsets = offsets
        self.left = left
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """The content of `delayOffset.json`, detached: it may be encoded in a thread."""
        left = {level: sorted(offsets) for level, offsets in self.left.items()}
        return {
            **self.extra,
            "dataVersion": version_document(self.version),
            "offsetTable": dict(self.offsets),
            **({LEFT_KEY: left} if left else {}),
        }


def _left_in(document: Mapping[str, Any]) -> dict[int, set[int]]:
    """The messages that a document says were left. Raises: ValueError."""
    left: dict[int, set[int]] = {}
    for level, offsets in mapping(document, LEFT_KEY).items():
        if not isinstance(offsets, list):
            raise ValueError(f"{LEFT_KEY} of level {level} is no list")
        left[int(level)] = {int(at) for at in offsets}
    return left
