"""Searches the files of a consume queue in a thread, while the loop adds units.

The state of a queue is copied when the search begins; files are opened here, so that none is closed
under the thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.queue_reader import Queue, QueueReader

if TYPE_CHECKING:
    from aerobee.store.files.disk import Disk


class UnitSearch(NamedTuple):
    """Units `low` … `high` − 1 of a queue, all of them written to its files."""

    queue: Queue
    low: int
    high: int

    def first_at_or_after(self, physical_offset: int, disk: Disk) -> int:
        """First queue offset whose message is there in the log or later; `high` when none is.

        For a thread. Raises: OSError.
        """
        with QueueReader(self.queue, lambda path: disk.open(Path(path), writable=False)) as reader:
            unit = reader.first_at(physical_offset, self.low, self.high)
        if reader.gone:
            raise FileNotFoundError(f"a file of {self.queue.path} is gone")
        return unit
