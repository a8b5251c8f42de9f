"""A cache of open handles for files that are many and seldom read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aerobee.store.files.descriptors import NONE_LEFT

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle

OPEN_FILES_MAX = 512
OPEN_FILES_MIN = 4
SHARE = 16
"""Each of these caches gets one in so many of the descriptors of the process."""


class OpenFiles:
    """At most `limit` open handles, by default a share of the system's limit; the least recently
    used one is closed first.

    For the loop only: a thread opens its own handles, so that none is closed while in use.
    """

    __slots__ = ("_disk", "_handles", "_limit")

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self._disk = disk
        self._handles: OrderedDict[Path, Handle] = OrderedDict()
        fair = max(OPEN_FILES_MIN, min(OPEN_FILES_MAX, disk.descriptor_limit() // SHARE))
        self._limit = fair if limit is None else limit

    def __len__(self) -> int:
        return len(self._handles)

    def __contains__(self, path: Path) -> bool:
        return path in self._handles

    def get(self, path: Path) -> Handle:
        """The handle of this file. Raises: OSError."""
        handle = self._handles.get(path)
        if handle is None:
            handle = self._handles[path] = self._opened(path)
            if len(self._handles) > self._limit:
                self._close_oldest()
        else:
            self._handles.move_to_end(path)
        return handle

    def _opened(self, path: Path) -> Handle:
        """Open a file; close another one if there is no free descriptor. Raises: OSError."""
        while True:
            try:
                return self._disk.open(path)
            except OSError as error:
                if error.errno not in NONE_LEFT or not self._handles:
                    raise
            self._close_oldest()

    def _close_oldest(self) -> None:
        self._handles.popitem(last=False)[1].close()

    def forget(self, path: Path) -> None:
        """Close the handle of a file that is about to be deleted."""
        handle = self._handles.pop(path, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close all of them."""
        while self._handles:
            self._handles.popitem()[1].close()
