"""Takes recovery points: one with each round of the queue flush, written when it is true.

A point is taken in the loop, before the round that writes the units of everything dispatched so
far. It is true when that round has ended and the log is on disk up to there, and is written only
then; under ASYNC_FLUSH that may be some rounds later, and meanwhile the oldest one waits. So after
a kill about a second of the log is walked, whatever was written before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from aerobee.store.flush.extents import ExtentSaves
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.names import QUEUE_EXTENTS, RECOVERY_POINT
from aerobee.store.format.recovery_point import RecoveryPoint

if TYPE_CHECKING:
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.lock_file import LockFile
    from aerobee.store.flush.checkpoint_file import CheckpointFile
    from aerobee.store.queues.queue_extents import QueueExtents
    from aerobee.store.results import Recovery
    from aerobee.store.shared import Contents

SYNC_BYTES: Final = 64 << 20
"""After so much log since the last synced point, the next one is synced, too."""
QUEUES_BEHIND_BYTES: Final = 8 << 20
"""After so much log since `queues_end`, a round syncs the queues, if they are few."""
SYNC_QUEUES: Final = 256
"""The most queues that count as few; more wait for a thorough round."""


class PendingPoint(NamedTuple):
    """A point that may not be true yet."""

    log_end: int
    units: int
    last: int
    removed: int = 0
    """`ConsumeQueues.removed` when it was taken: its units are wrong behind a removal."""


class RecoveryPoints:
    """The recovery points of one store."""

    def __init__(
        self,
        contents: Contents,
        checkpoint: CheckpointFile,
        lock: LockFile,
        disk: Disk,
    ) -> None:
        self._log = contents.commit_log
        self._queues = queues = contents.queues
        self._dispatcher = contents.dispatcher
        self._checkpoint = checkpoint
        self._lock = lock
        self._disk = disk
        self._file = RecoveryPointFile(disk, checkpoint.path.with_name(RECOVERY_POINT))
        self.extents = ExtentSaves(queues, disk, checkpoint.path.with_name(QUEUE_EXTENTS))
        self._owner = ""
        self._boot = ""
        self._number = 0
        self._waiting: PendingPoint | None = None
        self._last = PendingPoint(0, 0, -1)
        """The last point that was written."""
        self._written = (-1, -1, -1, 0)
        """`log_end` and `queues_end` of the last point, and how many queues there were and left."""
        self._synced = 0
        """`log_end` of the last point that was synced."""
        self.queues_end = 0
        """Every message before this byte of the log has its unit on disk."""
        self._queues_units = 0
        """The sum of the ends of all queues there."""

    # ── Start ──

    def load(self) -> RecoveryPoint | None:
        """The point of the last run, without its `boot` if the system was restarted since.

        None when another broker was here since, or without a checkpoint, which is deleted to give
        up damaged data. Raises: OSError.
        """
        point = self._file.load()
        if point is None:
            return None
        self._number, self._queues_units = point.number, point.queues_units
        owner = self._lock.owner()
        if not owner or owner != point.owner or not self._disk.exists(self._checkpoint.path):
            return None
        return point if point.boot == self._disk.boot() else replace(point, boot="")

    def load_extents(self) -> QueueExtents:
        """The extents of queues that belong to the last point. Raises: OSError."""
        point = self.load()
        return self.extents.load(point.extents if point is not None else 0)

    def begin(self, recovery: Recovery, name: str) -> None:
        """Recovery is over, and all of the log is on disk: the first point of this run. Blocking.

        `name` must be unique among all runs on this directory. Raises: OSError.
        """
        self._owner = self._lock.owner() or self._lock.claim(name)
        self._boot = self._disk.boot()
        self.queues_end = recovery.queues_end
        if self.queues_end == self._dispatcher.dispatched:
            self._queues_units = self._queues.units
        if not self._disk.exists(self._checkpoint.path):
            value = self._checkpoint.value
            self._checkpoint.write(value.physic_msg_timestamp, value.logics_msg_timestamp)
        self._write(self._take(), True)

    def write_now(self) -> None:
        """Everything is on disk, and all is dispatched. Blocking. Raises: OSError."""
        self.queues_synced(self._take())
        self._write(self._take(), True)

    # ── Rounds ──

    def take(self) -> PendingPoint | None:
        """A point that is true when all units dispatched so far are written; None: nothing new.

        The round fills in its `units`, since it visits each queue anyway.
        """
        dispatcher = self._dispatcher
        if dispatcher.first_gap_timestamp is not None:
            return None
        queues = self._queues
        news = dispatcher.dispatched, self.queues_end, len(queues.table), queues.removed
        if news == self._written and not self._waiting:
            return None
        return self._point(units=0)

    def _take(self) -> PendingPoint:
        return self._point(self._queues.units)

    def _point(self, units: int) -> PendingPoint:
        """The point of all that is dispatched now."""
        dispatcher = self._dispatcher
        return PendingPoint(
            dispatcher.dispatched, units, dispatcher.last_position, self._queues.removed
        )

    def wants_all_synced(self, unsynced: int) -> bool:
        """Whether a round should sync so many queues, to limit the walk after a power cut."""
        behind = self._dispatcher.dispatched - self.queues_end
        return unsynced <= SYNC_QUEUES and behind > QUEUES_BEHIND_BYTES

    def queues_synced(self, point: PendingPoint | None) -> None:
        """All queues were synced in the round of this point."""
        if point is not None:
            self.queues_end, self._queues_units = point.log_end, point.units

    async def store(self, pending: PendingPoint | None, *, sync: bool, again: bool = False) -> None:
        """A round is over: write the newest point that is true by now. Raises: OSError.

        `again`: write the last one once more if there is no newer, because its extents have
        changed.
        """
        if pending is None and again:
            pending = self._last
        if pending is None:
            return
        flushed = self._log.flushed
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.removed != pending.removed:
            waiting = None
        true = next(
            (point for point in (pending, waiting) if point and point.log_end <= flushed), None
        )
        if true is not pending:
            # The older one comes true first.
            self._waiting = pending if true or waiting is None else waiting
        if true is None:
            return
        sync = sync or true.log_end - self._synced >= SYNC_BYTES
        await self._disk.in_thread(self._write, true, sync)

    def _write(self, pending: PendingPoint, sync: bool) -> None:
        """Runs in a thread, between two rounds."""
        assert pending.log_end <= self._log.flushed, (pending, self._log.flushed)
        self._number += 1
        queues_end = min(self.queues_end, pending.log_end)
        point = RecoveryPoint(
            number=self._number,
            owner=self._owner,
            boot=self._boot,
            log_end=pending.log_end,
            queues_end=queues_end,
            queues_units=self._queues_units if self.queues_end == queues_end else pending.units,
            units=pending.units,
            last=pending.last,
            last_crc=self._log.head_crc(pending.last),
            extents=self.extents.crc,
        )
        self._file.write(point, sync=sync)
        self._last = pending
        self._written = pending.log_end, queues_end, len(self._queues.table), pending.removed
        if sync:
            self._synced = pending.log_end
