"""The file of the recovery point: where recovery may begin after a crash, about a second old.

The checkpoint is written once a minute and has times, because other brokers read it; this file has
physical offsets and is ours alone. Bytes that the point calls synced were synced before it is
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.recovery_point import FILE_BYTES, SLOTS_AT, newest_point, slot_of

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.format.recovery_point import RecoveryPoint


class RecoveryPointFile:
    """Read at a start after a crash, written about once a second while there is news. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> RecoveryPoint | None:
        """The newest point; None without a valid one. Raises: OSError."""
        if not self._disk.exists(self.path):
            return None
        return newest_point(self._disk.read(self.path))

    def write(self, point: RecoveryPoint, *, sync: bool) -> None:
        """Write it over the older slot; with `sync` it survives a power cut.

        Raises: OSError.
        """
        fresh = not self._disk.exists(self.path)
        with self._disk.open(self.path, create=True) as handle:
            if handle.size() != FILE_BYTES:
                handle.truncate(FILE_BYTES)
            handle.pwrite(slot_of(point), SLOTS_AT[point.number % len(SLOTS_AT)])
            if sync:
                self._disk.sync(handle)
        if fresh:
            self._disk.sync_directory(self.path.parent)
