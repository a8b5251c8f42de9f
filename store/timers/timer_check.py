"""The check file of the timers: read at the start, rewritten by each save, after everything else.

Source: store format §1.8 (TimerCheckpoint).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.timer import TIMER_CHECK, TIMER_CHECK_BYTES, TimerCheck

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk


class TimerCheckFile:
    """`value` is what is on disk; None before `load` and without a file."""

    __slots__ = ("_disk", "path", "value")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path
        self.value: TimerCheck | None = None

    def load(self) -> TimerCheck | None:
        """Read the file; one that is missing or too short is ignored. Raises: OSError."""
        self.value = None
        if self._disk.exists(self.path):
            data = self._disk.read(self.path)[: TIMER_CHECK.size]
            if len(data) == TIMER_CHECK.size:
                self.value = TIMER_CHECK.read(data)
        return self.value

    def write(self, value: TimerCheck) -> None:
        """Bring it to the file. Raises: OSError."""
        disk = self._disk
        disk.mkdir(self.path.parent)
        with disk.open(self.path, create=True) as handle:
            # One call writes the 4 KiB: a new file never has half of it.
            handle.pwrite(TIMER_CHECK.write(value).ljust(TIMER_CHECK_BYTES, b"\0"), 0)

    def sync(self) -> None:
        """Sync file and name. Raises: OSError."""
        with self._disk.open(self.path) as handle:
            self._disk.sync(handle)
        self._disk.sync_directory(self.path.parent)
