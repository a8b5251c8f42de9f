"""The files of consume queues, read by descriptor, and the records that their units lead to.

Paths flow in, units flow out as numpy rows (place, size, code); nothing is written or locked. Files
are sparse: what no file holds reads as zeros, which are no units.
Source: spark §9, store format §1.3.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from aerobee.spark.storefiles.files import data_ranges, read_at
from aerobee.store.format.names import CONSUME_QUEUE, segment_start
from aerobee.store.format.unit import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray

__all__ = [
    "LIGHT_QUEUES",
    "UNITS",
    "Queue",
    "QueueReader",
    "Units",
    "batched_topics",
    "has_files",
    "has_queues",
    "places_of",
    "queues_of",
]

LIGHT_QUEUES = "%LMQ%"
"""Further queues of 5.x, whose units lead to messages of other topics."""
BATCHED_QUEUE = "batchconsumequeue"
ROCKSDB_SIGN = "CURRENT"
"""A file beside the topics: 5.x can keep its queues in RocksDB, and leaves old files there."""
UNITS = np.dtype([("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
assert UNITS.itemsize == UNIT.size
Units = np.ndarray[tuple[int], np.dtype[np.void]]


class Queue(NamedTuple):
    """One consume queue: its directory, and at which byte of the queue each file begins."""

    topic: str
    queue_id: int
    path: str
    file_bytes: int
    starts: tuple[int, ...]

    @property
    def first(self) -> int:
        """The queue offset that the first file begins with; 0 without files."""
        return self.starts[0] // UNIT_SIZE if self.starts else 0

    @property
    def end(self) -> int:
        """The queue offset behind the last unit that its files have room for."""
        return (self.starts[-1] + self.file_bytes) // UNIT_SIZE if self.starts else 0


def has_queues(root: str) -> bool:
    """Whether there are files of queues: a copy of the log alone, or a RocksDB, has none."""
    top = Path(root) / CONSUME_QUEUE
    return top.is_dir() and not (top / ROCKSDB_SIGN).exists()


def batched_topics(root: str) -> list[str]:
    """The topics whose queues are of another kind, because their messages are batches (5.x)."""
    return _names(Path(root) / BATCHED_QUEUE)


def queues_of(root: str, wanted: Callable[[str], bool]) -> list[Queue]:
    """The queues of the wanted topics, sorted. Raises: OSError."""
    top = Path(root) / CONSUME_QUEUE
    return [
        _queue(topic, int(number), top / topic / number)
        for topic in _names(top)
        if wanted(topic)
        for number in sorted(
            (name for name in _names(top / topic) if name.isascii() and name.isdigit()), key=int
        )
    ]


def has_files(queue: Queue) -> bool:
    """Whether any file of a queue is there now."""
    return any(segment_start(name) is not None for name in _names(Path(queue.path)))


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _queue(topic: str, queue_id: int, directory: Path) -> Queue:
    sizes = {}
    for name in _names(directory):
        start = segment_start(name)
        if start is not None:
            try:
                sizes[start] = (directory / name).stat().st_size
            except FileNotFoundError:
                # Deleted since the listing, as the log that it leads to.
                continue
    file_bytes = max(sizes.values(), default=0)
    return Queue(topic, queue_id, str(directory), file_bytes, tuple(sizes))


class QueueReader:
    """Units of one queue, at any queue offset. Keeps the file open that was read last."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.gone = False
        """Whether a file that was listed was not there when it was wanted."""
        self._open: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _fd(self, start: int) -> int | None:
        """The file that begins at this byte of the queue; None where there is none."""
        if self._open is not None and self._open[0] == start:
            return self._open[1]
        self._close()
        try:
            fd = os.open(f"{self.queue.path}/{start:020d}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.gone = self.gone or start in self.queue.starts
            return None
        self._open = start, fd
        return fd

    def read(self, begin: int, count: int) -> Units:
        """`count` units from queue offset `begin` ≥ 0 on. Raises: OSError."""
        position, end = begin * UNIT_SIZE, (begin + count) * UNIT_SIZE
        file_bytes = self.queue.file_bytes
        if not file_bytes or not count:
            return np.zeros(count, UNITS)
        pieces = []
        while position < end:
            start = position - position % file_bytes
            size = min(end, start + file_bytes) - position
            fd = self._fd(start)
            piece = b"" if fd is None else read_at(fd, position - start, size)
            pieces.append(piece.ljust(size, b"\0"))
            position += size
        return np.frombuffer(b"".join(pieces), UNITS)

    def end(self) -> int:
        """The queue offset behind the last unit. Raises: OSError."""
        for start in reversed(self.queue.starts):
            fd = self._fd(start)
            if fd is None:
                continue
            for low, high in reversed(data_ranges(fd, 0, self.queue.file_bytes)):
                low -= low % UNIT_SIZE
                high = min(-(-high // UNIT_SIZE) * UNIT_SIZE, self.queue.file_bytes)
                units = np.frombuffer(read_at(fd, low, high - low).ljust(high - low, b"\0"), UNITS)
                used = np.flatnonzero(units["size"] > 0)
                if len(used):
                    return (start + low) // UNIT_SIZE + int(used[-1]) + 1
        return self.queue.first

    def first_at(self, place: int, begin: int, end: int) -> int:
        """The first queue offset of [begin, end) whose unit leads to `place` or further; or `end`.

        By halving: right when the units ascend, as those of a queue in order do.
        """
        while begin < end:
            middle = (begin + end) // 2
            unit = self.read(middle, 1)[0]
            if unit["size"] > 0 and unit["place"] < place:
                begin = middle + 1
            else:
                end = middle
        return begin


def places_of(units: Units) -> NDArray[Any]:
    """Physical offsets in the byte order of this machine."""
    return units["place"].astype(np.int64)
