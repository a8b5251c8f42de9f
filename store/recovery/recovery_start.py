"""Decisions about the start of recovery, as functions of values.

Source: store format §5.3, §5.4.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.store.format.checkpoint import Checkpoint
    from aerobee.store.format.recovery_point import RecoveryPoint
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.recovery.last_stop import LastStop, QueueEnds


class StartKind(Enum):
    """The kinds of start: what is known of the run before."""

    STOPPED = "it stopped cleanly"
    KILLED = "only it was killed: all that it wrote is in the page cache, synced or not"
    POWER_CUT = "its recovery point counts, and the page cache is another one"
    UNKNOWN = "it crashed, and nothing but the checkpoint tells what was on disk"

    @property
    def has_point(self) -> bool:
        """Whether the recovery point counts."""
        return self in (StartKind.KILLED, StartKind.POWER_CUT)


class LastRun(NamedTuple):
    """The files in which the last run has told how far it came."""

    clean: bool
    """Whether it stopped cleanly."""
    checkpoint: Checkpoint
    last_stop: LastStop | None
    """Only of a clean stop."""
    point: RecoveryPoint | None

    @property
    def crash_point(self) -> RecoveryPoint | None:
        """The point of a run that crashed: then the log is ours alone, though it may not fit."""
        return None if self.clean else self.point

    @property
    def synced_to(self) -> int:
        """After a crash: every byte of the log before this one was on disk."""
        return 0 if self.crash_point is None else self.crash_point.log_end

    def kind(self, commit_log: CommitLog) -> StartKind:
        """The kind of this start, which says what it can rely on. Raises: OSError."""
        if self.clean:
            return StartKind.STOPPED
        point = self.crash_point
        return StartKind.UNKNOWN if point is None else kind_of(commit_log, point)


class TopicHistory(NamedTuple):
    """The fate of topics, as the owner of the store knows it."""

    known: Callable[[str], bool] = lambda _topic: True
    """Whether a topic exists: the queues of another are not rebuilt from the whole log."""
    removed: Callable[[str, int], bool] = lambda _topic, _physical_offset: False
    """Whether a topic was deleted after the message at a physical offset, which gets no unit."""


ALL_TOPICS: Final = TopicHistory()
"""That of a store whose owner knows of none: every topic exists."""


class FirstRecord(NamedTuple):
    """The first record of a segment."""

    start: int
    store_timestamp: int
    """0 when the segment does not begin with a whole record."""


def normal_start(newest_first: Iterable[FirstRecord], max_physical_offset: int) -> int:
    """After a clean stop whose last unit leads nowhere: the newest segment queues reach into."""
    start = 0
    for first in newest_first:
        start = first.start
        if first.store_timestamp and first.start <= max_physical_offset:
            break
    return start


def abnormal_start(newest_first: Iterable[FirstRecord], min_timestamp: int) -> int:
    """After a crash: the newest segment that begins before everything not known to be on disk.

    `min_timestamp` is that of the checkpoint; 0, or no such segment, means the oldest one.
    """
    start = 0
    for first in newest_first:
        start = first.start
        if 0 < first.store_timestamp <= min_timestamp:
            break
    return start


def short_of(
    last: LastStop, queues: ConsumeQueues, known: Callable[[str], bool]
) -> dict[tuple[str, int], QueueEnds]:
    """Queues that are shorter than at the last stop, when the log is not; without deleted
    topics.
    """
    short = {}
    for topic, ends_by_id in last.queues.items():
        for queue_id, ends in ends_by_id.items():
            queue = queues.table.get((topic, queue_id))
            whole = queue and queue.end_offset == ends.end and queue.min_offset <= ends.begin
            if not whole and known(topic):
                short[topic, queue_id] = ends
    return short


def led_behind(queues: ConsumeQueues, end_offset: int) -> list[int]:
    """The last two units of every queue that lead behind the end."""
    units = (
        queue.unit(queue.end_offset - back) for queue in queues.table.values() for back in (1, 2)
    )
    return [
        unit.physical_offset
        for unit in units
        if unit is not None and unit.physical_offset >= end_offset
    ]


def kind_of(commit_log: CommitLog, point: RecoveryPoint) -> StartKind:
    """The kind of a start after a crash, with this recovery point, which may be of another log.
    Raises: OSError.
    """
    if not commit_log.min_offset <= point.log_end <= commit_log.max_offset:
        return StartKind.UNKNOWN
    # Asked first: reading the last record brings its page into memory.
    killed = bool(point.boot) and _in_memory(commit_log, point.log_end)
    if point.last >= 0:
        if commit_log.header_at(point.last) is None:
            return StartKind.UNKNOWN
        if commit_log.head_crc(point.last) != point.last_crc:
            return StartKind.UNKNOWN
    return StartKind.KILLED if killed else StartKind.POWER_CUT


def _in_memory(commit_log: CommitLog, physical_offset: int) -> bool:
    """Whether the page cache has the byte before it: after a new mount it has not."""
    file = commit_log.queue.find(physical_offset - 1)
    return (
        file is None or file.open().pread_if_cached(1, physical_offset - 1 - file.start) is not None
    )
