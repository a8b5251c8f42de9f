"""The progress of each delay level: level → next queue offset.

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

OUR_KEYS: Final = frozenset({"dataVersion", "offsetTable"})


class MovedOffset(NamedTuple):
    """An offset outside its queue, and the end of the queue that replaced it."""

    level: int
    delay_offset: int
    queue_offset: int


class DelayOffsetTable:
    """Invariant: `changes` increases with every change, so an unchanged table need not be saved."""

    def __init__(self, *, version_step: int = 200, now_ms: int = 0) -> None:
        self.offsets: dict[int, int] = {}
        self.version = DataVersion(timestamp=now_ms)
        self.version_step = version_step
        self.deliveries = 0
        self.changes = 0
        self.extra: dict[str, Any] = {}

    def offset(self, level: int) -> int:
        """The next message of a level."""
        return self.offsets.get(level, 0)

    def delivered(self, level: int, queue_offset: int, count: int, now_ms: int) -> None:
        """`count` messages were delivered; the next one is at `queue_offset`.

        The version changes with every `version_step`th message.
        """
        steps = self.deliveries // self.version_step
        self.deliveries += count
        for _ in range(self.deliveries // self.version_step - steps):
            self.version = bumped(self.version, now_ms)
        self.move(level, queue_offset)

    def move(self, level: int, queue_offset: int) -> None:
        """Continue elsewhere: what lies before was deleted or delivered."""
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
        return moved

    def merge(self, document: Mapping[str, Any]) -> None:
        """Take the progress of a master where it is further. Raises: ValueError for no table."""
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        self.version = version_of(document)
        for level, at in offsets.items():
            if at > self.offset(level):
                self.move(level, at)

    def replace(self, document: Mapping[str, Any]) -> None:
        """Take the progress of a master, even where it is less: what this broker delivered beyond
        that was cut off. Raises: ValueError for no table.
        """
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        self.version = version_of(document)
        if offsets != self.offsets:
            self.offsets = offsets
            self.changes += 1

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `delayOffset.json`.

        Raises: ValueError when it is not one; the table is unchanged then.
        """
        offsets = {int(level): int(at) for level, at in mapping(document, "offsetTable").items()}
        self.version = version_of(document)
        self.offsets = offsets
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """The content of `delayOffset.json`, detached: it may be encoded in a thread."""
        return {
            **self.extra,
            "dataVersion": version_document(self.version),
            "offsetTable": dict(self.offsets),
        }
