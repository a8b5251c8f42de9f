"""Which log segments are deleted: the plan of a clean-up. Pure.

Oldest first, never the last segment, never one that is not on disk or not dispatched yet; the first
one that stays ends the plan. A segment is expired when its modification and its newest record are
*both* older than the retention, so neither a copy that kept old dates nor a store written under a
wrong clock is enough. Forced deletion ends where the disk is below its limit again. With
waitForArchive a segment that is not archived stays, even if expired or requested, until the disk is
known to be above diskMaxUsedSpaceRatio.

A jump of the wall clock deletes nothing. `AgeMeter` compares it with the monotonic clock at every
check: skipped time did not pass, and does not count towards the age of anything written before the
jump, for the rest of the run. So a real correction (a machine that boots without a battery for its
clock) costs nothing but space, and a wrong one costs no message. A step back cancels earlier steps
forward, so an hour there and back leaves nothing. Messages that were written under a clock that ran
ahead look younger and stay longer. Time between two runs cannot be compared with anything: a start
that finds the newest record older than the tolerance distrusts that gap too, but only for an hour,
in which an operator can correct the clock, and consumers catch up.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.store.config import StoreConfig

JUMP_MS = 5_000
"""How far the two clocks may differ between two checks; slewing and busy loops stay below it."""
START_DISTRUST_S = 3_600.0
SKIPS_MAX = 64
HOUR_MS = 3_600_000


class Level(IntEnum):
    """How full a disk is, by the three limits of the configuration."""

    ROOM = 0
    HIGH = 1
    """Above diskMaxUsedSpaceRatio: expired segments go at any hour."""
    FORCED = 2
    """Above diskSpaceCleanForciblyRatio: the oldest go, expired or not."""
    FULL = 3
    """Above diskSpaceWarningLevelRatio: sends are refused as well."""


class Reason(StrEnum):
    """Why a segment is deleted."""

    EXPIRED = "expired"
    SPACE = "disk_full"


class LogFile(NamedTuple):
    """The properties of a segment that the plan needs."""

    start: int
    size: int
    mtime_ms: int
    newest_ms: int
    """Store time of its last record, or a little later; −1 when unknown."""
    archived: bool = False
    """Whether it has a valid mark."""


class Deletion(NamedTuple):
    """One decision of the plan."""

    file: LogFile
    reason: Reason
    missed_archive: bool = False
    """The segment was kept for its archive until the disk was too full."""


class _Skip(NamedTuple):
    """The wall clock jumped forward."""

    before_ms: int
    """The latest time before the jump: anything with a later date came after it."""
    length_ms: int


class AgeMeter:
    """Ages by the wall clock, without skipped time. Called every few seconds.

    Invariant: an age never exceeds the time of this run plus the trusted time before it.
    """

    def __init__(self, now_ms: int, monotonic_s: float, last_alive_ms: int = 0) -> None:
        """`last_alive_ms` is the newest time of the run before: the gap since then is
        distrusted.
        """
        self._now_ms = now_ms
        self._latest_ms = now_ms
        """The latest time the wall clock showed in this run."""
        self._monotonic_s = monotonic_s
        self.skips: list[_Skip] = []
        """Jumps of the wall clock, oldest first, at most SKIPS_MAX."""
        self._gap = _Skip(last_alive_ms, max(0, now_ms - last_alive_ms) if last_alive_ms else 0)
        self._gap_until_s = monotonic_s + START_DISTRUST_S

    def look(self, now_ms: int, monotonic_s: float) -> int:
        """Compare both clocks; returns by how many ms the wall clock jumped, 0 for none."""
        passed_ms = round((monotonic_s - self._monotonic_s) * 1_000)
        jump_ms = now_ms - self._now_ms - passed_ms
        # The clock may have been right until just before it jumped.
        before_ms = max(self._latest_ms, self._now_ms + passed_ms)
        self._now_ms, self._monotonic_s = now_ms, monotonic_s
        if jump_ms > JUMP_MS:
            self.skips.append(_Skip(before_ms, jump_ms))
            self._merge()
        elif jump_ms < -JUMP_MS:
            self._take_back(-jump_ms)
        self._latest_ms = max(before_ms, now_ms)
        return jump_ms if abs(jump_ms) > JUMP_MS else 0

    def _merge(self) -> None:
        """Bound the number of jumps; merged ones count as if they came with the later one."""
        if len(self.skips) > SKIPS_MAX:
            first, second = self.skips[:2]
            length_ms = first.length_ms + second.length_ms
            self.skips[:2] = [_Skip(max(first.before_ms, second.before_ms), length_ms)]

    def _take_back(self, length_ms: int) -> None:
        while length_ms and self.skips:
            last = self.skips.pop()
            part_ms = min(last.length_ms, length_ms)
            length_ms -= part_ms
            if last.length_ms > part_ms:
                self.skips.append(_Skip(last.before_ms, last.length_ms - part_ms))

    def age_ms(self, moment_ms: int) -> int:
        """How long ago that was; negative for a time in the future."""
        skips = self.skips
        if self._monotonic_s < self._gap_until_s:
            skips = [self._gap, *skips]
        skipped_ms = sum(skip.length_ms for skip in skips if moment_ms <= skip.before_ms)
        return self._now_ms - moment_ms - skipped_ms


def hours_of(delete_when: str) -> frozenset[int]:
    """The hours of the day of `deleteWhen`: "04;16" → {4, 16}."""
    return frozenset(int(hour) for hour in delete_when.split(";") if hour.strip())


def is_due(config: StoreConfig, level: Level, local_hour: int, *, manual: bool) -> bool:
    """Whether this pass deletes at all: by the hour, for space, or on request.

    Source: store format §6.1.
    """
    return manual or level >= Level.HIGH or local_hour in hours_of(config.delete_when)


def plan(
    files: Sequence[LogFile],
    elapsed: AgeMeter,
    config: StoreConfig,
    level: Level,
    *,
    excess_bytes: int,
    keep_from: int,
    crowded: bool,
) -> list[Deletion]:
    """The deletions of a pass that is due, oldest first, at most `deleteFileBatchMax` segments.

    `files` begins with the oldest segment; the last one given always stays. `excess_bytes` is what
    the disk holds above its limit, beyond what deleted files give back anyway. Bytes of the log
    from `keep_from` on are still needed. On a `crowded` disk nothing waits for its archive.
    Source: store format §6.1.
    """
    forced = level >= Level.FORCED and config.clean_file_forcibly_enable
    reserved_ms = config.file_reserved_time_h * HOUR_MS
    deletions: list[Deletion] = []
    freed = 0
    for file in files[:-1][: config.delete_file_batch_max]:
        missed = config.wait_for_archive and not file.archived
        if file.start + file.size > keep_from or (missed and not crowded):
            break
        if _expired(file, elapsed, reserved_ms):
            deletions.append(Deletion(file, Reason.EXPIRED, missed))
        elif forced and freed < excess_bytes:
            deletions.append(Deletion(file, Reason.SPACE, missed))
        else:
            break
        freed += file.size
    return deletions


def _expired(file: LogFile, elapsed: AgeMeter, reserved_ms: int) -> bool:
    times = (file.mtime_ms, file.newest_ms) if file.newest_ms >= 0 else (file.mtime_ms,)
    return all(elapsed.age_ms(moment_ms) >= reserved_ms for moment_ms in times)
