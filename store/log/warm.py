"""Prevents page faults in appends: reads the pages ahead of the end of the log.

The first access to a page that is not in memory makes the kernel allocate one, in the middle of an
append and while the GIL is held: mostly microseconds, now and then a tenth of a second. So a thread
reads a little ahead of the end of the log, and into the prepared segment as well. Blocks that are
allocated and never written read as zeros: that needs no access to the disk and changes nothing, and
appends may overtake it at any time. Measured in `bench/stall.py`. Source: store format §1.1
(warmMappedFile).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import structlog
import trio

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.disk import Disk
    from aerobee.store.log.commit_log import CommitLog

PAGE_BYTES = 4_096
STEP_BYTES = 1 << 20
"""Bytes per call of the thread."""
PIECE_BYTES = 128 << 10
GAPS = 16
"""One part in so many may be missing: a slow producer would else have a thread read each message's
worth of bytes."""
BUSY_S = 0.02
IDLE_S = 0.1
TRANSIENT_POOL = (
    "none needed: records go to the page cache as they are appended, so flushes and reads do not "
    "hold appends up, and a kill takes nothing; warmMapedFileEnable keeps page faults from them"
)

log = structlog.get_logger(__name__)


class Warmer:
    """Keeps pages ahead of the end of the log in memory. Writes nothing."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, disk: Disk) -> None:
        self.config = config
        """May change while running."""
        self._log = commit_log
        self._disk = disk
        self._reach = 0
        """Everything before this byte of the log, written or not, is in memory."""

    async def run(self) -> NoReturn:
        """Read ahead until cancelled."""
        if self.config.transient_store_pool_enable:
            log.info("store.transient_pool_needless", remedy=TRANSIENT_POOL)
        while True:
            moved = self.config.warm_maped_file_enable and await self.keep_ahead()
            await trio.sleep(BUSY_S if moved else IDLE_S)

    async def keep_ahead(self) -> bool:
        """Read the missing pages; whether there were any."""
        began = self._reach
        while (piece := self._next()) is not None:
            path, position, size = piece
            try:
                await self._disk.in_thread(self._read, path, position, size)
            except FileNotFoundError:
                # The segment was renamed meanwhile, or is not ready yet: try again later.
                break
            except OSError as error:
                log.warning("commit_log.not_warmed", path=str(path), error=str(error))
            self._reach += size
        return self._reach > began

    def _next(self) -> tuple[Path, int, int] | None:
        """File, position and size of the next piece to read; None when enough is in memory."""
        queue = self._log.queue
        end = self._log.max_offset
        ahead = self.config.flush_least_pages_when_warm_maped_file * PAGE_BYTES
        self._reach = reach = max(self._reach, end)
        following = queue.next_start()
        limit = min(end + ahead, following + queue.file_size)
        if reach >= limit or (limit - reach < ahead // GAPS and limit == end + ahead):
            return None
        last = queue.last
        if last is not None and reach < following:
            return last.path, reach - last.start, min(limit, following, reach + STEP_BYTES) - reach
        spare = self._disk.place(queue.path_of(following))
        return spare, reach - following, min(limit, reach + STEP_BYTES) - reach

    def _read(self, path: Path, position: int, size: int) -> None:
        with self._disk.open(path, writable=False) as handle:
            for at in range(position, position + size, PIECE_BYTES):
                handle.pread(min(PIECE_BYTES, position + size - at), at)
