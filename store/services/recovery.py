"""After the files are loaded: where to start, what to cut, what to build again.

The log is the only truth. In come the loaded log and queues, the checkpoint and whether the last
stop was a clean one; when `recover` returns, the log ends behind its last whole record with zeros
after it, every message before that end has its unit and no unit points behind it, and after a
crash everything that can be read is on disk. Decisions are functions of values; `_Recovery` acts.

The caller holds the lock, has refused foreign directories (`start_check`) and has made the abort
file: then any crash in here is repaired by the next start, which comes to the same result.
Source: store format §5.3-5.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from store.format.record import TRANSACTION_PREPARED
from store.format.tags import tags_code_of
from store.format.unit import SCHEDULE_TOPIC, DelayLevels, code_of
from store.results import Recovery, UnitStatus
from store.services.damage import LogEnd, reason_at, record_time_at, refuse_holes, refuse_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store.files.commit_log import CommitLog
    from store.files.consume_queue import ConsumeQueue
    from store.files.consume_queues import ConsumeQueues
    from store.files.disk import Clock
    from store.format.checkpoint import Checkpoint
    from store.format.record import Digest

__all__ = ["FirstRecord", "abnormal_start", "clamped", "normal_start", "parked", "recover"]

log = structlog.get_logger("store.recovery")

PARKED_TOPICS = {
    SCHEDULE_TOPIC: "delayed",
    "rmq_sys_wheel_timer": "timed",
    "RMQ_SYS_TRANS_HALF_TOPIC": "half",
}
"""Where other brokers put messages aside, and what kind those are."""
WRITE_EVERY_RECORDS = 65_536
"""So that building long queues again does not keep them in memory."""
TORN_ENDS = (0x00, 0xFF)
"""What a torn write leaves where the last byte of a property string should be."""
_ADDED = UnitStatus.ADDED


class FirstRecord(NamedTuple):
    """What a segment begins with."""

    start: int
    store_timestamp: int
    """0 when the segment does not begin with a whole record."""


# ── Decisions ──


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


def looks_torn(properties: bytes) -> bool:
    """Whether a last record that is otherwise whole lost its end: the CRC covers the body only."""
    return bool(properties) and properties[-1] in TORN_ENDS


def clamped(checkpoint: Checkpoint, last_store_timestamp: int) -> Checkpoint:
    """No time in the checkpoint may be later than the log's last record."""
    return checkpoint._replace(
        physic_msg_timestamp=min(checkpoint.physic_msg_timestamp, last_store_timestamp),
        logics_msg_timestamp=min(checkpoint.logics_msg_timestamp, last_store_timestamp),
        index_msg_timestamp=min(checkpoint.index_msg_timestamp, last_store_timestamp),
    )


# ── Acts ──


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    clock: Clock,
    levels: DelayLevels | None = None,
    crc: bool = True,
    known: Callable[[str], bool] | None = None,
) -> Recovery:
    """Bring log and queues into agreement; both are loaded, nothing serves yet.

    `levels` dates the units of parked delay messages. `known` says whether a topic still exists;
    the queues of one that does not are not searched for through the whole log.
    Raises: StoreDamaged before anything is cut, when the cut would take what was known to be safe.
    """
    began = clock.monotonic()
    run = _Recovery(commit_log, queues, checkpoint, clean, levels or DelayLevels(), crc, known)
    if commit_log.queue.files:
        refuse_holes(commit_log)
        run.find_start()
        run.walk()
        run.cut()
        run.make_durable()
    else:
        queues.recover(scan=not clean)
        queues.destroy()
    if counts := parked(queues):
        # Delay, timers and transactions are not served here: say what is not being delivered.
        log.warning("store.parked_messages", **counts)
    return Recovery(
        clean=clean,
        cut_bytes=run.cut_bytes,
        elapsed_ms=int((clock.monotonic() - began) * 1_000),
        start_offset=run.start,
        end_offset=run.end,
        records=run.records,
        last_store_timestamp=run.last_store_timestamp,
        rebuilt_queues=len(run.lost),
    )


class _Recovery:
    """The state of one recovery; its methods are the steps, in order."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        clean: bool,
        levels: DelayLevels,
        crc: bool,
        known: Callable[[str], bool] | None,
    ) -> None:
        self.log = commit_log
        self.queues = queues
        self.checkpoint = checkpoint
        self.clean = clean
        self.levels = levels
        self.crc = crc
        self.known = known
        self.start = 0
        self.end = 0
        self.records = 0
        self.cut_bytes = 0
        self.last_store_timestamp = 0
        self.unsafe_from = -1
        """The first record that may not be on disk yet; −1 when all are."""
        self.takers: dict[tuple[str, int], Callable[[int, int, int, int], UnitStatus]] = {}
        """How to give a unit to a queue that lacks nothing from before the walk."""
        self.lost: set[tuple[str, int]] = set()
        """Queues whose units are missing from before the start of the walk."""

    def find_start(self) -> None:
        """Settle the ends of the queues and the place where the walk begins."""
        queues = self.queues
        queues.recover(scan=not self.clean)
        self.lost = {key for key, queue in queues.table.items() if queue.damaged}
        reach = queues.max_physical_offset()
        if reach < 0:
            self.start = self.log.min_offset
        elif not self.clean:
            self.start = abnormal_start(self._first_records(), self.checkpoint.min_timestamp)
            # Of what the checkpoint does not vouch for any page may be missing: built again.
            queues.truncate(self.start)
        else:
            self.start = self._start_after_stop(reach)

    def _start_after_stop(self, reach: int) -> int:
        """The last message that has a unit: a clean stop waits until all have theirs."""
        queues = self.queues.table.values()
        queue = next(queue for queue in queues if queue.max_physical_offset == reach)
        unit = queue.unit(queue.end_offset - 1)
        if unit is not None and record_time_at(self.log, unit[0], self.crc):
            return unit[0]
        # That unit leads nowhere, so the queue is not what was left on disk.
        self.lost.add((queue.topic, queue.queue_id))
        return normal_start(self._first_records(), reach)

    def _first_records(self) -> Iterable[FirstRecord]:
        for file in reversed(self.log.queue.files):
            yield FirstRecord(file.start, record_time_at(self.log, file.start, self.crc))

    def walk(self) -> None:
        """Pass every whole record from the start on, and give the queues what they lack."""
        self.end = self._pass()
        if self.lost:
            log.warning(
                "store.queues_rebuilt",
                queues=sorted(f"{topic}-{queue_id}" for topic, queue_id in self.lost),
            )
            self._rebuild()
        for queue in self.queues.table.values():
            queue.next_offset = max(queue.next_offset, queue.end_offset)

    def _pass(self) -> int:
        """The walk; returns where the last sound record ends. Hot: millions per GiB."""
        physic = self.checkpoint.physic_msg_timestamp
        takers = self.takers
        records = 0
        write_at = WRITE_EVERY_RECORDS
        position = unsafe_from = -1
        stored = 0
        properties = b""
        walk = self.log.walk(self.start, crc=self.crc)
        for position, digest in walk:
            size, topic, queue_id, queue_offset, sys_flag, stored, properties = digest
            take = takers.get((topic, queue_id))
            if (
                take is None
                or sys_flag & TRANSACTION_PREPARED
                or take(queue_offset, position, size, tags_code_of(properties)) is not _ADDED
            ):
                self._put(position, digest)
            records += 1
            if unsafe_from < 0 and stored >= physic:
                unsafe_from = position
            if records == write_at:
                self.queues.write_all(sync=False)
                write_at += WRITE_EVERY_RECORDS
        self.records = records
        self.unsafe_from = unsafe_from
        self.last_store_timestamp = stored
        if not self.clean and stored >= physic and looks_torn(properties):
            return self._sound_end(unsafe_from)
        return walk.stop.physical_offset

    def _sound_end(self, start: int) -> int:
        """Where the run of records begins that look torn, at the end of the log.

        All of them are cut, so that a second recovery finds nothing more to cut.
        """
        doubtful = -1
        for position, digest in self.log.walk(start):
            if not looks_torn(digest[6]):
                doubtful = -1
                self.last_store_timestamp = digest[5]
            elif doubtful < 0:
                doubtful = position
        return doubtful

    def _put(self, position: int, digest: Digest) -> None:
        """One record that is the first of its queue, or not simply the next."""
        size, topic, queue_id, queue_offset, sys_flag, stored, properties = digest
        key = topic, queue_id
        # Prepared and rolled-back records share this bit; they have no unit.
        if sys_flag & TRANSACTION_PREPARED or key in self.lost:
            return
        queue = self.queues.obtain(topic, queue_id)
        if key not in self.takers:
            if self._missing(queue, queue_offset):
                self.lost.add(key)
                return
            if topic != SCHEDULE_TOPIC:
                self.takers[key] = queue.append
        unit = (queue_offset, position, size, code_of(topic, properties, stored, self.levels))
        status = queue.append(*unit)
        if (
            status is UnitStatus.REPEATED
            and queue_offset == 0
            and position >= queue.max_physical_offset
        ):
            # The topic was deleted and made again: its numbers start anew.
            queue.destroy()
            status = queue.append(*unit)
        if status is UnitStatus.GAP:
            self.lost.add(key)
            self.takers.pop(key, None)

    def _rebuild(self) -> None:
        """Build the lost queues from the whole log."""
        lost, self.lost = self.lost, set()
        missing_from = self.start
        self.start = self.log.min_offset
        self.takers.clear()
        for key in lost:
            self.queues.obtain(*key).destroy()
        for number, (position, digest) in enumerate(self.log.walk(self.start, self.end)):
            if (digest[1], digest[2]) in lost:
                self._put(position, digest)
            if not number % WRITE_EVERY_RECORDS:
                self.queues.write_all(sync=False)
        for topic, queue_id in self.lost:
            log.error("store.queue_incomplete", topic=topic, queue_id=queue_id)
        self.start = missing_from
        self.lost = lost

    def _missing(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a queue that is empty should not be, when this is the first record seen of it."""
        if queue_offset == 0 or self.start <= self.log.min_offset:
            return False
        if queue.max_physical_offset >= 0 or queue.end_offset == queue_offset:
            return False
        return self.known is None or self.known(queue.topic)

    def cut(self) -> None:
        """End queues and log at the end of the walk; zero what lies behind, so it stays dead."""
        safe_before = None if self.clean else self.checkpoint.physic_msg_timestamp
        end = LogEnd(self.end, self.last_store_timestamp, safe_before)
        refuse_loss(self.log, end, self.crc)
        reason = reason_at(self.log, self.end, self.crc)
        self.queues.write_all(sync=False)
        self.queues.truncate(self.end)
        self.cut_bytes = self.log.truncate(self.end)
        self.log.last_store_timestamp = self.last_store_timestamp
        if self.cut_bytes:
            log.warning(
                "commit_log.tail_cut",
                physical_offset=self.end,
                cut_bytes=self.cut_bytes,
                reason=reason,
            )

    def make_durable(self) -> None:
        """After a crash: nobody may read what a power cut could still take back."""
        if not self.clean:
            if 0 <= self.unsafe_from < self.end:
                for file in self.log.queue.files:
                    begin = max(self.unsafe_from - file.start, 0)
                    if begin < file.wrote:
                        file.rewrite(begin, file.wrote)
            self.queues.write_all(sync=True)
        self.queues.correct_min_offsets(self.log.min_offset)
        self.log.take_over()


def parked(queues: ConsumeQueues) -> dict[str, int]:
    """How many messages of each kind other brokers have put aside, done ones included."""
    counts: dict[str, int] = {}
    for (topic, _), queue in queues.table.items():
        kind = PARKED_TOPICS.get(topic)
        if kind and queue.end_offset > queue.min_offset:
            counts[kind] = counts.get(kind, 0) + queue.end_offset - queue.min_offset
    return counts
