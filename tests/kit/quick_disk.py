"""A disk that syncs nothing: for who runs a broker in the test's own process and loses no power.

What it writes is in real files, as it is for anybody who looks at them, a later start included. A
busy disk keeps nobody waiting, and virtual time does not fly meanwhile.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from aerobee.store.files.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")
SYNCS = ("fsync", "fdatasync")


class QuickDisk(Disk):
    """All but syncs is as ever."""

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if function.__name__ in SYNCS:
            # A descriptor that is closed is refused as it always was.
            os.fstat(*args)  # type: ignore[arg-type]  # as a sync was called
            return None  # type: ignore[return-value]  # as a sync answers
        return super()._call(function, *args, **kwargs)


class WornDisk(QuickDisk):
    """Cannot read a piece with these bytes in it: EIO, as of a bad sector. At first none are."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = b""

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        result = super()._call(function, *args, **kwargs)
        read = result if function is os.pread else args[1][0] if function is os.preadv else b""  # type: ignore[index]  # as those were called
        if self.bad and self.bad in bytes(read):  # type: ignore[arg-type]  # as those answer
            # It is never in memory.
            number = errno.EIO if function is os.pread else errno.EAGAIN
            raise OSError(number, os.strerror(number))
        return result
