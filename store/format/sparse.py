"""Sparse files: where their data is, and where it ends.

The system's calls are passed in as functions; ranges of positions out. A hole reads as zeros, so
results are the same as for a full file.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})
"""Errors of a system that does not support a call, or not for this kind of file."""
READ_BYTES: Final = 1 << 18
_ZEROS: Final = bytes(READ_BYTES)


class SparseFile(Protocol):
    """A file opened for reading; every method may raise OSError."""

    def pread(self, size: int, position: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def data_ranges(self, begin: int, end: int, /) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end) that may hold other bytes than zeros."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


def data_ranges(
    next_data: Callable[[int], int], next_hole: Callable[[int], int], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """The parts of [begin, end) that may hold other bytes than zeros: all where the system cannot
    tell.

    `next_data` and `next_hole` are lseek with SEEK_DATA and SEEK_HOLE. Raises: OSError.
    """
    while begin < end:
        try:
            first = next_data(begin)
            hole = next_hole(first)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno not in NOT_SUPPORTED:
                raise
            first, hole = begin, end
        if first < end:
            yield first, min(hole, end)
        begin = hole


def used_end(file: SparseFile, begin: int, end: int) -> int:
    """The offset behind the last byte of [begin, end) that is not zero; `begin` without one.

    Raises: OSError.
    """
    # Reading makes holes look like data to later calls, so all ranges are asked for first.
    for low, high in reversed(list(file.data_ranges(begin, end))):
        while low < high:
            first = max(low, high - READ_BYTES)
            piece = file.pread(high - first, first)
            # Comparing is ten times as fast as searching.
            if piece != _ZEROS[: len(piece)]:
                return first + len(piece.rstrip(b"\0"))
            high = first
    return begin
