"""Searching the files of a consume queue in a thread, while the loop goes on adding to it.

What the loop knows of a queue is copied when the search begins; files are opened here, so that none
is closed under the thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.unit import UNIT, UNIT_SIZE, is_blank

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle

__all__ = ["UnitSearch"]


class UnitSearch(NamedTuple):
    """Units `low` … `high` − 1 of a queue, all of them written to these files (by start)."""

    paths: Mapping[int, Path]
    file_size: int
    low: int
    high: int

    def first_at_or_after(self, physical_offset: int, disk: Disk) -> int:
        """First queue offset whose message lies there in the log or later; `high` when none does.

        For a thread. Raises: OSError.
        """
        handles: dict[int, Handle] = {}
        low, high = self.low, self.high
        # Mostly nothing is to be corrected, and the first unit says so.
        middle = low
        try:
            while low < high:
                if self._before(middle, physical_offset, handles, disk):
                    low = middle + 1
                else:
                    high = middle
                middle = (low + high) // 2
        finally:
            for handle in handles.values():
                handle.close()
        return low

    def _before(
        self, queue_offset: int, physical_offset: int, handles: dict[int, Handle], disk: Disk
    ) -> bool:
        position = queue_offset * UNIT_SIZE
        start = position - position % self.file_size
        handle = handles.get(start)
        if handle is None:
            handle = handles[start] = disk.open(self.paths[start], writable=False)
        physical, size, _ = UNIT.unpack_from(handle.pread(UNIT_SIZE, position - start))
        return size > 0 and (is_blank(physical, size) or physical < physical_offset)
