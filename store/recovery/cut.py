"""Cuts the end off a log, for a copy that has other messages there than its master.

In: a directory that is locked and not loaded, and the physical offset at which the log is to end.
Bytes that are cut stay readable in a directory below it. The steps, each on disk before the next
begins: the segments are copied; `cut.json` says that the log ends there; then the bytes go. A kill
in front of `cut.json` leaves the log as it was, and one behind it a log that the next start ends,
before it reads anything. So a tail is there or gone, and nothing is appended to a log that may get
it back. Queues, index and timers are built again by the start that follows, as after a crash.
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from aerobee.store.errors import StoreDamaged, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile, LogLock
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.faults import BLANK, NoRecord
from aerobee.store.format.names import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CUT_MARK,
    LAST_STOP,
    LOCK,
    QUEUE_EXTENTS,
    RECOVERY_POINT,
    TIMER_CHECK,
    TIMERS_DONE,
    backup_name,
    file_start,
)
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.recovery.abort_file import AbortFile
from aerobee.store.recovery.start_check import refuse_foreign

if TYPE_CHECKING:
    from pathlib import Path

COPY_BYTES: Final = 1 << 20
SEGMENT_BYTES: Final = 1 << 30
"""The size of segments where there are none; else they tell it."""
UNFINISHED: Final = ".new"
"""Behind the name of a copy that is not whole yet."""
OF_THE_LONGER_LOG: Final = (
    RECOVERY_POINT,
    LAST_STOP,
    QUEUE_EXTENTS,
    f"{CONFIG}/{TIMER_CHECK}",
    f"{CONFIG}/{TIMERS_DONE}",
    f"{CONFIG}/{backup_name(TIMERS_DONE)}",
)
"""Files that say how far something had come; without them it is found anew, and a timer whose copy
was cut is delivered again."""

log = structlog.get_logger(__name__)


class MarkStays(OSError):
    """The mark of a cut cannot be removed: the next start may end the log there, and until then
    nothing may be appended.
    """


class Cut(msgspec.Struct, frozen=True):
    """A cut, and the content of `cut.json` until it has ended."""

    offset: int
    """The end of the log from now on."""
    kept_in: str
    """The directory that has what was cut, with whole segments; below the data directory."""
    messages: int
    """So many whole messages were behind that."""
    size_bytes: int
    """The size of those messages."""
    store_timestamp: int
    """Of the last message in front of it, in ms; 0 where its segment has none."""


def look(disk: Disk, log_directory: Path, offset: int) -> Cut:
    """The loss by a cut at this offset, with no `kept_in`. Reads only.

    Raises: StoreUnusable where the log cannot end there, StoreDamaged, OSError.
    """
    log = _loaded(disk, log_directory)
    try:
        return _behind(log, offset)
    finally:
        log.close()


def segment_starts(disk: Disk, log_directory: Path) -> list[int]:
    """Where the segments of a log begin that are in use. Reads only. Raises: StoreDamaged, OSError.

    A record begins at each of them.
    """
    log = _loaded(disk, log_directory)
    try:
        heads = ((file.start, log.header_at(file.start)) for file in log.queue.files)
        return [start for start, header in heads if header is not None]
    finally:
        log.close()


def record_ends(disk: Disk, log_directory: Path, start: int) -> array[int]:
    """The begin of the segment that begins there, and the end of each of its records, in order.

    Reads only. Raises: StoreDamaged, OSError.
    """
    log = _loaded(disk, log_directory)
    try:
        walk = log.walk(start, start + log.segment_bytes)
        return array("q", (start, *(at + header.size for at, header in walk)))
    finally:
        log.close()


def begin(disk: Disk, root: Path, log_directory: Path, offset: int, *, keep_in: Path) -> Cut:
    """Keep the segments from `offset` on in `keep_in`, and have the next start end the log there.

    `keep_in` is below the data directory, and gets a number where it exists. Nothing may append to
    the log meanwhile, or before that start. Blocking. Raises: as `look`, OSError; then nothing has
    changed. MarkStays: that is not sure.
    """
    log = _loaded(disk, log_directory)
    try:
        loss = _behind(log, offset)
        kept = _free(disk, keep_in)
        _keep(disk, log, offset, kept)
    finally:
        log.close()
    made = msgspec.structs.replace(loss, kept_in=str(kept.relative_to(root)))
    try:
        disk.write_atomically(root / CUT_MARK, msgspec.json.encode(made), backup=False)
    except OSError:
        # The mark can be there all the same: the log grows again, and no start may end it here.
        forget(disk, root)
        raise
    return made


def forget(disk: Disk, root: Path) -> None:
    """Give up a cut that has begun, durably; without one nothing is done. Raises: MarkStays."""
    try:
        disk.remove_durably(root / CUT_MARK)
    except OSError as error:
        raise MarkStays(error.errno, error.strerror, error.filename) from error


def cut(disk: Disk, root: Path, log_directory: Path, offset: int, *, keep_in: Path) -> Cut:
    """Begin a cut and end it: the log ends there now. The directory is locked, and not loaded.

    Raises: as `begin`; OSError: nothing has changed, or the next start ends the cut.
    """
    made = begin(disk, root, log_directory, offset, keep_in=keep_in)
    finish(disk, root, log_directory)
    return made


def cut_locked(root: Path, log_directory: Path, offset: int, *, keep_in: Path) -> Cut:
    """Cut the log of a directory that nobody has locked; where it lies in that of another broker,
    both are locked. Raises: StoreRefused, OSError as `cut`.
    """
    disk = Disk()
    refuse_foreign(disk, root)
    other = log_directory.absolute().parent
    theirs = [other] if other != root.absolute() and disk.exists(other / LOCK) else []
    with ExitStack() as locked:
        for directory in (root, *theirs):
            lock = LockFile(disk, directory / LOCK)
            lock.acquire()
            locked.callback(lock.release)
        log_lock = LogLock(disk, log_directory)
        log_lock.acquire()
        locked.callback(log_lock.release)
        finish(disk, root, log_directory)
        return cut(disk, root, log_directory, offset, keep_in=keep_in)


def unfinished(disk: Disk, root: Path) -> Cut | None:
    """The cut that has begun here and not ended. Raises: StoreDamaged, OSError."""
    path = root / CUT_MARK
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=Cut)
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"{path} says where the log was being cut, and does not decode ({error}): move it away,"
            " and the log stays as it is"
        ) from error


def finish(disk: Disk, root: Path, log_directory: Path) -> None:
    """End a cut that has begun; without one nothing is done. The directory is locked, not loaded.

    Raises: StoreDamaged, also where another log is there, OSError; then the next call ends it.
    """
    begun = unfinished(disk, root)
    if begun is None:
        return
    _check_there(disk, root, log_directory, begun.offset)
    # From here on a start recovers, and believes nothing that knew of the longer log.
    AbortFile(disk, root / ABORT).create()
    for name in OF_THE_LONGER_LOG:
        path = root / name
        if disk.exists(path):
            disk.remove(path)
            disk.sync_directory(path.parent)
    _believe_less(disk, root, begun.store_timestamp)
    segments = _loaded(disk, log_directory)
    try:
        segments.truncate(begun.offset)
        if (last := segments.queue.last) is not None:
            # After a kill the page cache may have zeros that no disk has.
            last.sync()
    finally:
        segments.close()
    disk.remove(root / CUT_MARK)
    disk.sync_directory(root)
    log.warning("commit_log.cut", **msgspec.structs.asdict(begun))


def _check_there(disk: Disk, root: Path, log_directory: Path, offset: int) -> None:
    """Check that the log reaches the cut: where it is elsewhere it may be not mounted, or not the
    one that was being cut. Ended without it, the cut would be forgotten. Raises: StoreDamaged,
    OSError.
    """
    segments = _loaded(disk, log_directory)
    end = segments.max_offset
    segments.close()
    if end < offset:
        raise StoreDamaged(
            f"{root / CUT_MARK} ends the log at {offset}, and that in {log_directory} ends at {end}"
            " before it: have the right log there (storePathCommitLog), or move the file away if"
            " the cut is to be given up"
        )


def _loaded(disk: Disk, log_directory: Path) -> CommitLog:
    log = CommitLog(disk, log_directory, SEGMENT_BYTES)
    log.load()
    return log


def _behind(log: CommitLog, offset: int) -> Cut:
    """The records behind the offset. Raises: StoreUnusable, StoreDamaged, OSError."""
    begin = log.min_offset
    if not begin < offset < log.max_offset:
        raise StoreUnusable(
            f"{log.queue.directory} has a log from {begin} to {log.max_offset}: it cannot be cut at"
            f" {offset}; to give up all of it, keep the data directory aside and begin with an"
            " empty one"
        )
    start = file_start(offset - 1 - begin, log.segment_bytes) + begin
    ends_at, stored = _end_in_front(log, start, offset)
    if ends_at != offset:
        raise StoreUnusable(
            f"no message of the log in {log.queue.directory} ends at {offset}; the last one in"
            f" front of it ends at {ends_at}"
        )
    messages = size_bytes = 0
    for _, header in log.walk(offset):
        messages += 1
        size_bytes += header.size
    if not messages and not _is_blank(log, offset):
        raise StoreUnusable(f"the log in {log.queue.directory} has no message behind {offset}")
    return Cut(offset, "", messages, size_bytes, stored)


def _is_blank(log: CommitLog, offset: int) -> bool:
    """Whether a segment ends there: its log has gone on to the next, if only with no message."""
    file = log.queue.find(offset)
    return file is not None and log.parse_at(file, offset) == NoRecord(BLANK)


def _end_in_front(log: CommitLog, start: int, offset: int) -> tuple[int, int]:
    """The last end of a message, or begin of a segment, up to the offset; the latest store time."""
    walk = log.walk(start, offset)
    end, stored = start, 0
    for position, header in walk:
        if position + header.size > offset:
            return end, stored
        end, stored = position + header.size, max(stored, header.store_timestamp)
    return walk.stop.physical_offset, stored


def _free(disk: Disk, wanted: Path) -> Path:
    """The wanted name, or the first with a number that is not taken: no copy is ever replaced."""
    names = (wanted if not n else wanted.with_name(f"{wanted.name}-{n}") for n in count())
    return next(path for path in names if not disk.exists(path))


def _keep(disk: Disk, log: CommitLog, offset: int, kept: Path) -> None:
    """Copy the segments, durably; the copy has its name once it is whole. Raises: OSError."""
    disk.mkdir(kept.parent)
    made = kept.with_name(kept.name + UNFINISHED)
    if disk.exists(made):
        remove_below(disk, made)
    disk.mkdir(made)
    try:
        keep_segments(disk, log, offset, made)
    except OSError:
        remove_below(disk, made)
        disk.remove_directory(made)
        raise
    disk.sync_directory(made)
    disk.rename(made, kept)
    disk.sync_directory(kept.parent)


def keep_segments(disk: Disk, log: CommitLog, cut_at: int, kept: Path) -> None:
    """Copy every segment that a truncation changes into `kept`, durably. Raises: OSError."""
    disk.mkdir(kept / COMMIT_LOG)
    for file in log.queue.files:
        if file.end > cut_at:
            copy(disk, file.path, kept / COMMIT_LOG / file.path.name)
    disk.sync_directory(kept / COMMIT_LOG)


def copy(disk: Disk, path: Path, target: Path) -> None:
    """Copy a file, durably, without the zeros that were never written. Raises: OSError."""
    with disk.open(path, writable=False) as source, disk.open(target, create=True) as made:
        size = source.size()
        made.truncate(size)
        for at in range(0, size, COPY_BYTES):
            piece = source.pread(COPY_BYTES, at)
            if any(piece):
                made.pwrite(piece, at)
        disk.sync(made)


def remove_below(disk: Disk, place: Path) -> None:
    """Remove all below a directory. Raises: OSError."""
    for name, size in disk.entries(place).items():
        if size is None:
            remove_below(disk, place / name)
            disk.remove_directory(place / name)
        else:
            disk.remove(place / name)


def _believe_less(disk: Disk, root: Path, store_timestamp: int) -> None:
    """Have the checkpoint promise nothing behind the cut. Raises: OSError."""
    checkpoint = CheckpointFile(disk, root / CHECKPOINT)
    if disk.exists(checkpoint.path):
        less = checkpoint.load().clamped(store_timestamp)
        checkpoint.write(
            less.physic_msg_timestamp, less.logics_msg_timestamp, less.index_msg_timestamp
        )
