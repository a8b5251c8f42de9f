"""All index files of a store, oldest first: loading, expiry, and which of them may hold a key.

Only the last file grows. A start keeps the files that are known to be good: after a clean stop all
with a valid header that do not reach beyond the end of the log, after a crash only full ones that
the checkpoint covers, and none that comes after a missing one or begins in front of the end of the
file before it. The rest is deleted, and the log is indexed again from there. A file keeps the
number of slots and entries that it was created with; the settings apply to new files. Files whose
names are no numbers are ignored.
Source: store format §1.4, §5.1, §5.4, §6.3 (IndexService).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from aerobee.store.files.local_time import local_stamp
from aerobee.store.format.index import IndexHead, IndexShape
from aerobee.store.format.names import index_name, is_index_name
from aerobee.store.index.index_file import IndexFile
from aerobee.store.index.index_walk import IndexWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.index.index_file import RecentChain

log = structlog.get_logger(__name__)


class Resume(NamedTuple):
    """Where indexing goes on."""

    physical_offset: int
    """The first message of which keys may be missing; 0 for the beginning of the log."""
    known_keys: int = 0
    """How many of its keys are in the index already."""


class Indexes:
    """Invariant: `files` is in order of names, and so of physical offsets; new ones get `shape`."""

    __slots__ = ("_disk", "directory", "files", "shape")

    def __init__(self, disk: Disk, directory: Path, shape: IndexShape) -> None:
        self._disk = disk
        self.directory = directory
        self.shape = shape
        self.files: list[IndexFile] = []

    @property
    def last(self) -> IndexFile | None:
        """The newest file."""
        return self.files[-1] if self.files else None

    @property
    def newest(self) -> str:
        """Its name; "" without one."""
        return self.files[-1].path.name if self.files else ""

    # ── Start ──

    def load(
        self,
        *,
        clean: bool,
        vouched_ms: int,
        log_end: int,
        whole: str | None,
        promise: Callable[[int], None],
    ) -> Resume:
        """Take over the files that can be believed, remove the others; blocking.

        `vouched_ms` is the checkpoint's time for the index, `whole` the newest file of a clean stop
        at which the index had all of this log. `promise` makes the checkpoint say less, before a
        file goes and where it covers one that is not full, as stops of old versions left it: after
        a kill a Java broker deletes that file, and takes what the time covers for indexed. Raises:
        OSError.
        """
        files = list(self._found())
        kept = len(files)
        for number, file in enumerate(files):
            believed = _believed(file, clean=clean, vouched_ms=vouched_ms, log_end=log_end)
            if not believed or (number and not file.follows(files[number - 1].head)):
                kept = number
                break
        self.files = files[:kept]
        dropped = files[kept:]
        safe = self._safe(vouched_ms)
        if dropped or safe < vouched_ms:
            promise(safe)
        self._drop(dropped)
        if clean and not dropped and whole == self.newest:
            return Resume(log_end)
        return self._resume(dropped[0] if dropped else None)

    def _safe(self, vouched_ms: int) -> int:
        """That time, or what is in full files only."""
        last = self.last
        if last is None:
            return 0
        # Messages that were stored before the last file begins are in the files before it.
        return min(vouched_ms, max(self.durable_timestamp, last.head.begin_timestamp - 1))

    def _found(self) -> Iterator[IndexFile]:
        for name in self._disk.listdir(self.directory):
            path = self.directory / name
            if not is_index_name(name) or self._disk.is_directory(path):
                log.warning("index.file_skipped", path=str(path))
                continue
            file = IndexFile(self._disk, path, self.shape)
            file.read_head()
            if file.fits and file.shape != self.shape and not file.full:
                log.warning(
                    "index.shape_kept",
                    path=str(path),
                    slots=file.shape.slots,
                    entries=file.shape.entries,
                )
            yield file

    def _drop(self, files: list[IndexFile]) -> None:
        # Newest first: whenever this ends, what is left is a beginning.
        for file in reversed(files):
            log.warning("index.file_dropped", path=str(file.path), **file.head._asdict())
            self._disk.remove(file.path)
        if files:
            self._disk.sync_directory(self.directory)

    def _resume(self, dropped: IndexFile | None) -> Resume:
        last = next((file for file in reversed(self.files) if not file.empty), None)
        if last is not None:
            # Not where the dropped file began: a Java broker leaves a gap before the file that it
            # makes in a recovery.
            at = last.head.end_physical_offset
            return Resume(at, last.entries_of(at))
        if dropped is not None and dropped.sound and not dropped.empty:
            return Resume(dropped.head.begin_physical_offset)
        return Resume(0)

    @property
    def durable_timestamp(self) -> int:
        """End time of the last full file; of those loaded, all are on disk."""
        return max((file.head.end_timestamp for file in self.files if file.full), default=0)

    # ── Files come and go ──

    def next_file(self, now_ms: int) -> IndexFile:
        """The file after the last one, which begins where that ends; neither created nor listed."""
        last = self.last
        stamp = local_stamp(now_ms)
        head = IndexHead()
        if last is not None:
            # Names order the files, whatever the clock says.
            stamp = max(stamp, int(last.path.name) + 1)
            end = last.head
            head = IndexHead(
                end.end_timestamp,
                end.end_timestamp,
                end.end_physical_offset,
                end.end_physical_offset,
            )
        return IndexFile(self._disk, self.directory / index_name(stamp), self.shape, head)

    def take_expired(self, min_physical_offset: int) -> list[IndexFile]:
        """Files, never the last, that lead only to messages before that; taken off the list."""
        count = 0
        for file in self.files[:-1]:
            if file.head.end_physical_offset >= min_physical_offset:
                break
            count += 1
        expired = self.files[:count]
        del self.files[:count]
        return expired

    def remove(self, files: Iterable[IndexFile]) -> None:
        """Unlink files that left the row. For a thread. Raises: OSError."""
        for file in files:
            self._disk.remove(file.path, missing_ok=True)
        self._disk.sync_directory(self.directory)

    async def delete_before(self, min_physical_offset: int) -> None:
        """The log begins there now: files that lead only to what is gone go, never the last."""
        expired = self.take_expired(min_physical_offset)
        if not expired:
            return
        try:
            await self._disk.in_thread(self.remove, expired)
        except OSError as error:
            # A file that keeps its name is found by the next start, and goes with the next file.
            log.warning("index.delete_failed", path=str(expired[0].path), error=str(error))
            return
        for file in expired:
            log.info("index.file_deleted", path=str(file.path), **file.head._asdict())

    # ── Queries ──

    def walk(
        self, key_hash: int, begin_ms: int, end_ms: int, recent: RecentChain | None = None
    ) -> IndexWalk:
        """The way of a query with that hash and range of times; `recent`: see `IndexWalk`."""
        return IndexWalk(reversed(self.files), key_hash, begin_ms, end_ms, recent)


def _believed(file: IndexFile, *, clean: bool, vouched_ms: int, log_end: int) -> bool:
    if not file.sound or file.head.end_physical_offset >= log_end:
        return False
    return clean or (file.full and file.head.end_timestamp <= vouched_ms)
