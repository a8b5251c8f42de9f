"""Repairs a damaged directory so that a broker starts on it, and states what is lost.

There are two remedies: the log is truncated at its first unreadable record; and consume queues or
index files that disagree with the log are rebuilt by the next start. Invariants: whatever is cut or
moved is in `repair-TIME` below the root, durably, before anything else changes; a log that lacks a
segment, or all of them, is left as it is, with everything that has a start refuse it; a directory
of a running broker is never changed.
"""

from __future__ import annotations

import contextlib
import errno
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.store.errors import StoreLocked
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile, LogLock
from aerobee.store.format.faults import BEGIN, IN_THE_LOG, IN_THE_QUEUES
from aerobee.store.format.names import ABORT, CHECKPOINT, CONSUME_QUEUE, INDEX, LOCK
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.recovery.abort_file import AbortFile
from aerobee.store.recovery.cut import copy, keep_segments, remove_below
from aerobee.store.recovery.start_check import refuse_foreign
from aerobee.store.tools.directory import Directory, opened
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.passage import Passage
from aerobee.store.tools.verify import verify

if TYPE_CHECKING:
    from aerobee.store.tools.findings import Finding
    from aerobee.store.tools.verify import ReadJson, Verification

REBUILT: Final = IN_THE_QUEUES | {"lost"}
"""Kinds of damage that are gone after a start has rebuilt the consume queues."""


class Plan(msgspec.Struct):
    """The plan of a repair; `cut_at` is a physical offset, None when the log is not truncated."""

    path: str
    log_path: str = ""
    """The directory of the log."""
    needed: bool = False
    cut_at: int | None = None
    cut_messages: int = 0
    """Intact messages after the cut: lost, except in the copy."""
    cut_bytes: int = 0
    """The size of those messages."""
    lost_messages: int = 0
    """Messages that consume queues know of and the log cannot show any more, repaired or not."""
    starts_unrepaired: bool = False
    """Whether all damage of the log is in front of the bytes that a start looks at: then a broker
    starts as it is, and readers leave out what is damaged."""
    queues: bool = False
    """Whether the next start rebuilds the consume queues."""
    index: bool = False
    """Whether the next start rebuilds the index files."""
    left: list[str] = msgspec.field(default_factory=list)
    """Damage that only a restored copy of the files can repair."""
    kept_in: str | None = None
    """The directory with the cut bytes and moved files, after the repair."""


def plan(root: Path, read_json: ReadJson = msgspec.json.decode, *, log: Path | None = None) -> Plan:
    """Verify the directory and choose the remedies; changes nothing.

    `log` is the directory of the log where it is not in `root`. Raises: StoreRefused, StoreLocked
    in use, OSError.
    """
    # A replica of a group gets what it has lost from its master, and nobody else.
    refuse_foreign(Disk(), root)
    # Ahead of the long way through the log, and once more behind it.
    with opened(root, Findings(), log) as directory:
        refuse_live(directory)
    verification = verify(root, log=log, read_json=read_json)
    refuse_live(verification)
    made = decided(verification)
    if made.cut_at is not None:
        with opened(root, Findings(), log) as directory:
            for position, header in Passage(directory, Findings()):
                if position >= made.cut_at:
                    made.cut_messages += 1
                    made.cut_bytes += header.size
    return made


def refuse_live(seen: Directory | Verification) -> None:
    """Raise StoreLocked where a broker runs."""
    if seen.live:
        root = seen.root if isinstance(seen, Directory) else seen.path
        raise StoreLocked(f"{root} is in use: stop that broker before a repair")


def decided(verification: Verification) -> Plan:
    """The remedies for the findings of a verification."""
    log, queues = Path(verification.log_path), Path(verification.path) / CONSUME_QUEUE
    kinds = REBUILT | {"checkpoint", "index"} | IN_THE_LOG
    in_queues = [
        finding for finding in verification.damage if queues in Path(finding.place).parents
    ]
    left = [
        finding
        for finding in verification.damage
        if finding.kind not in kinds and finding not in in_queues
    ]
    # No start succeeds on a log that lacks a segment behind others, whatever is mended beside it.
    hopeless = any(_is_in(log, finding) for finding in left if finding.kind != BEGIN)
    mended = bool(in_queues or kinds & set(verification.counts)) and not hopeless
    damaged_at = [
        finding.physical_offset
        for finding in verification.damage
        if finding.kind in IN_THE_LOG and finding.physical_offset is not None
    ]
    cut_at = None if hopeless else min(damaged_at, default=None)
    return Plan(
        verification.path,
        verification.log_path,
        needed=mended,
        cut_at=cut_at,
        lost_messages=verification.lost_messages,
        starts_unrepaired=bool(damaged_at)
        and max(damaged_at) < verification.safe_end
        and not left
        and not in_queues
        and not IN_THE_QUEUES & set(verification.counts),
        queues=mended
        and (cut_at is not None or bool(in_queues or REBUILT & set(verification.counts))),
        index=mended and (cut_at is not None or "index" in verification.counts),
        left=[f"{finding.place}: {finding.text}" for finding in left],
    )


def _is_in(log: Path, finding: Finding) -> bool:
    return log in (Path(finding.place), *Path(finding.place).parents)


def repair(root: Path, wanted: Plan, now_ms: int) -> Path:
    """Repair under the lock; returns the directory of the copies. Raises: StoreRefused, OSError."""
    assert wanted.needed, wanted
    disk = Disk()
    lock, log_lock = LockFile(disk, root / LOCK), LogLock(disk, Path(wanted.log_path))
    lock.acquire()
    try:
        log_lock.acquire()
        time = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
        kept = root / f"repair-{time:%Y%m%dT%H%M%S}"
        disk.mkdir(kept)
        log = CommitLog(disk, Path(wanted.log_path), 1)
        if wanted.cut_at is not None:
            log.load()
            keep_segments(disk, log, wanted.cut_at, kept)
        # From here on a start recovers from the whole log, even after a crash of this repair.
        AbortFile(disk, root / ABORT).create()
        disk.sync_directory(root)
        if disk.exists(root / CHECKPOINT):
            disk.rename(root / CHECKPOINT, kept / CHECKPOINT)
        places = [CONSUME_QUEUE] if wanted.queues else []
        places += [INDEX] if wanted.index else []
        for name in places:
            set_aside(disk, root / name, kept / name)
        disk.sync_directory(kept)
        disk.sync_directory(root)
        if wanted.cut_at is not None:
            log.truncate(wanted.cut_at)
            log.close()
    finally:
        log_lock.release()
        lock.release()
    return kept


def set_aside(disk: Disk, place: Path, kept: Path) -> None:
    """Move the contents of a directory, durably; the directory itself may be a mount point or a
    link to another disk, and stays. Nothing is removed before all of it is kept.
    """
    if not disk.exists(place):
        return
    disk.mkdir(kept)
    try:
        for name in disk.listdir(place):
            disk.rename(place / name, kept / name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_below(disk, place, kept)
        remove_below(disk, place)
    disk.sync_directory(kept)
    disk.sync_directory(place)
    # A mount point or a link cannot be removed, and stays.
    with contextlib.suppress(OSError):
        disk.remove_directory(place)


def copy_below(disk: Disk, place: Path, kept: Path) -> None:
    """Copy a directory with all below it, durably."""
    disk.mkdir(kept)
    for name, size in disk.entries(place).items():
        if size is None:
            copy_below(disk, place / name, kept / name)
        else:
            copy(disk, place / name, kept / name)
    disk.sync_directory(kept)
