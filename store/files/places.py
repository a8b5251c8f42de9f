"""Where a file is made before it has its name: beside its directory, or in it.

Brokers stop at half-made files in a directory of segments, so files come from beside it. Where none
can be moved in, they are made inside in a way that brokers tolerate: decision 0011.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from aerobee.store.files.machine import Machine
from aerobee.store.format.names import inner_path, spare_path

if TYPE_CHECKING:
    from pathlib import Path

_NOT_MOVED = {errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS}
"""The errors where a directory takes no file from beside it, or nothing can be made there."""


class Places(Machine):
    """Knows which directories take files from beside them."""

    def __init__(self) -> None:
        self._apart: set[Path] = set()
        """The directories whose files are made inside; see `place_of`."""
        self._joined: set[Path] = set()
        """The directories that take files from beside them, of those that were tried."""

    def move_in_and_out(self, spare: Path, inner: Path, size: int) -> None:
        """Try to move a file of zeros. Raises: OSError."""
        raise NotImplementedError

    def place_of(self, path: Path, size: int) -> Path:
        """Where a file of that name and size is made: beside its directory, or in it.

        Beside is tried once per directory, with a file of zeros that is moved in and out again: one
        file system may refuse that too (bind mounts, project quotas). Raises: OSError.
        """
        directory, spare, inner = path.parent, spare_path(path), inner_path(path)
        if directory not in self._apart and directory not in self._joined:
            try:
                self.move_in_and_out(spare, inner, size)
            except OSError as error:
                if not self._is_apart(directory, error):
                    raise
                self._apart.add(directory)
            else:
                self._joined.add(directory)
        return self.place(path)

    def place(self, path: Path) -> Path:
        """Where the file is made, as far as it is known."""
        return inner_path(path) if path.parent in self._apart else spare_path(path)

    def _is_apart(self, directory: Path, error: OSError) -> bool:
        """Whether the error came of the place: the directory is on another disk than its parent,
        or its parent is not ours.
        """
        if error.errno in _NOT_MOVED:
            return True
        try:
            return self.device(directory) != self.device(directory.parent)
        except OSError:
            return False
