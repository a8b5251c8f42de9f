"""The segment files of one directory, in order: find, add, truncate, remove the oldest.

Knows names and sizes, not the content. The directory must not contain anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.disk import LINK
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.files.open_files import OpenFiles
from aerobee.store.format.names import segment_name, segment_start

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

log = structlog.get_logger(__name__)


class MappedFileQueue:
    """Files of equal size, each named by its first byte. Source: store format §1.1.

    Invariant: `files` is sorted by start; only the last one grows. `file_size` is that of existing
    files. While the store runs the list is replaced and never changed in place: threads read it.
    """

    __slots__ = (
        "_disk",
        "_setting",
        "directory",
        "file_size",
        "files",
        "first_start",
        "open_files",
    )

    def __init__(self, disk: Disk, directory: Path, file_size: int, *, setting: str = "") -> None:
        """`setting` is the key of `file_size`, for the log line when it differs."""
        self._disk = disk
        self._setting = setting
        self.directory = directory
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.first_start = 0
        """Where the first file begins of a queue that has none."""
        self.open_files = OpenFiles(disk)
        """Handles for reads of full files."""

    def load(self) -> None:
        """Load the existing files, all counted as full; recovery moves the positions back.

        Raises: StoreDamaged naming a file that does not belong here, OSError.
        """
        disk = self._disk
        sizes: dict[str, int] = {}
        for name, size in disk.entries(self.directory).items():
            path = self.directory / name
            if size == LINK:
                raise StoreDamaged(
                    f"{path} is a symbolic link: put the file itself there; a link in place of all "
                    f"of {self.directory} is followed"
                )
            if size is not None:
                sizes[name] = size
            elif segment_start(name) is not None:
                # Others are passed over, as by Java's 5.x.
                raise StoreDamaged(f"{path} is a directory: move it out of {self.directory}")
        names = list(sizes)
        empty = names.pop() if names and sizes[names[-1]] == 0 else None
        self._agree_on_size([sizes[name] for name in names])
        for name in names:
            self._take_over(name, sizes[name])
        if empty is not None:
            # Left by a crash between creation and sizing; a 4.9 broker refuses to start over it.
            disk.remove(self.directory / empty)

    def _agree_on_size(self, sizes: list[int]) -> None:
        """Take the size of the existing files, when all have the same."""
        if sizes and sizes.count(sizes[0]) == len(sizes) and sizes[0] > 0:
            if sizes[0] != self.file_size and self._setting:
                log.warning(
                    "store.size_kept",
                    setting=self._setting,
                    path=str(self.directory),
                    file_bytes=sizes[0],
                    configured_bytes=self.file_size,
                )
            self.file_size = sizes[0]

    def _take_over(self, name: str, size: int) -> None:
        path = self.directory / name
        start = segment_start(name)
        if start is None:
            raise StoreDamaged(f"{path} is no segment file: move it out of {self.directory}")
        if size != self.file_size:
            raise StoreDamaged(
                f"{path} has {size} bytes, its neighbours {self.file_size}: "
                "restore it from a copy, or move it and all later ones away"
            )
        # Old files are opened when somebody reads them: one that cannot be would hold him for ever.
        self._disk.open(path).close()
        self.files.append(MappedFile(self._disk, path, start, size, used=size))

    # ── Finding ──

    @property
    def first(self) -> MappedFile | None:
        """The oldest file."""
        return self.files[0] if self.files else None

    @property
    def last(self) -> MappedFile | None:
        """The one that grows."""
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """The first byte that still exists; 0 without files."""
        files = self.files
        return files[0].start if files else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte written; 0 without files."""
        return self.files[-1].max_offset if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds this byte; None outside all files and in a hole between two. Hot."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].start) // self.file_size
        if 0 <= index < len(files):
            file = files[index]
            if file.start <= offset < file.end:
                return file
        return next((file for file in files if file.start <= offset < file.end), None)

    def after(self, file: MappedFile) -> MappedFile | None:
        """The next file, None behind the last. It need not begin where this one ends."""
        files = self.files
        later = files.index(file) + 1
        return files[later] if later < len(files) else None

    def next_start(self) -> int:
        """Where the file after the last one begins."""
        return self.files[-1].end if self.files else self.first_start

    def path_of(self, start: int) -> Path:
        """The path of the file that begins at this byte."""
        return self.directory / segment_name(start)

    # ── Changing ──

    def add(self, file: MappedFile) -> None:
        """Append a new file."""
        assert file.start == self.next_start() or not self.files, (file, self.next_start())
        assert file.size == self.file_size, (file, self.file_size)
        self.files = [*self.files, file]

    def truncate(self, offset: int) -> None:
        """Remove files that begin behind `offset`, set the positions of the one that holds it.

        A file that begins exactly there is kept, empty, as in Java. Raises: OSError.
        """
        while self.files and self.files[-1].start > offset:
            gone = self.files.pop()
            self.open_files.forget(gone.path)
            gone.close()
            self._disk.remove(gone.path)
        if self.files:
            file = self.files[-1]
            file.truncate(min(offset - file.start, file.size))
        if self._disk.exists(self.directory):
            self._disk.sync_directory(self.directory)

    def drop_unused(self) -> None:
        """Remove the files, none of which has a byte. Raises: OSError; then they are still here."""
        while self.files:
            file = self.files[-1]
            assert not file.wrote, file
            self._disk.remove(file.path)
            self.open_files.forget(file.path)
            file.close()
            self.files.pop()

    def zero_tail(self) -> int:
        """Zero the last file behind its end; returns the end of the old bytes. Raises: OSError."""
        return self.files[-1].zero_from(self.files[-1].wrote) if self.files else 0

    def take_first(self) -> MappedFile:
        """Remove the oldest file from the list; its readers may continue. It stays on disk."""
        assert len(self.files) > 1, "the last file is never dropped"
        first, *self.files = self.files
        self.open_files.forget(first.path)
        return first

    def close(self) -> None:
        """Close all files."""
        self.open_files.close()
        for file in self.files:
            file.close()
