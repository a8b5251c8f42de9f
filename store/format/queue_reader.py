"""Reads the files of consume queues in a directory, units at any number.

Listing and opening are passed in as functions, so that this reads the files of a store, of a
running broker and of a copy. Nothing is written or locked: a listed file may be deleted before it
is opened. Files are sparse, and missing parts read as zeros, which are not units. Source: store
format §1.3.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from aerobee.store.format.names import file_start, segment_name, segment_start
from aerobee.store.format.sparse import used_end
from aerobee.store.format.unit import UNIT, UNIT_SIZE, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aerobee.store.format.sparse import SparseFile

QUEUE_FILE_BYTES: Final = 6_000_000


class Listing(Protocol):
    """Lists directories; a missing one is empty. Raises: OSError."""

    def folders(self, path: str, /) -> list[str]:
        """Names of the directories in a directory, sorted."""
        ...

    def sizes(self, path: str, /) -> dict[str, int]:
        """Names of the files in a directory, sorted, with their lengths."""
        ...


class Queue(NamedTuple):
    """One consume queue: its directory, and at which byte of the queue each file begins."""

    topic: str
    queue_id: int
    path: str = ""
    file_bytes: int = QUEUE_FILE_BYTES
    starts: tuple[int, ...] = ()

    @property
    def first(self) -> int:
        """The queue offset that the first file begins with; 0 without files."""
        return self.starts[0] // UNIT_SIZE if self.starts else 0

    @property
    def end(self) -> int:
        """The queue offset behind the last unit that its files have room for."""
        return (self.starts[-1] + self.file_bytes) // UNIT_SIZE if self.starts else 0

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end), in queue offsets, that are in a file."""
        for start in self.starts:
            first = max(begin, start // UNIT_SIZE)
            behind = min(end, (start + self.file_bytes) // UNIT_SIZE)
            if first < behind:
                yield first, behind


def queues_below(
    top: str, listing: Listing, wanted: Callable[[str], bool] = lambda _topic: True
) -> list[tuple[Queue, Mapping[str, int]]]:
    """The queues of the wanted topics, sorted, each with its files.

    A file belongs to its queue when its name fits the size that most files have.
    Raises: OSError.
    """
    queues = [
        (topic, int(name), path, listing.sizes(path))
        for topic in listing.folders(top)
        if wanted(topic)
        for name in sorted(filter(_is_number, listing.folders(f"{top}/{topic}")), key=int)
        for path in [f"{top}/{topic}/{name}"]
    ]
    size = usual_size((size for *_, sizes in queues for size in sizes.values()), QUEUE_FILE_BYTES)
    return [
        (Queue(topic, queue_id, path, size, tuple(_starts(sizes, size))), sizes)
        for topic, queue_id, path, sizes in queues
    ]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _starts(names: Iterable[str], file_bytes: int) -> Iterator[int]:
    starts = (segment_start(name) for name in names)
    return (start for start in starts if start is not None and not start % file_bytes)


def usual_size(sizes: Iterable[int], default: int) -> int:
    """The size that most files have; the larger one when two are equally frequent."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=default)


class QueueReader:
    """Reads units of one queue. Keeps the last file open."""

    def __init__(self, queue: Queue, opened: Callable[[str], SparseFile]) -> None:
        """`opened` opens the file of a path, or raises FileNotFoundError, OSError."""
        self.queue = queue
        self.gone = False
        """Whether a listed file was deleted before it was opened."""
        self._opened = opened
        self._file: SparseFile | None = None
        self._start = -1
        """Where the open file begins."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        file, self._file, self._start = self._file, None, -1
        if file is not None:
            file.close()

    def _file_at(self, start: int) -> SparseFile | None:
        """The file that begins at this byte of the queue; None where there is none."""
        if self._start != start and start in self.queue.starts:
            self._close()
            try:
                self._file = self._opened(f"{self.queue.path}/{segment_name(start)}")
            except FileNotFoundError:
                # Deleted since the listing, like the log that it leads to.
                self.gone = True
                return None
            self._start = start
        return self._file if self._start == start else None

    def read(self, begin: int, count: int) -> bytes:
        """`count` units from queue offset `begin` ≥ 0 on. Raises: OSError."""
        position, end = begin * UNIT_SIZE, (begin + count) * UNIT_SIZE
        file_bytes = self.queue.file_bytes
        pieces = []
        while position < end:
            start = file_start(position, file_bytes)
            size = min(end, start + file_bytes) - position
            file = self._file_at(start)
            piece = b"" if file is None else file.pread(size, position - start)
            pieces.append(piece.ljust(size, b"\0"))
            position += size
        return b"".join(pieces)

    def end(self) -> int:
        """The queue offset behind the last unit, over holes too. Raises: OSError."""
        for start in reversed(self.queue.starts):
            file = self._file_at(start)
            used = 0 if file is None else used_end(file, 0, self.queue.file_bytes)
            if used:
                return (start + used - 1) // UNIT_SIZE + 1
        return self.queue.first

    def first_at(self, physical_offset: int, begin: int, end: int) -> int:
        """The first queue offset of [begin, end) whose unit leads there or further; or `end`.

        By binary search: correct when the units ascend, as those of a sound queue do. Raises:
        OSError.
        """
        # Often it is the first one.
        middle = begin
        while begin < end:
            place, size, _ = UNIT.unpack_from(self.read(middle, 1))
            if size > 0 and (is_blank(place, size) or place < physical_offset):
                begin = middle + 1
            else:
                end = middle
            middle = (begin + end) // 2
        return begin
