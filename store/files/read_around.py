"""Reads a file around the blocks that the disk cannot read: zeros stand for these."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES: Final = 4 << 10
"""Disks fail by blocks of this size, or by smaller ones."""


def read_around(
    pread: Callable[[int, int], bytes], begin: int, end: int, piece_bytes: int
) -> Iterator[tuple[bytes, OSError | None]]:
    """The bytes of a file from `begin` to `end`, or to its end, in pieces of at most so many.

    `pread` takes size and position. Zeros stand for a block that it cannot read (EIO), or for the
    part of one that is asked for, and come with its error. Raises: OSError, others than EIO.
    """
    at, step = begin, piece_bytes
    while at < end:
        step = min(step, end - at)
        failed: OSError | None = None
        try:
            piece = pread(step, at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            if step > BLOCK_BYTES:
                # The bad block may be one of those behind.
                step = BLOCK_BYTES - at % BLOCK_BYTES
                continue
            piece, failed = bytes(step), error
        if not piece:
            return
        yield piece, failed
        at, step = at + len(piece), piece_bytes
