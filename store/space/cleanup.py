"""Deletes log segments: checks clocks and disks, asks for the plan, executes it.

`retention` decides which segments are deleted, `watermark` whether sends are refused; the deleting
is here. Order of a pass: segments, one per interval, each removed from the log (no new reader finds
it) before its name is deleted; then the queues (`cleanup_queues`), then followers. A crash in
between does no harm: a start corrects the minimums.

Files are deleted in threads, because that takes time in proportion to their size. The name of a
segment with readers is deleted at once, its mapping when the last of them is done, never before;
`destroyMapedFileIntervalForcibly` only says when that is logged, and space held by readers is not
made up for by deleting more. A segment whose name cannot be deleted is retried every
`redeleteHangedFileInterval`; until then none behind it is deleted, since the next start would find
a gap in the log.

Marks of archived segments (`archive_marks`) are checked in every pass and once before the first
message of a run is stored, when marks of data lost in a crash can still be recognized. They are
removed with their segments.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from aerobee.store.errors import SyncFailed, Unreadable
from aerobee.store.log.segment_head import first_store_time
from aerobee.store.space.retention import AgeMeter, Level, LogFile, Reason, is_due, plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.shared import Contents, Runtime
    from aerobee.store.space.archive_marks import ArchiveMarks
    from aerobee.store.space.cleanup_queues import QueueCleanup
    from aerobee.store.space.retention import Deletion
    from aerobee.store.space.watermark import DiskWatch

FIRST_PASS_S: Final = 60.0
"""The first pass comes after this: a broker that was down for long serves its consumers first."""
LOOK_S: Final = 10.0
"""The longest time between two checks of clocks and disks, whatever the interval of the
clean-up."""
REFUSING_LOOK_S: Final = 1.0
"""The longest time between two checks while sends are refused."""
MANUAL_PASSES: Final = 20
"""Passes that delete at any hour after DELETE_EXPIRED_COMMITLOG."""

log = structlog.get_logger(__name__)


class _HeldSegment(NamedTuple):
    """A deleted segment with readers, and when it was deleted, by the monotonic clock."""

    file: MappedFile
    since_s: float


@dataclass(frozen=True, slots=True)
class CleanupHooks:
    """Callbacks of a pass."""

    local_hour: Callable[[int], int]
    """The hour of the day at a time in ms."""
    on_pass: Callable[[], Awaitable[None]]
    """Runs after each check of the disks."""
    on_failed: Callable[[OSError], None]
    """A directory could not be synced: final for the run."""


class Cleanup:
    """Deletes log segments by age and by disk usage.

    Source: store format §6.1 (CleanCommitLogService).

    Invariant: the last segment is never deleted, nor any from the first byte that is not flushed
    and dispatched.
    """

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        queues: QueueCleanup,
        watch: DiskWatch,
        marks: ArchiveMarks,
        runtime: Runtime,
        hooks: CleanupHooks,
    ) -> None:
        self.config = config
        self.queues = queues
        self._log = contents.commit_log
        self._dispatcher = contents.dispatcher
        self._watch = watch
        self._disk = runtime.disk
        self._clock = clock = runtime.clock
        self._stats = runtime.stats
        self._hooks = hooks
        self._marks = marks
        self._archived: frozenset[int] = frozenset()
        """Starts of the archived segments, at the last check."""
        self._made = clock.now_ms(), clock.monotonic()
        """The first readings of both clocks: a jump during the start counts like any other."""
        self._elapsed = AgeMeter(*self._made)
        self._held: list[_HeldSegment] = []
        self._warned: set[int] = set()
        """Starts of the segments held by readers that were logged."""
        self._hanged: MappedFile | None = None
        self._hanged_since_s = 0.0
        self._stopped = False
        self.manual_passes = 0

    def request(self) -> None:
        """Delete expired segments at any hour, for the next passes (DELETE_EXPIRED_COMMITLOG)."""
        self.manual_passes = MANUAL_PASSES

    @property
    def held_bytes(self) -> int:
        """Space of deleted segments that is freed when their readers are done."""
        return sum(held.file.size for held in self._held)

    async def run(self) -> None:
        """Check at once and then every few seconds, clean up periodically; until cancelled."""
        clock = self._clock
        began = clock.monotonic()
        self._elapsed = AgeMeter(*self._made, self._log.last_store_timestamp)
        await self.look_at_marks()
        self.queues.followed = self._log.min_offset
        due_at = began + FIRST_PASS_S
        while True:
            await self.look()
            if clock.monotonic() >= due_at:
                await self.clean()
                due_at = clock.monotonic() + self.config.clean_resource_interval_ms / 1000
            await trio.sleep(max(0.0, min(self._pause_s(), due_at - clock.monotonic())))

    def _pause_s(self) -> float:
        longest = REFUSING_LOOK_S if self._watch.refusing else LOOK_S
        return min(longest, self.config.clean_resource_interval_ms / 1000)

    async def look(self) -> None:
        """Check both clocks and the disks, and tell those who wait for space."""
        jump_ms = self._elapsed.look(self._clock.now_ms(), self._clock.monotonic())
        if jump_ms:
            log.warning("cleanup.clock_jumped", jump_ms=jump_ms)
        await self._watch.look()
        await self._hooks.on_pass()
        if self._held and not self._stopped:
            await self._release()

    def age_ms(self, moment_ms: int) -> int:
        """How long ago that was at the last look, without skipped time."""
        return self._elapsed.age_ms(moment_ms)

    async def look_at_marks(self) -> None:
        """Check which full segments are archived, and how many are not yet."""
        log, waiting = self._log, self.config.wait_for_archive
        sizes = {file.start: file.size for file in log.queue.files}
        look = partial(self._marks.look, sizes, log.max_offset, make=waiting)
        self._archived = await self._disk.in_thread(look)
        full = list(sizes)[:-1]
        self._stats.segments_waiting = waiting * sum(at not in self._archived for at in full)

    async def clean(self) -> None:
        """One pass."""
        manual = self.manual_passes > 0
        self.manual_passes -= manual
        await self.look_at_marks()
        await self._retry_hanged()
        hour = self._hooks.local_hour(self._clock.now_ms())
        level = self._watch.level
        if is_due(self.config, level, hour, manual=manual):
            await self._delete_planned(level)
        await self.queues.follow(self._log.min_offset)

    # ── Segments ──

    async def _delete_planned(self, level: Level) -> None:
        for number, deletion in enumerate(await self._plan(level)):
            if number:
                await trio.sleep(self.config.delete_commit_log_files_interval_ms / 1000)
            first = self._log.queue.first
            if first is None or first.start != deletion.file.start or not self._may_delete:
                return
            if self._must_wait(deletion):
                return
            await self._delete(deletion)

    def _must_wait(self, deletion: Deletion) -> bool:
        """Whether waitForArchive was set since the plan was made, and this segment is not
        archived.
        """
        waits = self.config.wait_for_archive and not self._watch.crowded
        return waits and not (deletion.file.archived or deletion.missed_archive)

    @property
    def _may_delete(self) -> bool:
        return self._hanged is None and not self._stopped

    @property
    def _needed_from(self) -> int:
        """The first byte of the log that is not on disk yet, or that queues still need."""
        return min(self._log.flushed, self._dispatcher.dispatched)

    async def _plan(self, level: Level) -> list[Deletion]:
        if not self._may_delete:
            return []
        files = self._log.queue.files[: self.config.delete_file_batch_max + 1]
        if not files:
            return []
        facts = await self._disk.in_thread(self._facts, files)
        return plan(
            facts,
            self._elapsed,
            self.config,
            level,
            excess_bytes=self._watch.excess_bytes(self._log.segment_bytes) - self.held_bytes,
            keep_from=self._needed_from,
            crowded=self._watch.crowded,
        )

    def _facts(self, files: list[MappedFile]) -> list[LogFile]:
        """The input of the plan. For a thread; an unreadable segment ends the list."""
        known: list[LogFile] = []
        try:
            for file, following in zip(files, [*files[1:], None], strict=True):
                # A record of the next segment comes when this one is full: never before its last
                # record.
                newest_ms = -1 if following is None else self._first_time(following)
                mtime_ms = self._disk.mtime_ms(file.path)
                archived = file.start in self._archived
                known.append(LogFile(file.start, file.size, mtime_ms, newest_ms, archived))
        except OSError as error:
            log.warning("cleanup.segment_unreadable", error=str(error))
        return known

    def _first_time(self, file: MappedFile) -> int:
        """As `first_store_time`; −1 also where the disk cannot read it: the time of the file in
        front decides. Raises: OSError.
        """
        try:
            return first_store_time(self._disk, file.path, file.start)
        except Unreadable as error:
            log.warning("cleanup.segment_unreadable", error=f"byte 0: {error}")
            return -1

    async def _delete(self, deletion: Deletion) -> None:
        """Remove it from the log, then from the disk; its readers keep it."""
        file = self._log.queue.take_first()
        assert file.end <= self._needed_from, (file, "still needed")
        stats = self._stats
        stats.segments_deleted += 1
        stats.segments_forced += deletion.reason is Reason.SPACE
        stats.segments_unarchived += deletion.missed_archive
        began = self._clock.monotonic()
        if not await self._unlink(file):
            return
        log.info(
            "cleanup.file_deleted",
            path=str(file.path),
            reason=str(deletion.reason),
            used_percent=self._watch.log.used_percent,
            elapsed_ms=round((self._clock.monotonic() - began) * 1_000),
        )
        if deletion.missed_archive:
            used_percent = self._watch.log.used_percent
            log.warning(
                "cleanup.unarchived_deleted", path=str(file.path), used_percent=used_percent
            )

    async def _unlink(self, file: MappedFile) -> bool:
        """Delete the name, durably; False leaves it to the next attempt."""
        try:
            await self._disk.in_thread(self._remove, file)
        except SyncFailed as error:
            # The name may come back after a crash; the file behind it must be whole then.
            self._stopped = True
            self._hooks.on_failed(error)
        except OSError as error:
            self._hanged, self._hanged_since_s = file, self._clock.monotonic()
            log.warning("cleanup.delete_failed", path=str(file.path), error=str(error))
            return False
        self._hanged = None
        self._held.append(_HeldSegment(file, self._clock.monotonic()))
        if not self._stopped:
            await self._release()
        return True

    def _remove(self, file: MappedFile) -> None:
        """Delete the name, durably; the blocks stay with the handle. For a thread."""
        with contextlib.suppress(FileNotFoundError):
            file.open()
            self._disk.remove(file.path)
        self._marks.remove(file.start)
        self._disk.sync_directory(file.path.parent)

    async def _retry_hanged(self) -> None:
        pause_s = self.config.redelete_hanged_file_interval_ms / 1000
        if self._hanged and self._clock.monotonic() - self._hanged_since_s >= pause_s:
            await self._unlink(self._hanged)

    def close(self) -> None:
        """Close the deleted segments; views of them stay readable."""
        for file in (*(held.file for held in self._held), self._hanged):
            if file is not None:
                file.close()

    # ── Readers ──

    async def _release(self) -> None:
        """Unmap and close deleted segments without readers, which frees their space."""
        held = self._held
        free = await self._disk.in_thread(_release_all, [segment.file for segment in held])
        self._held = [segment for segment in held if segment.file not in free]
        now = self._clock.monotonic()
        self._warned &= {segment.file.start for segment in self._held}
        for file, since_s in self._held:
            waited_s = now - since_s
            late = waited_s * 1_000 >= self.config.destroy_maped_file_interval_forcibly_ms
            if late and file.start not in self._warned:
                self._warned.add(file.start)
                log.warning("cleanup.file_held", path=str(file.path), elapsed_s=round(waited_s))


def _release_all(files: list[MappedFile]) -> list[MappedFile]:
    """The segments that could be closed. For a thread."""
    free = []
    for file in files:
        try:
            if file.release():
                free.append(file)
        except OSError as error:
            log.warning("cleanup.release_failed", path=str(file.path), error=str(error))
            file.close()
            free.append(file)
    return free
