"""The checkpoint's longs: up to which store times log, queues and index are on disk.

Source: store format §1.5 (StoreCheckpoint).
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.store.format.layout import Layout, i64

CHECKPOINT_FILE_BYTES = 4_096
SAFETY_MS = 3_000
"""Recovery starts this much before the stored times."""


class Checkpoint(NamedTuple):
    """Smaller times are always safe (more is dispatched again), larger ones never.

    The two offsets are written by 5.x and mean nothing outside controller mode: kept as found.
    """

    physic_msg_timestamp: i64 = 0
    logics_msg_timestamp: i64 = 0
    index_msg_timestamp: i64 = 0
    master_flushed_offset: i64 = 0
    confirm_phy_offset: i64 = 0

    @property
    def min_timestamp(self) -> int:
        """Everything stored up to here, in ms, is in the log and in its queue on disk."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    def clamped(self, last_store_timestamp: int) -> Checkpoint:
        """This checkpoint, with no time later than that of the log's last record, in ms."""
        return self._replace(
            physic_msg_timestamp=min(self.physic_msg_timestamp, last_store_timestamp),
            logics_msg_timestamp=min(self.logics_msg_timestamp, last_store_timestamp),
            index_msg_timestamp=min(self.index_msg_timestamp, last_store_timestamp),
        )


CHECKPOINT = Layout(Checkpoint, size=40)
