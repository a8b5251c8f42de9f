"""A disk whose page cache is empty on demand: reads that must not wait find nothing there."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from aerobee.store.files.disk import Disk

P = ParamSpec("P")
R = TypeVar("R")


class ColdDisk(Disk):
    """Counts the reads that waited; `cold` says whether those that must not wait fail, and how."""

    def __init__(self, *, cold: bool = True, reason: int = errno.EAGAIN) -> None:
        super().__init__()
        self.cold = cold
        self.reason = reason
        self.waited: list[tuple[Path, int, int]] = []
        """File, position and size of each read that would have waited."""

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if function is os.preadv and self.cold:
            raise OSError(self.reason, os.strerror(self.reason))
        if function is os.pread:
            fd, size, position = args
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self.waited.append((path, int(str(position)), int(str(size))))
        return super()._call(function, *args, **kwargs)
