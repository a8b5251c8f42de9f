"""The checkpoint on disk: read once at start, rewritten by each round of the flush service.

Only reads and writes; the flush services decide on the values. Source: store format §1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_BYTES, Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk


class CheckpointFile:
    """`value` is what the file says (all 0 before `load` and without a file)."""

    __slots__ = ("_disk", "path", "value")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path
        self.value = Checkpoint()

    def load(self) -> Checkpoint:
        """Read the file; a missing or short one counts as zeros. Raises: OSError."""
        if self._disk.exists(self.path):
            data = self._disk.read(self.path)[: CHECKPOINT.size]
            self.value = CHECKPOINT.read(data.ljust(CHECKPOINT.size, b"\0"))
        return self.value

    def write(self, physic: int, logics: int, index: int = 0) -> None:
        """Store three times in ms, durably; what they cover must be on disk before. Blocking.

        The fields of other brokers keep what was found in them. Raises: OSError.
        """
        value = self.value._replace(
            physic_msg_timestamp=physic, logics_msg_timestamp=logics, index_msg_timestamp=index
        )
        fresh = not self._disk.exists(self.path)
        with self._disk.open(self.path, create=True) as handle:
            if handle.size() != CHECKPOINT_FILE_BYTES:
                handle.truncate(CHECKPOINT_FILE_BYTES)
            handle.pwrite(CHECKPOINT.write(value), 0)
            self._disk.sync(handle)
        if fresh:
            self._disk.sync_directory(self.path.parent)
        self.value = value
