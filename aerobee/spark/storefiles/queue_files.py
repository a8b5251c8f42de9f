"""Reads the files of consume queues by descriptor, and the entries in them.

Paths in, entries out as numpy rows (physical offset, size, tags code); nothing is written.
Source: spark §9, store format §1.3.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aerobee.spark.storefiles.files import OpenFile
from aerobee.store.format import queue_reader
from aerobee.store.format.names import CONSUME_QUEUE, LOST_FOUND, segment_start
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from aerobee.store.format.queue_reader import Queue

LIGHT_QUEUES = "%LMQ%"
"""The prefix of further queues of 5.x, whose entries lead to messages of other topics."""
BATCHED_QUEUE = "batchconsumequeue"
ROCKSDB_SIGN = "CURRENT"
"""A file beside the topics: 5.x can store its queues in RocksDB, and leaves old files here."""
UNITS = np.dtype([("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
assert UNITS.itemsize == UNIT.size
Units = np.ndarray[tuple[int], np.dtype[np.void]]


class Folders:
    """Lists directories, as `Listing`. Raises: OSError."""

    def folders(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted."""
        return sorted(entry.name for entry in _entries(path) if entry.is_dir())

    def sizes(self, path: str) -> dict[str, int]:
        """The names of the files in a directory, sorted, with their sizes."""
        sizes = {}
        for entry in _entries(path):
            # A broker has deleted it since the listing, like the log that it leads to.
            with suppress(FileNotFoundError):
                sizes[entry.name] = entry.stat().st_size
        return dict(sorted(sizes.items()))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.name != LOST_FOUND]
    except (FileNotFoundError, NotADirectoryError):
        return []


def has_queues(root: str) -> bool:
    """Whether there are queue files: a copy of the log alone, or a RocksDB, has none."""
    top = Path(root) / CONSUME_QUEUE
    return top.is_dir() and not (top / ROCKSDB_SIGN).exists()


def batched_topics(root: str) -> list[str]:
    """The topics with queues of another kind, because their messages are batches (5.x)."""
    return Folders().folders(f"{root}/{BATCHED_QUEUE}")


def queues_of(root: str, wanted: Callable[[str], bool]) -> list[Queue]:
    """The queues of the wanted topics, sorted. Raises: OSError."""
    queues = queue_reader.queues_below(f"{root}/{CONSUME_QUEUE}", Folders(), wanted)
    return [queue for queue, _ in queues]


def has_files(queue: Queue) -> bool:
    """Whether a queue has any file now."""
    return any(segment_start(entry.name) is not None for entry in _entries(queue.path))


class QueueReader(queue_reader.QueueReader):
    """Reads the entries of one queue, at any queue offset."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, OpenFile)

    def units(self, begin: int, count: int) -> Units:
        """Read `count` entries from queue offset `begin` ≥ 0. Raises: OSError."""
        return np.frombuffer(self.read(begin, count), UNITS)


def places_of(units: Units) -> NDArray[Any]:
    """The physical offsets in native byte order."""
    return units["place"].astype(np.int64)
