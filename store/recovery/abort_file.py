"""The file that exists while a broker runs: if it is found at a start, the last stop was not clean.

Invariant: created, durably, before the first change of any other file; removed, durably, after the
last. Source: store format §1.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk


class AbortFile:
    """Only its existence matters; the content is our process id, as 5.x writes it."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def exists(self) -> bool:
        """Whether the last run on this directory ended without a clean stop."""
        return self._disk.exists(self.path)

    def create(self) -> None:
        """Create the file, so that the next start sees a crash. Raises: OSError."""
        self._disk.write(self.path, str(self._disk.process_id()).encode())

    def remove(self) -> None:
        """Remove the file: everything is on disk. Raises: OSError."""
        self._disk.remove(self.path)
        self._disk.sync_directory(self.path.parent)
