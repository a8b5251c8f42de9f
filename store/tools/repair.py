"""Repairs a damaged directory so that a broker starts on it, and states what is lost.

There are two remedies: the log is truncated at its first unreadable record; and consume queues or
index files that disagree with the log are rebuilt by the next start. Invariant: whatever is cut or
moved is in `repair-TIME` below the root, durably, before anything else changes; a directory of a
running broker is never changed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from aerobee.store.errors import StoreLocked
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile
from aerobee.store.format.faults import IN_THE_LOG, IN_THE_QUEUES
from aerobee.store.format.names import ABORT, CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, INDEX, LOCK
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.recovery.abort_file import AbortFile
from aerobee.store.tools.directory import Directory, opened
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.passage import Passage
from aerobee.store.tools.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.tools.verify import ReadJson, Verification

__all__ = ["Plan", "plan", "repair"]

REBUILT = IN_THE_QUEUES | {"lost"}
"""Kinds of damage that are gone after a start has rebuilt the consume queues."""
COPY_BYTES = 1 << 20


class Plan(msgspec.Struct):
    """The plan of a repair; `cut_at` is a physical offset, None when the log is not truncated."""

    path: str
    needed: bool = False
    cut_at: int | None = None
    cut_messages: int = 0
    """Intact messages after the cut: lost, except in the copy."""
    queues: bool = False
    """Whether the next start rebuilds the consume queues."""
    index: bool = False
    """Whether the next start rebuilds the index files."""
    left: list[str] = msgspec.field(default_factory=list)
    """Damage that only a restored copy of the files can repair."""
    kept_in: str | None = None
    """The directory with the cut bytes and moved files, after the repair."""


def plan(root: Path, read_json: ReadJson = msgspec.json.decode) -> Plan:
    """Verify the directory and choose the remedies; changes nothing.

    Raises: StoreRefused, StoreLocked in use, OSError.
    """
    # Ahead of the long way through the log, and once more behind it.
    with opened(root, Findings()) as directory:
        refuse_live(directory)
    found = verify(root, read_json=read_json)
    refuse_live(found)
    made = decided(found)
    if made.cut_at is not None:
        with opened(root, Findings()) as directory:
            passage = Passage(directory, Findings())
            made.cut_messages = sum(position >= made.cut_at for position, _ in passage)
    return made


def refuse_live(seen: Directory | Verification) -> None:
    """Raise StoreLocked where a broker runs."""
    if seen.live:
        root = seen.root if isinstance(seen, Directory) else seen.path
        raise StoreLocked(f"{root} is in use: stop that broker before a repair")


def decided(found: Verification) -> Plan:
    """The remedies for the findings of a verification."""
    offsets = [
        one.physical_offset
        for one in found.damage
        if one.kind in IN_THE_LOG and one.physical_offset is not None
    ]
    cut_at = min(offsets, default=None)
    mended = REBUILT | {"checkpoint", "index"}
    if cut_at is not None:
        mended |= IN_THE_LOG
    return Plan(
        found.path,
        # A missing segment must be restored first: no start succeeds without it.
        needed="hole" not in found.counts and bool(mended & set(found.counts)),
        cut_at=cut_at,
        queues=cut_at is not None or bool(REBUILT & set(found.counts)),
        index=cut_at is not None or "index" in found.counts,
        left=[f"{one.place}: {one.text}" for one in found.damage if one.kind not in mended],
    )


def repair(root: Path, wanted: Plan, now_ms: int) -> Path:
    """Repair under the lock; returns the directory of the copies. Raises: StoreRefused, OSError."""
    disk = Disk()
    lock = LockFile(disk, root / LOCK)
    lock.acquire()
    try:
        time = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
        kept = root / f"repair-{time:%Y%m%dT%H%M%S}"
        disk.mkdir(kept)
        log = CommitLog(disk, root / COMMIT_LOG, 1)
        if wanted.cut_at is not None:
            log.load()
            keep_segments(disk, log, wanted.cut_at, kept)
        # From here on a start recovers from the whole log, even after a crash of this repair.
        AbortFile(disk, root / ABORT).create()
        moved = [CHECKPOINT]
        moved += [CONSUME_QUEUE] if wanted.queues else []
        moved += [INDEX] if wanted.index else []
        for name in moved:
            if disk.exists(root / name):
                disk.rename(root / name, kept / name)
        disk.sync_directory(kept)
        disk.sync_directory(root)
        if wanted.cut_at is not None:
            log.truncate(wanted.cut_at)
            log.close()
    finally:
        lock.release()
    return kept


def keep_segments(disk: Disk, log: CommitLog, cut_at: int, kept: Path) -> None:
    """Copy every segment that the truncation changes."""
    disk.mkdir(kept / COMMIT_LOG)
    for file in log.queue.files:
        if file.end > cut_at:
            with disk.open(kept / COMMIT_LOG / file.path.name, create=True) as target:
                for at in range(0, file.size, COPY_BYTES):
                    target.pwrite(file.open().pread(COPY_BYTES, at), at)
                disk.sync(target)
    disk.sync_directory(kept / COMMIT_LOG)
