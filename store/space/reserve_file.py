"""Reserved blocks that are freed when a disk is full, so that a stop and a start still have space.

Each disk that both write to has a reserve of its own: that of the data directory, of the consume
queues and of the tables. The log, the index and the timer log need none, since their files are
allocated in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.names import CONFIG, CONSUME_QUEUE, RESERVE

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

RESERVE_BYTES_MAX = 64 << 20
RESERVE_BYTES_MIN = 64 << 10
"""A smaller reserve would not help and is not created."""

ROOM = 4
"""A reserve is taken where so many times its size is free."""


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


class Reserves:
    """The reserves of all disks below a data directory, at most one on each.

    All calls but `held` are for a thread and may raise OSError.
    """

    def __init__(self, disk: Disk, root: Path, size: int) -> None:
        self._disk = disk
        self.size = size
        """Of one of them; 0: there are none."""
        self._files = {
            directory: ReserveFile(disk, directory / RESERVE, size)
            for directory in (root, root / CONSUME_QUEUE, root / CONFIG)
        }
        self._seen: tuple[ReserveFile, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the blocks are reserved on every disk, as far as this run knows."""
        return bool(self._seen) and all(file.held for file in self._seen)

    def hold(self) -> None:
        """Reserve the blocks on each disk that has room enough."""
        for file in self._of_each_disk():
            if not file.held and self._available_bytes(file) > ROOM * self.size:
                file.hold()

    def give_up(self, starved: Path | None = None) -> list[ReserveFile]:
        """Free the blocks on each disk that is full; returns those that were freed.

        `starved` is a directory where a file could not be made, whatever its disk says of itself.
        """
        if not self.size:
            return []
        full = None if starved is None else self._disk.device(starved)
        given_up = []
        for file in self._of_each_disk():
            if not self._disk.exists(file.path):
                continue
            is_full = self._disk.device(file.path.parent) == full
            if is_full or file.is_needed(self._available_bytes(file)):
                file.release()
                given_up.append(file)
        return given_up

    def _available_bytes(self, file: ReserveFile) -> int:
        return self._disk.free_space(file.path.parent).available_bytes

    def _of_each_disk(self) -> tuple[ReserveFile, ...]:
        """The first of the directories on each disk; the others may not have been made yet."""
        by_device: dict[int, ReserveFile] = {}
        for directory, file in self._files.items():
            if self._disk.is_directory(directory):
                by_device.setdefault(self._disk.device(directory), file)
        self._seen = tuple(by_device.values())
        return self._seen
