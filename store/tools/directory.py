"""A store directory opened to be looked at: listed, locked where possible, never changed.

Paths flow in; segments, queue files and the checkpoint flow out, with what is wrong about names and
sizes. Works on directories in use: then without the lock, and what is being written is no damage.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.checkpoint_file import CheckpointFile
from aerobee.store.files.commit_log import CommitLog
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.format.names import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    LOCK,
    segment_start,
)
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.services.start_check import refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Handle
    from aerobee.store.tools.findings import Findings

__all__ = ["QUEUE_FILE_BYTES", "Directory", "QueueFiles", "ReadOnlyDisk", "opened"]

SEGMENT_BYTES = 1 << 30
QUEUE_FILE_BYTES = 6_000_000


class ReadOnlyDisk(Disk):
    """Opens files for reading only, whoever asks."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
        assert not create, path
        return super().open(path, writable=False)


class QueueFiles:
    """The files of one consume queue, read at any byte."""

    __slots__ = ("_disk", "file_size", "paths")

    def __init__(self, disk: Disk, paths: dict[int, Path], file_size: int) -> None:
        self._disk = disk
        self.paths = paths
        self.file_size = file_size

    @property
    def first(self) -> int:
        """The queue offset the first file begins with; 0 without files."""
        return next(iter(self.paths), 0) // UNIT_SIZE

    @property
    def end(self) -> int:
        """The queue offset behind the last file."""
        return (max(self.paths) + self.file_size) // UNIT_SIZE if self.paths else 0

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end), in queue offsets, that lie in a file."""
        for start in self.paths:
            first = max(begin, start // UNIT_SIZE)
            behind = min(end, (start + self.file_size) // UNIT_SIZE)
            if first < behind:
                yield first, behind

    def read(self, begin: int, count: int) -> bytes:
        """`count` units from queue offset `begin`; zeros where there are none. Raises: OSError."""
        position, end = begin * UNIT_SIZE, (begin + count) * UNIT_SIZE
        pieces = []
        while position < end:
            start = position - position % self.file_size
            size = min(end, start + self.file_size) - position
            pieces.append(self._piece(start, position - start, size).ljust(size, b"\0"))
            position += size
        return b"".join(pieces)

    def _piece(self, start: int, at: int, size: int) -> bytes:
        path = self.paths.get(start)
        if path is None:
            return b""
        try:
            handle = self._disk.open(path, writable=False)
        except FileNotFoundError:
            # Deleted by a running broker since we looked.
            return b""
        with handle:
            return handle.pread(size, at)


class Directory:
    """What lies below one root. `live`: a broker runs there; `clean`: its last stop was one."""

    def __init__(self, root: Path, disk: Disk, findings: Findings, *, live: bool) -> None:
        self.root = root
        self.disk = disk
        self.live = live
        self.clean = not live and not disk.exists(root / ABORT)
        self.checkpoint = CheckpointFile(disk, root / CHECKPOINT).load()
        self._findings = findings
        self.log = CommitLog(disk, root / COMMIT_LOG, SEGMENT_BYTES)
        self._list_segments()
        self.queues = dict(self._list_queues())

    # ── Segments ──

    def _list_segments(self) -> None:
        queue = self.log.queue
        sizes = self._sizes(queue.directory)
        queue.file_size = usual(sizes.values(), SEGMENT_BYTES)
        for path, size in sizes.items():
            start = segment_start(path.name)
            if start is None:
                self._damaged("name", path, "is no segment file")
            elif size:
                queue.files.append(MappedFile(self.disk, path, start, size, used=size))
            if start is not None and size != queue.file_size:
                self._wrong_size(path, size, queue.file_size, last=path == max(sizes))
        for file, following in pairwise(queue.files):
            if file.end < following.start and file.size == queue.file_size:
                path = queue.path_of(file.end)
                self._damaged("hole", path, f"is missing in front of {following.path.name}")

    def _wrong_size(self, path: Path, size: int, usual_size: int, *, last: bool) -> None:
        text = f"has {size} bytes, files of its kind {usual_size}"
        if not size and last and not self.clean:
            self._findings.noted("size", path, f"{text}: a crash came while it was made")
        else:
            self._damaged("size", path, text)

    # ── Queues ──

    def _list_queues(self) -> Iterator[tuple[tuple[str, int], QueueFiles]]:
        top = self.root / CONSUME_QUEUE
        found = {
            (topic, int(name)): self._sizes(top / topic / name)
            for topic in self._directories(top)
            for name in self._directories(top / topic)
            if name.isascii() and name.isdigit()
        }
        size = usual([n for sizes in found.values() for n in sizes.values()], QUEUE_FILE_BYTES)
        for key, sizes in found.items():
            yield key, QueueFiles(self.disk, self._queue_files(sizes, size), size)

    def _queue_files(self, sizes: Mapping[Path, int], usual_size: int) -> dict[int, Path]:
        paths: dict[int, Path] = {}
        for path, size in sizes.items():
            start = segment_start(path.name)
            if start is None or start % usual_size:
                self._damaged("name", path, "is no file of a consume queue")
                continue
            if size != usual_size:
                self._wrong_size(path, size, usual_size, last=path == max(sizes))
            if paths and start - usual_size not in paths:
                self._damaged("hole", path, "has no file in front of it")
            paths[start] = path
        return paths

    # ── Names ──

    def _directories(self, path: Path) -> Sequence[str]:
        return [name for name in self.disk.listdir(path) if self.disk.is_directory(path / name)]

    def _sizes(self, path: Path) -> dict[Path, int]:
        sizes = {}
        for name in self.disk.listdir(path):
            with contextlib.suppress(FileNotFoundError):
                sizes[path / name] = self.disk.size(path / name)
        return sizes

    def _damaged(self, kind: str, path: Path, text: str) -> None:
        self._findings.damaged(kind, path, text)


def usual(sizes: Iterable[int], default: int) -> int:
    """The size that most files have; the larger one when two are equally frequent."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=default)


@contextlib.contextmanager
def opened(root: Path, findings: Findings) -> Iterator[Directory]:
    """The directory, locked unless a broker runs there (`live`) or locking is not allowed to us.

    Raises: StoreForeign, StoreUnusable, OSError.
    """
    disk = ReadOnlyDisk()
    if not disk.is_directory(root):
        raise StoreUnusable(f"{root} is no directory")
    if not disk.exists(root / COMMIT_LOG):
        raise StoreUnusable(f"{root} holds no {COMMIT_LOG}: it is no store directory")
    refuse_foreign(disk, root)
    lock = LockFile(Disk(), root / LOCK)
    live = False
    try:
        # A file that is not there is held by nobody, and a look leaves none behind.
        if disk.exists(lock.path):
            live = not taken(lock, findings)
        directory = Directory(root, disk, findings, live=live)
        yield directory
        directory.log.close()
    finally:
        lock.release()


def taken(lock: LockFile, findings: Findings) -> bool:
    """Whether nobody else has the lock; False says that a broker runs there."""
    try:
        lock.acquire()
    except StoreLocked:
        findings.noted("live", lock.path, "a broker runs here: what it is writing is not looked at")
        return False
    except StoreUnusable as error:
        findings.noted("unlocked", lock.path, str(error))
    return True
