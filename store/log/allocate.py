"""Allocates the next log segment before it is needed, so that a roll is only a rename.

It is allocated when the last one is half full, and early enough where segments are small: a few
messages do not take the space of two. It grows outside the log's directory, under a name that no
broker reads, and is renamed when the log rolls; where that cannot be, in the directory under its
own name, as Java's brokers make theirs (decision 0011). No space for a segment that is not needed
yet does no harm.

A roll that comes before the segment is ready does not wait, since that would block the loop: it
raises SegmentLate, and `after_wait` tells when to try again. A segment that cannot be allocated, or
that a slow disk does not finish within `LATE_S`, stops writes; it is retried every ten seconds, and
as soon as space was freed, and writes resume when it is there.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.errors import SegmentLate
from aerobee.store.listeners import Listeners

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.stats import StoreStats

RETRY_S = 10.0
LATE_S = 2.0
"""How long puts that need the next segment are postponed before writes are refused."""
AHEAD_BYTES = 128 << 20
"""The next segment is allocated when so little is left in the last one, even if that is not half
full."""
LOOK_S = 0.25
"""Seconds between two checks of that: 50 MB of appends at 200 MB/s."""

log = structlog.get_logger(__name__)


class Allocator:
    """Allocates the next log segment before it is needed.

    Source: store format §1.1 (AllocateMappedFileService).
    """

    def __init__(
        self,
        commit_log: CommitLog,
        disk: Disk,
        stats: StoreStats,
        *,
        on_missing: Callable[[OSError], None],
        on_recovered: Callable[[], None],
    ) -> None:
        """`on_missing`: a needed segment cannot be allocated; `on_recovered`: now it could."""
        self._log = commit_log
        self._disk = disk
        self._stats = stats
        self._on_missing = on_missing
        self._on_recovered = on_recovered
        self.after_wait: Listeners[[]] = Listeners()
        """Called when a late segment is there, or will not be there soon."""
        self._running = False
        self._ended = False
        """A stop needs no other segment, and has a better use for its room."""
        self.ready: Handle | None = None
        """The next segment, when it is ready."""
        self._place: Path | None = None
        """Where the next segment lies, or grows."""
        self._wanted = trio.Event()
        self._missed = trio.Event()
        """Set by a roll whose segment was late."""
        self._again = trio.Event()
        self._warned = False
        self.starving = False
        """A needed segment could not be allocated, or a record not be written."""
        self._gives_back = False
        """Whether the segment that is ready has to go."""

    @property
    def segment_bytes(self) -> int:
        """The size of the next segment."""
        return self._log.segment_bytes

    def roll(self, size: int) -> None:
        """Have the log go on in the next segment, with room for `size` bytes.

        Raises: SegmentLate; OSError where it cannot be made now, which is tried again.
        """
        try:
            self._log.roll(size)
        except OSError as error:
            self.starved(error)
            raise
        self._stats.segments_rolled += 1
        log.info("commit_log.rolled", physical_offset=self._log.max_offset)

    def new_segment(self, path: Path, size: int) -> Handle:
        """The allocated file of the next segment, under its name.

        While `run` allocates the segments this never blocks; without it the file is allocated here.
        Raises: SegmentLate, OSError.
        """
        self._wanted.set()
        handle = self._take(path)
        if handle is None:
            if not self._running:
                return self._disk.allocate(path, size)
            self._missed.set()
            self._again.set()
            raise SegmentLate(f"{path} is not there yet")
        try:
            if self._place != path:
                assert self._place is not None, path
                self._disk.rename(self._place, path)
        except OSError:
            self.ready = handle
            raise
        return handle

    def starved(self, error: OSError) -> None:
        """A needed segment could not be allocated: retry at once, then every ten seconds."""
        path = self._next_path()
        log.error("commit_log.segment_refused", path=str(path), error=str(error))
        self._stats.allocations_failed += 1
        self._refuse(error)

    def unwritable(self, error: OSError) -> None:
        """A record could not be written to the last segment, which has room: blocks are missing,
        as a file system that copies on write needs more. The next segment is given back, and puts
        are taken again when there is room for it once more.
        """
        log.error("commit_log.append_failed", path=error.filename, error=str(error))
        self._gives_back = True
        self._refuse(error)

    def _refuse(self, error: OSError) -> None:
        self.starving = True
        self._on_missing(error)
        self._wanted.set()
        self._end_wait()

    def _end_wait(self) -> None:
        """Let those that got SegmentLate try again."""
        if self._missed.is_set():
            self._missed = trio.Event()
            if (tell := self.after_wait.tell) is not None:
                tell()

    def retry(self) -> None:
        """Space may have been freed: retry now."""
        self._again.set()

    def _take(self, path: Path) -> Handle | None:
        handle, self.ready = self.ready, None
        if handle is not None and handle.path != path:
            self._drop(handle)
            return None
        return handle

    def _next_path(self) -> Path:
        return self._log.queue.path_of(self._log.queue.next_start())

    def _due(self) -> bool:
        """Whether the next segment should be allocated."""
        if self._ended:
            return False
        if self.starving or self._missed.is_set():
            return True
        left = self._log.queue.next_start() - self._log.max_offset
        return left <= max(self._log.segment_bytes // 2, AHEAD_BYTES)

    async def run(self) -> None:
        """Allocate the next segment when it is due; until cancelled."""
        self._running = True
        try:
            while True:
                # Before the attempt, so that wishes of the meantime are not lost.
                self._wanted, self._again = trio.Event(), trio.Event()
                if self._gives_back:
                    self._gives_back = False
                    await self._give_back()
                    with trio.move_on_after(RETRY_S):
                        await self._again.wait()
                elif not self._due():
                    with trio.move_on_after(LOOK_S):
                        await self._wanted.wait()
                elif await self._prepare(self._next_path()):
                    await self._wanted.wait()
                else:
                    with trio.move_on_after(RETRY_S):
                        await self._again.wait()
        finally:
            self._running = False

    async def _prepare(self, path: Path) -> bool:
        """Allocate the segment; False: it is impossible now."""
        if self.ready is None or self.ready.path != path:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._refuse_when_late, path)
                try:
                    # Cancellation waits for the thread: the file that it has allocated is never
                    # lost.
                    self.ready = await self._disk.in_thread(
                        self._make, path, self._log.segment_bytes
                    )
                except OSError as error:
                    self._failed(path, error)
                    return False
                finally:
                    nursery.cancel_scope.cancel()
        if self._ended:
            await self._give_back()
            return False
        self._warned = False
        if self.starving and not self._gives_back:
            self.starving = False
            self._on_recovered()
        self._end_wait()
        return True

    async def _give_back(self) -> None:
        """Remove the unused file; where that fails, the next start does."""
        try:
            await self._disk.in_thread(self.discard)
        except OSError as error:
            log.warning("store.reserve_failed", error=str(error))

    async def _refuse_when_late(self, path: Path) -> None:
        await self._missed.wait()
        await trio.sleep(LATE_S)
        self.starved(TimeoutError(errno.ETIMEDOUT, "the disk is too slow to make it", str(path)))

    def _failed(self, path: Path, error: OSError) -> None:
        if self._missed.is_set():
            self.starved(error)
        elif not self._warned:
            self._warned = True
            log.warning("commit_log.no_room_ahead", path=str(path), error=str(error))

    def _make(self, path: Path, size: int) -> Handle:
        self._disk.mkdir(path.parent)
        place = self._disk.place_of(path, size)
        handle = self._disk.open(place, create=True)
        self._place = place
        handle.path = path
        try:
            handle.truncate(0)
            handle.truncate(size)
            self._disk.fill(handle, size)
            self._disk.sync(handle)
        except OSError:
            self._drop(handle)
            raise
        return handle

    def _drop(self, handle: Handle) -> None:
        handle.close()
        place, self._place = self._place, None
        if place is not None:
            self._disk.remove(place, missing_ok=True)

    def end(self) -> None:
        """Make no segment ahead any more, and remove the one that is there: nothing is put from now
        on. For a thread. Raises: OSError.
        """
        self._ended = True
        self.discard()

    def discard(self) -> None:
        """Remove the unused file. For a thread. Raises: OSError."""
        handle, self.ready = self.ready, None
        if handle is not None:
            self._drop(handle)
