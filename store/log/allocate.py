"""The next log segment before it is needed, so that a roll is two renames' worth of time.

It is made when the last one is half full, and early enough where half of one is little: a few
messages do not take the room of two. It grows beside the log's directory, under a name no broker
looks at, and gets its own name when the log rolls. No room for a segment that is not needed yet
refuses nothing. One that is needed and cannot be had stops writes; it is tried again every ten
seconds, and as soon as someone has seen room for it, and writes go on when it succeeds. The same
holds for one that a slow disk does not finish in time: a roll stops the loop, so it waits for the
thread that makes the file no longer than `ROLL_WAIT_S`.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.format.names import spare_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.stats import StoreStats

__all__ = ["Allocator"]

RETRY_S = 10.0
ROLL_WAIT_S = 2.0
"""How long a roll waits for the file that a thread is making: nobody is served meanwhile."""
AHEAD_BYTES = 128 << 20
"""With so little left in the last segment the next is made, even if that is not half full yet."""
LOOK_S = 0.25
"""Period in which that is looked at: 50 MB of appends at 200 MB/s."""

log = structlog.get_logger(__name__)


class Allocator:
    """Makes the next log segment before it is needed.

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
        """`on_missing` hears why a needed segment is not there, `on_recovered` that it is again."""
        self._log = commit_log
        self._disk = disk
        self._stats = stats
        self._on_missing = on_missing
        self._on_recovered = on_recovered
        # Held while a file is made, by whomever: the loop takes what a thread prepares.
        self._making = threading.Lock()
        self._ready: Handle | None = None
        self._wanted = trio.Event()
        self._again = trio.Event()
        self._warned = False
        self.starving = False
        """A needed segment could not be had."""

    @property
    def segment_bytes(self) -> int:
        """What the next segment takes."""
        return self._log.segment_bytes

    def new_segment(self, path: Path, size: int) -> Handle:
        """The allocated file of the next segment, under its name; blocks only when not prepared.

        Raises: OSError, TimeoutError included; then writes are refused until `on_recovered`.
        """
        self._wanted.set()
        try:
            # Both ways make the file under the same name: two at once would empty each other's.
            with self._making_no_longer_than(ROLL_WAIT_S, path):
                handle = self._take(path)
                if handle is None:
                    return self._disk.allocate(path, size)
                self._name(handle, path)
        except OSError as error:
            log.error("commit_log.segment_refused", path=str(path), error=str(error))
            raise
        return handle

    @contextlib.contextmanager
    def _making_no_longer_than(self, timeout_s: float, path: Path) -> Iterator[None]:
        if not self._making.acquire(timeout=timeout_s):
            raise TimeoutError(errno.ETIMEDOUT, "the disk is too slow to make it", str(path))
        try:
            yield
        finally:
            self._making.release()

    def _name(self, handle: Handle, path: Path) -> None:
        """Give the prepared file its name. Raises: OSError; then it is still prepared."""
        try:
            self._disk.rename(spare_path(path), path)
        except OSError:
            self._ready = handle
            raise

    def starved(self, error: OSError) -> None:
        """A needed segment could not be had: try at once, then every ten seconds."""
        self._stats.allocations_failed += 1
        self.starving = True
        self._on_missing(error)
        self._wanted.set()

    def retry(self) -> None:
        """There may be room again: try now."""
        self._again.set()

    def _take(self, path: Path) -> Handle | None:
        handle, self._ready = self._ready, None
        if handle is not None and handle.path != path:
            self._drop(handle)
            return None
        return handle

    def _due(self) -> bool:
        """Whether the next segment is to be there."""
        if self.starving:
            return True
        left = self._log.queue.next_start() - self._log.max_offset
        return left <= max(self._log.segment_bytes // 2, AHEAD_BYTES)

    async def run(self) -> None:
        """Have the next segment prepared when it is due; until cancelled."""
        while True:
            self._wanted = trio.Event()
            if not self._due():
                with trio.move_on_after(LOOK_S):
                    await self._wanted.wait()
                continue
            path = self._log.queue.path_of(self._log.queue.next_start())
            if await self._disk.in_thread(self._prepare, path, self._log.segment_bytes):
                if self.starving:
                    self.starving = False
                    self._on_recovered()
                await self._wanted.wait()
            else:
                self._again = trio.Event()
                with trio.move_on_after(RETRY_S):
                    await self._again.wait()

    def _prepare(self, path: Path, size: int) -> bool:
        """Make the file if it is not there yet; in a thread. False: no room now."""
        with self._making:
            if self._ready is not None and self._ready.path == path:
                return True
            try:
                if self._disk.exists(path):
                    return True
                self._ready = self._make(path, size)
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    log.warning("commit_log.no_room_ahead", path=str(path), error=str(error))
                return False
            self._warned = False
            return True

    def _make(self, path: Path, size: int) -> Handle:
        self._disk.mkdir(path.parent)
        handle = self._disk.open(spare_path(path), create=True)
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
        self._disk.remove(spare_path(handle.path), missing_ok=True)

    def discard(self) -> None:
        """Remove the unused file. For a thread. Raises: OSError."""
        with self._making:
            handle, self._ready = self._ready, None
            if handle is not None:
                self._drop(handle)
