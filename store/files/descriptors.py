"""A reserve of descriptors for the store, for when connections have taken all others.

A file that the store opens then takes one of them, and returns it when it is closed. Directories
that are synced often are kept open, so that their syncs need none.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DESCRIPTORS_RESERVED = 16
"""The descriptors that the store needs at a time, with room to spare."""
UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""For `mmap`: older Pythons keep a descriptor of their own with each mapping."""
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})
"""The errors of a system without free descriptors."""
_NULL = Path("/dev/null")

P = ParamSpec("P")
R = TypeVar("R")


class Descriptors:
    """The reserve of one disk; empty until `hold`. `call` is the disk's way to the system."""

    __slots__ = ("_call", "_null", "_size", "_spares", "directories")

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.directories: dict[Path, int] = {}
        """The directories that are kept open."""
        self._spares: list[int] = []
        self._size = 0
        self._null = -1

    def hold(self, directories: Sequence[Path], size: int = DESCRIPTORS_RESERVED) -> None:
        """Reserve `size` descriptors, and keep these directories open. Raises: OSError."""
        if self._null < 0:
            self._null = self._call(os.open, _NULL, os.O_RDWR)
        while len(self._spares) < size:
            self._spares.append(self._call(os.dup, self._null))
        self._size = size
        for path in directories:
            if path not in self.directories:
                flags = os.O_RDONLY | os.O_DIRECTORY
                self.directories[path] = self._call(os.open, path, flags)

    def __del__(self) -> None:
        """Close them when a store is dropped without a close."""
        for fd in self.forget():
            with suppress(OSError):
                os.close(fd)

    def release(self) -> None:
        """Close all of them."""
        for fd in self.forget():
            self._close(fd)

    def forget(self) -> list[int]:
        """Empty the reserve; returns what was in it."""
        held = [*self.directories.values(), *self._spares, self._null]
        self._size, self._null = 0, -1
        self.directories.clear()
        self._spares.clear()
        return [fd for fd in held if fd >= 0]

    def take(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call that needs a descriptor; use one of the reserve if there is no other."""
        while True:
            try:
                result: R = self._call(function, *args, **kwargs)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
                try:
                    spare = self._spares.pop()
                except IndexError:
                    # Another thread has taken the last one.
                    raise error from None
            else:
                return result
            self._close(spare)

    def give_back(self, fd: int) -> None:
        """Close a descriptor, or keep it if the reserve is short."""
        if len(self._spares) < self._size:
            # In one call, so that no other thread takes the number in between.
            self._call(os.dup2, self._null, fd, inheritable=False)
            self._spares.append(fd)
        else:
            self._close(fd)

    def _close(self, fd: int) -> None:
        """Close; the system has released the descriptor whatever it says about it.

        Data that has to be on disk was synced, so an error of the disk says nothing new here.
        """
        try:
            self._call(os.close, fd)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
