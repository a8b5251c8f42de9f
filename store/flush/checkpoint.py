"""The checkpoint of a running store: up to which times log, queues and index are on disk.

Times flow in from those who sync, and the file is written behind them. Only one may write it at a
time: a round of the queue flush, or the holder of `between_flushes`. Source: store format §3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.flush.checkpoint_file import CheckpointFile
    from aerobee.store.flush.log_flush import LogFlush
    from aerobee.store.shared import Contents, Runtime

log = structlog.get_logger(__name__)


class CheckpointService:
    """Computes the times of the checkpoint, and writes it."""

    def __init__(
        self,
        file: CheckpointFile,
        contents: Contents,
        log_flush: LogFlush,
        runtime: Runtime,
        index_timestamp: Callable[[], int],
    ) -> None:
        """`index_timestamp`: up to which store time, in ms, all index files are on disk."""
        self._file = file
        self._log = contents.commit_log
        self._dispatcher = contents.dispatcher
        self._log_flush = log_flush
        self._runtime = runtime
        self._index_timestamp = index_timestamp
        self.logics_timestamp = 0
        """Every message stored up to this time, in ms, has its unit on disk."""

    def covered(self, *, final: bool) -> int:
        """The store time up to which every message has a unit, written or about to be.

        With `final` nothing is appended any more.
        """
        dispatcher = self._dispatcher
        stored = dispatcher.last_store_timestamp
        # The next message may still get the millisecond of the last one.
        more = not final and self._runtime.clock.now_ms() <= stored
        if more or dispatcher.behind(self._log.max_offset):
            stored -= 1
        if dispatcher.first_gap_timestamp is not None:
            stored = min(stored, dispatcher.first_gap_timestamp - 1)
        return stored

    async def write(self, covered: int) -> None:
        """Write the file: all queues are synced up to this store time. Raises: OSError."""
        self.logics_timestamp = max(self.logics_timestamp, covered)
        physic_ms, logics_ms = self._log_flush.physic_timestamp, self.logics_timestamp
        await self._runtime.disk.in_thread(
            self._file.write, physic_ms, logics_ms, self._index_timestamp()
        )
        log.debug("checkpoint.written", physic_ms=physic_ms, logics_ms=logics_ms)
