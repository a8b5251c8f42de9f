"""A store directory opened read-only: listed, locked where possible, never changed.

It reads a path and gives segments, queue files and the checkpoint, with findings about names and
sizes. It works on directories in use: then without the lock, and records that the broker is writing
are no damage.
"""

from __future__ import annotations

import contextlib
import errno
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.disk import LINK, Disk, Handle
from aerobee.store.files.lock_file import LockFile
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.files.read_around import BLOCK_BYTES, read_around
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.faults import CQ_MISSING, HOLE
from aerobee.store.format.names import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    LOCK,
    RECOVERY_POINT,
    segment_start,
)
from aerobee.store.format.queue_reader import QueueReader, queues_below, usual_size
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.recovery.start_check import refuse_foreign
from aerobee.store.tools.locations import locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from mmap import mmap

    from aerobee.store.format.queue_reader import Queue
    from aerobee.store.tools.findings import Findings

SEGMENT_BYTES = 1 << 30
PIECE_BYTES = 1 << 20


class PatientHandle(Handle):
    """An open file whose unreadable blocks are zeros: what is beside them is read."""

    __slots__ = ("_tell",)

    def __init__(self, handle: Handle, disk: Disk, tell: Callable[[Path, int, int], None]) -> None:
        super().__init__(disk, handle.fd, handle.path)
        self._tell = tell

    def pread(self, size: int, position: int) -> bytes:
        """As `Handle`. Raises: OSError, other than Unreadable."""
        pieces, at = [], position
        for piece, failed in read_around(super().pread, position, position + size, size):
            if failed is not None:
                self._tell(self.path, at, at + len(piece))
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)


class ReadOnlyDisk(Disk):
    """A disk that opens files for reading only. An unreadable block is told once."""

    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self._findings = findings
        self._told: dict[Path, set[int]] = {}

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
        assert not create, path
        return PatientHandle(super().open(path, writable=False), self, self._unreadable)

    def map(self, handle: Handle, size: int, *, writable: bool) -> mmap:
        """A copy where the disk cannot read all of it: the mapping would end the process.

        Raises: FileNotFoundError where its broker has deleted it since it was opened.
        """
        self.keep_whole(handle)
        if handle.size() < size:
            raise FileNotFoundError(errno.ENOENT, "was deleted meanwhile", str(handle.path))
        for position in range(0, size, PIECE_BYTES):
            handle.pread(min(PIECE_BYTES, size - position), position)
        if handle.path not in self._told:
            return super().map(handle, size, writable=False)
        copy = self.memory(size)
        for position in range(0, size, PIECE_BYTES):
            data = handle.pread(min(PIECE_BYTES, size - position), position)
            copy[position : position + len(data)] = data
        return copy

    def _unreadable(self, path: Path, begin: int, end: int) -> None:
        blocks = self._told.setdefault(path, set())
        if begin // BLOCK_BYTES not in blocks:
            blocks.add(begin // BLOCK_BYTES)
            text = f"bytes {begin} to {end} of the file cannot be read by the disk"
            self._findings.damaged("unreadable", path, text)


class Directory:
    """The files below one root. `live`: a broker runs there; `clean`: its last stop was clean."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        findings: Findings,
        *,
        live: bool,
        log: Path | None = None,
        owner: str = "",
    ) -> None:
        """`log` is the directory of the log, None for the one in `root`; `owner` the last run's
        name in the lock file, "" where another broker was here since.
        """
        self.root = root
        self.disk = disk
        self.live = live
        self.clean = not live and not disk.exists(root / ABORT)
        self.checkpoint = CheckpointFile(disk, root / CHECKPOINT).load()
        self._findings = findings
        self._point = RecoveryPointFile(disk, root / RECOVERY_POINT).load()
        self.safe_end = 0 if self.clean else self._safe_end(owner)
        """After a crash: all of the log before this byte was on disk, by the last run's record."""
        self.ours = bool(owner)
        """Whether no other broker was here since ours."""
        self.log = CommitLog(disk, log or root / COMMIT_LOG, SEGMENT_BYTES)
        self._list_segments()
        self.queues = dict(self._list_queues())

    def _safe_end(self, owner: str) -> int:
        point = self._point
        valid = point is not None and owner == point.owner
        return point.log_end if point and valid and self.disk.exists(self.root / CHECKPOINT) else 0

    @cached_property
    def whole_until(self) -> int:
        """No queue is lost that had units of messages before this byte of the log; 0 if nothing
        says so.

        The last recovery point has the sum of the ends of all queues there, and nothing adds to it
        later: whatever is lost makes the sum here smaller.
        """
        point, units = self._point, 0
        if point is None or self.clean:
            return 0
        for queue in self.queues.values():
            with self.reader(queue) as reader:
                units += reader.first_at(point.queues_end, queue.first, queue.end)
        return point.queues_end if units == point.queues_units else 0

    # ── Segments ──

    def _list_segments(self) -> None:
        queue = self.log.queue
        sizes = {}
        for name, size in self.disk.entries(queue.directory).items():
            if size == LINK:
                self._damaged("name", queue.directory / name, "is a symbolic link")
            elif size is not None:
                sizes[name] = size
            elif segment_start(name) is not None:
                self._damaged("name", queue.directory / name, "is a directory")
        queue.file_size = usual_size(sizes.values(), SEGMENT_BYTES)
        for name, size in sizes.items():
            path, start = queue.directory / name, segment_start(name)
            if start is None:
                self._damaged("name", path, "is no segment file")
            elif size:
                queue.files.append(MappedFile(self.disk, path, start, size, used=size))
            if start is not None and size != queue.file_size:
                self._wrong_size(path, size, queue.file_size, last=name == max(sizes))
        for file, following in pairwise(queue.files):
            if file.end < following.start and file.size == queue.file_size:
                path = queue.path_of(file.end)
                self._damaged(HOLE, path, f"is missing in front of {following.path.name}")

    def _wrong_size(self, path: Path, size: int, usual_size: int, *, last: bool) -> None:
        text = f"has {size} bytes, files of its kind {usual_size}"
        if not size and last and not self.clean:
            self._findings.noted("size", path, f"{text}: a crash came while it was made")
        else:
            self._damaged("size", path, text)

    # ── Queues ──

    def _list_queues(self) -> Iterator[tuple[tuple[str, int], Queue]]:
        for queue, sizes in queues_below(str(self.root / CONSUME_QUEUE), self):
            self._look_at_names(queue, sizes)
            yield (queue.topic, queue.queue_id), queue

    def _look_at_names(self, queue: Queue, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
            path, start = Path(queue.path, name), segment_start(name)
            if start is None or start not in queue.starts:
                self._damaged("name", path, "is no file of a consume queue")
                continue
            if size != queue.file_bytes:
                self._wrong_size(path, size, queue.file_bytes, last=name == max(sizes))
            if start != queue.starts[0] and start - queue.file_bytes not in queue.starts:
                self._damaged(CQ_MISSING, path, "has no file in front of it")

    def reader(self, queue: Queue) -> QueueReader:
        """A context manager that reads the units of a queue."""
        return QueueReader(queue, lambda path: self.disk.open(Path(path), writable=False))

    # ── Names ──

    def folders(self, path: str) -> list[str]:
        """As `Listing`."""
        return self.disk.folders(Path(path))

    def sizes(self, path: str) -> dict[str, int]:
        """As `Listing`."""
        sizes = {}
        for name in self.disk.listdir(Path(path)):
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = self.disk.size(Path(path, name))
        return sizes

    def _damaged(self, kind: str, path: Path, text: str) -> None:
        self._findings.damaged(kind, path, text)


@contextlib.contextmanager
def opened(root: Path, findings: Findings, log: Path | None = None) -> Iterator[Directory]:
    """Open the directory, locked unless a broker runs there (`live`) or permissions forbid it.

    `log` is the directory of the log where it is not in the data directory. Raises: StoreForeign,
    StoreUnusable, OSError.
    """
    disk = ReadOnlyDisk(findings)
    if not disk.is_directory(root):
        raise StoreUnusable(f"{root} is no directory")
    stores = locations(root, log, disk)
    if stores[0].root != root:
        names = ", ".join(str(store.root) for store in stores)
        raise StoreUnusable(f"{root} has the stores of several brokers: {names}")
    refuse_foreign(disk, root, in_group=True)
    lock = LockFile(Disk(), root / LOCK)
    live = False
    try:
        # A missing lock file is not locked, and a read-only tool must not create it.
        if disk.exists(lock.path):
            live = not taken(lock, findings)
        owner = lock.owner() if lock.held else ""
        directory = Directory(root, disk, findings, live=live, log=stores[0].log, owner=owner)
        yield directory
        directory.log.close()
    finally:
        lock.release()


def taken(lock: LockFile, findings: Findings) -> bool:
    """Whether no broker runs there; without the right to lock nobody can tell."""
    try:
        lock.acquire()
    except StoreLocked:
        findings.noted("live", lock.path, "a broker runs here: what it is writing is not looked at")
        return False
    except StoreUnusable as error:
        findings.noted("unlocked", lock.path, str(error))
    return True
