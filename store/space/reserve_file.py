"""Reserved blocks that are freed when the disk is full, so that a stop still has space."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

__all__ = ["RESERVE_BYTES_MAX", "RESERVE_BYTES_MIN", "ReserveFile", "reserve_bytes"]

RESERVE_BYTES_MAX = 64 << 20
RESERVE_BYTES_MIN = 64 << 10
"""A smaller reserve would not help and is not created."""


def reserve_bytes(segment_bytes: int) -> int:
    """Size of the reserve: a sixteenth of a segment, 64 MiB at most; 0 for none."""
    size = min(RESERVE_BYTES_MAX, segment_bytes // 16)
    return size if size >= RESERVE_BYTES_MIN else 0


class ReserveFile:
    """A file that is deleted to free space. All calls are for a thread and may raise OSError."""

    __slots__ = ("_disk", "held", "path", "size")

    def __init__(self, disk: Disk, path: Path, size: int) -> None:
        self._disk = disk
        self.path = path
        self.size = size
        self.held = False
        """Whether the blocks are reserved, as far as this run knows."""

    def is_needed(self, available_bytes: int) -> bool:
        """Whether so little is free that small writes may fail without it."""
        return available_bytes < 2 * self.size

    def hold(self) -> None:
        """Create the file with all its blocks; cheap when it exists."""
        with self._disk.open(self.path, create=True) as handle:
            try:
                self._disk.fill(handle, self.size)
                handle.truncate(self.size)
            except OSError:
                self._disk.remove(self.path, missing_ok=True)
                raise
        self.held = True

    def release(self) -> None:
        """Free the blocks."""
        self._disk.remove(self.path, missing_ok=True)
        self.held = False
