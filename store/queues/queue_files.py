"""The files of one consume queue: listed, measured, zeroed and removed, whatever their units.

Invariant: the files are contiguous and of one size; others are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.names import file_start, segment_start
from aerobee.store.format.sparse import used_end
from aerobee.store.format.unit import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.open_files import OpenFiles


class QueueFiles:
    """The files below one directory. `damaged`: some that held units had to be removed."""

    __slots__ = ("_disk", "_open", "_paths", "_sizes", "damaged", "directory", "file_size")

    def __init__(self, directory: Path, file_size: int, disk: Disk, open_files: OpenFiles) -> None:
        assert file_size % UNIT_SIZE == 0, file_size
        self._disk = disk
        self._open = open_files
        self._paths: dict[int, Path] = {}
        """The files by start, ascending."""
        self._sizes: dict[int, int] = {}
        """Their lengths, of those that were found at the start."""
        self.directory = directory
        self.file_size = file_size
        self.damaged = False

    @property
    def files(self) -> Sequence[int]:
        """Start positions of the files, ascending."""
        return list(self._paths)

    def load(self) -> Collection[int]:
        """Load the existing files, and return their lengths; `recover` finds the end.

        Raises: OSError.
        """
        for name, size in self._disk.entries(self.directory).items():
            start = segment_start(name)
            if start is not None and size is not None:
                self._paths[start] = self.directory / name
                self._sizes[start] = size
        return self._sizes.values()

    def _drop_wrong_sizes(self) -> None:
        """A file of another length, or in another place, ends the queue there: its units can be
        built from the log.
        """
        expected = file_start(next(iter(self._paths), 0), self.file_size)
        for start in self._paths:
            size = self._sizes.pop(start, self.file_size)
            if start != expected or size != self.file_size:
                # An empty file never held a unit: a crash came between creating and sizing it.
                self.damaged = size != 0 or start != next(reversed(self._paths))
                self.remove_files_from(start)
                return
            expected = start + self.file_size

    def _last_use(self, start: int) -> int:
        """Bytes of a file up to its last unit, over holes too."""
        used = used_end(self._open.get(self._paths[start]), 0, self.file_size)
        return -(-used // UNIT_SIZE) * UNIT_SIZE

    def _zero(self, end: int) -> int:
        """Zero old units behind the end: they would count as messages after the next crash.

        Returns the end of the old units; the zeros are not on disk then.
        """
        start = file_start(end, self.file_size)
        with self._disk.open(self._paths[start]) as handle:
            return self._disk.zero(handle, end - start, self.file_size, sync=False)

    def remove_files_from(self, position: int) -> None:
        """Remove the files that begin at or behind this byte."""
        for start in [start for start in self._paths if start >= position]:
            path = self._paths.pop(start)
            self._open.forget(path)
            self._disk.remove(path)

    def _take(self, starts: list[int]) -> list[Path]:
        paths = [self._paths.pop(start) for start in starts]
        for path in paths:
            self._open.forget(path)
        return paths

    def give_back(self, paths: Sequence[Path]) -> None:
        """Put back files that could not be removed: a gap would end the queue at a start."""
        starts = {start: path for path in paths if (start := segment_start(path.name)) is not None}
        self._paths = {**starts, **self._paths}
