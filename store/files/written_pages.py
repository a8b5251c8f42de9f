"""Writes to a file by calls instead of through its mapping, where a mapping cannot promise room.

A file system that copies on write needs new blocks for a page of a file that has all of its own.
Where there are none, an access to the mapping is the end of the process, and a call an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.store.files.disk import Handle


class WrittenPages:
    """The pages of a file, as far as writers use a view of its mapping."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __setitem__(self, place: slice, data: bytes | bytearray | memoryview) -> None:
        """Write bytes at their place. Raises: OSError; then any prefix may be there."""
        self._handle.pwrite(data, place.start)
