"""Plain counters of the store; readers take them as they are."""

from __future__ import annotations

from bisect import bisect_left

from aerobee.store.results import RecoveryProgress

SYNC_BOUNDS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets for the time of a sync, in seconds."""


class Durations:
    """Counts of durations in fixed buckets; the last bucket has no upper bound."""

    __slots__ = ("bounds", "counts", "max_s", "total_s")

    def __init__(self, bounds: tuple[float, ...] = SYNC_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a further observation."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)


class StoreStats:
    """Everything the store counts; written by the loop only, `recovery` before the loop does."""

    __slots__ = (
        "allocations_failed",
        "bytes_got",
        "bytes_put",
        "cold_reads",
        "dispatch_fallbacks",
        "dispatch_parsed",
        "dispatched",
        "index_behind_bytes",
        "index_parsed",
        "inline_syncs",
        "keys_indexed",
        "log_syncs",
        "messages_got",
        "messages_put",
        "puts_refused",
        "queue_files_deleted",
        "queue_syncs",
        "queues_deleted",
        "queues_stopped",
        "records_damaged",
        "recovery",
        "replicated_in_bytes",
        "replicated_out_bytes",
        "segments_deleted",
        "segments_forced",
        "segments_rolled",
        "segments_unarchived",
        "segments_waiting",
        "set_aside",
        "sync_seconds",
        "sync_timeouts",
        "unreadable",
    )

    def __init__(self) -> None:
        self.messages_put = 0
        self.bytes_put = 0
        self.puts_refused = 0
        self.messages_got = 0
        self.bytes_got = 0
        self.cold_reads = 0
        """Pieces that a thread had to read from disk."""
        self.records_damaged = 0
        """Times that a record was left out of an answer because it is not what was written."""
        self.segments_rolled = 0
        self.segments_deleted = 0
        """Log segments that the clean-up removed."""
        self.segments_forced = 0
        """Deleted segments that went for space before their time."""
        self.segments_unarchived = 0
        """Deleted segments that waited for their archive until the disk was too full."""
        self.segments_waiting = 0
        """Full log segments that are not archived yet; 0 where nobody waits for an archive."""
        self.set_aside: dict[str, int] = {}
        """Service → messages that it could not handle because of what they say."""
        self.unreadable: dict[str, int] = {}
        """Service → messages that the disk could not read for it, each counted once."""
        self.queue_files_deleted = 0
        self.queues_deleted = 0
        self.allocations_failed = 0
        self.dispatched = 0
        self.dispatch_parsed = 0
        """Dispatched records that were parsed from the log."""
        self.dispatch_fallbacks = 0
        """Times the hand-over queue was full and dropped."""
        self.keys_indexed = 0
        self.index_behind_bytes = 0
        """How far the index was behind the queues when it looked last."""
        self.index_parsed = 0
        """Messages whose keys were parsed from the log: the hand-over had forgotten them."""
        self.queues_stopped = 0
        self.inline_syncs = 0
        self.log_syncs = 0
        self.queue_syncs = 0
        self.sync_timeouts = 0
        self.sync_seconds = Durations()
        self.replicated_out_bytes = 0
        """Bytes of the log sent to slaves, each counted."""
        self.replicated_in_bytes = 0
        """Bytes of the log that came from a master."""
        self.recovery = RecoveryProgress()
