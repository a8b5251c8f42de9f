"""Recovery: where to start, what to cut off, what to rebuild.

The log is the only truth. In: the loaded log and queues, the checkpoint and whether the last stop
was a clean one. When `recover` returns, the log ends behind its last whole record with zeros after
it, every message before that end has its unit and no unit points behind it, and after a crash
everything that can be read is on disk. Decisions are in `recovery_start`; `_Recovery` acts.

The caller holds the lock, has refused foreign directories (`start_check`) and has created the abort
file: then any crash in here is repaired by the next start, which comes to the same result. Source:
store format §5.3-5.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from aerobee.store.format.fast_scan import NEVER, fast_scan, queue_key
from aerobee.store.format.faults import BLANK, CRC, NoRecord
from aerobee.store.format.record import HOST_FLAGS, NOT_QUEUED, parse
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.unit import DelayLevels, can_have_unit, code_of
from aerobee.store.recovery.damage import (
    LogEnd,
    altered,
    reason_at,
    record_time_at,
    refuse_damage,
    refuse_foreign_bytes,
    refuse_hole,
    refuse_holes,
    refuse_loss,
    refuse_no_log,
    refuse_number,
    refuse_short,
    sound_end,
    warn_of_begin,
)
from aerobee.store.recovery.recovery_start import (
    FirstRecord,
    StartKind,
    abnormal_start,
    led_behind,
    normal_start,
    short_of,
)
from aerobee.store.results import Recovery, UnitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.store.clock import Clock
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.recovery.last_stop import QueueEnds
    from aerobee.store.recovery.recovery_start import LastRun, TopicHistory
    from aerobee.store.results import RecoveryProgress

log = structlog.get_logger(__name__)

CHUNK_BYTES = 1 << 20
QUEUES_SYNCED = 64
"""So many are synced at once when the recovery point was valid; more wait for the flush service."""
WRITE_EVERY_RECORDS = 65_536
"""Units are written so often, to bound the memory of long rebuilds."""


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    last_run: LastRun,
    topics: TopicHistory,
    *,
    levels: DelayLevels,
    crc: bool,
    clock: Clock,
    progress: RecoveryProgress,
) -> Recovery:
    """Make log and queues consistent; both are loaded, nothing is served yet.

    `levels` dates the units of delayed messages. `crc`: whether that of a body is checked.
    `progress` is updated for readers in another thread.
    Raises: StoreDamaged before anything is cut, when the cut would remove what was known to be
    safe.
    """
    began = clock.monotonic()
    clean, last_stop = last_run.clean, last_run.last_stop
    run = _Recovery(commit_log, queues, last_run, topics, levels, progress, crc=crc)
    if commit_log.queue.files:
        if not clean:
            log.info(
                "store.recovering",
                path=str(commit_log.queue.directory),
                physical_offset=commit_log.min_offset,
                end_offset=commit_log.max_offset,
                queues=len(queues.table),
            )
        refuse_holes(commit_log)
        if last_stop is not None and last_run.point is not None:
            warn_of_begin(commit_log, last_stop)
        run.find_start()
        run.walk()
        run.cut()
        run.make_durable()
    else:
        # After a crash queues may be ahead of the log, but the checkpoint never is.
        known_end = last_stop.log_end if last_stop else last_run.synced_to
        refuse_no_log(commit_log, last_run.checkpoint, known_end - 1)
        queues.recover(scan=not clean)
        reach = queues.max_physical_offset() if clean else -1
        refuse_no_log(commit_log, last_run.checkpoint, reach)
        queues.destroy()
    killed = run.kind is StartKind.KILLED
    return Recovery(
        clean=clean,
        may_lack=not clean and bool(commit_log.queue.files) and not killed,
        cut_bytes=run.cut_bytes,
        elapsed_ms=int((clock.monotonic() - began) * 1_000),
        start_offset=run.start,
        end_offset=run.end,
        records=run.records,
        last_store_timestamp=run.last_store_timestamp,
        rebuilt_queues=len(run.lost),
        last_position=run.last,
        queues_end=run.queues_end,
    )


def _reaches_into(queue: ConsumeQueue, physical_offset: int) -> bool:
    """Whether the last unit begins in front of a message, and ends in it or behind it."""
    last = queue.unit(queue.end_offset - 1)
    return last is not None and last.physical_offset < physical_offset < queue.max_physical_offset


class _Recovery:
    """The state of one recovery; its methods are the steps, in order."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        last_run: LastRun,
        topics: TopicHistory,
        levels: DelayLevels,
        progress: RecoveryProgress,
        *,
        crc: bool,
    ) -> None:
        self.log = commit_log
        self.queues = queues
        self.last_run = last_run
        self.kind = last_run.kind(commit_log)
        self.topics = topics
        self.levels = levels
        self.progress = progress
        self.crc = crc
        self.start = self.end = 0
        self.records = self.cut_bytes = self.last_store_timestamp = 0
        self.physic = last_run.checkpoint.physic_msg_timestamp
        self.queues_end = 0
        """Every message before this byte of the log has its unit on disk."""
        self.unsafe_from = -1
        """The first record that may not be on disk yet; −1 when all are."""
        self.last = -1
        """Where the last record passed begins; −1 before the first."""
        self.write_at = WRITE_EVERY_RECORDS
        self.in_order: dict[tuple[bytes, int], ConsumeQueue] = {}
        """Queues without gaps so far; a fast scan adds their units itself."""
        self.lost: set[tuple[str, int]] = set()
        """Queues whose units are missing from before the start of the walk."""
        self.built: set[tuple[str, int]] = set()
        """Queues that are rebuilt from the whole log."""
        self.led_to = -1
        """After a clean stop: where the last unit leads, if there is no message."""

    def find_start(self) -> None:
        """Find the ends of the queues and the physical offset where the walk begins."""
        queues = self.queues
        self.progress.step = "queues"
        self.progress.end_offset = self.log.max_offset
        stopped = self.kind is StartKind.STOPPED
        if self.kind.has_point:
            if self._start_at_point():
                return
            self.kind = StartKind.UNKNOWN
        queues.recover(scan=not stopped)
        self.lost = {key for key, queue in queues.table.items() if queue.damaged}
        reach = queues.max_physical_offset()
        if reach < 0:
            self.start = self.log.min_offset
        elif not stopped:
            self.start = abnormal_start(
                self._first_records(), self.last_run.checkpoint.min_timestamp
            )
            # Any page that the checkpoint does not cover may be missing: built again.
            queues.truncate(self.start)
        else:
            self.start = self._start_after_stop(reach)

    def _start_at_point(self) -> bool:
        """Begin where the queues are known to be whole; False when they are not."""
        point, queues, killed = self.last_run.point, self.queues, self.kind is StartKind.KILLED
        assert point is not None, self.kind
        synced = max(point.queues_end, self.log.min_offset)
        self.start = point.log_end if killed else synced
        queues.recover_from(synced, self.start, self.log.min_offset, killed=killed)
        units, expected = queues.units, point.units if killed else point.queues_units
        if units != expected or any(queue.damaged for queue in queues.table.values()):
            at = point.log_end
            log.warning(
                "store.recovery_point_wrong", physical_offset=at, units=units, expected=expected
            )
            return False
        self.queues_end = synced
        self.last = point.last if point.last < self.start else -1
        self.unsafe_from = point.log_end
        return True

    def _start_after_stop(self, reach: int) -> int:
        """The last message that has a unit: a clean stop waits until all have theirs."""
        queues = self.queues.table.values()
        queue = next(queue for queue in queues if queue.max_physical_offset == reach)
        unit = queue.unit(queue.end_offset - 1)
        if unit is not None and record_time_at(self.log, unit.physical_offset, self.crc):
            return unit.physical_offset
        # That unit leads nowhere: queue or log have changed since they were closed.
        self.led_to = -1 if unit is None else unit.physical_offset
        self.lost.add((queue.topic, queue.queue_id))
        return normal_start(self._first_records(), reach)

    def _first_records(self) -> Iterable[FirstRecord]:
        for file in reversed(self.log.queue.files):
            yield FirstRecord(file.start, record_time_at(self.log, file.start, self.crc))

    def walk(self) -> None:
        """Walk every whole record from the start on, and add missing units to the queues."""
        self.progress.step = "log"
        self.end = self._pass()
        self._refuse()
        stop = self.last_run.last_stop
        bounds = self.log.min_offset, self.end
        whole = stop is not None and (stop.log_begin, stop.log_end) == bounds
        short: dict[tuple[str, int], QueueEnds] = {}
        if stop and whole:
            # Deleted before the stop; the walk has passed their records.
            self._drop(lambda queue: queue.queue_id not in stop.queues.get(queue.topic, ()))
            short = short_of(stop, self.queues, self.topics.known)
        self.lost |= {
            key
            for key, ends in short.items()
            if ends.begin < ends.end or self.queues.obtain(*key).end_offset
        }
        if self.lost:
            log.warning(
                "store.queues_rebuilt",
                queues=sorted(f"{topic}-{queue_id}" for topic, queue_id in self.lost),
            )
            self._rebuild()
        for key, ends in short.items():
            queue = self.queues.obtain(*key)
            if not queue.end_offset:
                # None of its messages is left in the log; the queue continues their numbers.
                queue.begin_at(ends.end)
        self._drop(self._is_removed)
        for queue in self.queues.table.values():
            queue.next_offset = max(queue.next_offset, queue.end_offset)

    def _drop(self, is_deleted: Callable[[ConsumeQueue], bool]) -> None:
        """Drop deleted queues, with their files."""
        for key, queue in list(self.queues.table.items()):
            if is_deleted(queue):
                self.lost.discard(key)
                self.queues.drop(*key)

    def _is_removed(self, queue: ConsumeQueue) -> bool:
        """Whether a kill left a queue in the midst of the deletion of its topic."""
        last = queue.max_physical_offset - 1
        return last >= 0 and self.topics.removed(queue.topic, last)

    def _refuse(self) -> None:
        """Refuse damage that a cut would hide, before anything is removed."""
        refuse_foreign_bytes(self.log, self.end)
        safe = self.last_run.synced_to
        if self.end < safe:
            more = f", though all of the log was on disk up to {safe}"
            refuse_damage(self.log, self.end, more)
        if self.led_to >= self.end:
            refuse_short(self.log, self.end, led_behind(self.queues, self.end))
        if self.kind is StartKind.KILLED:
            refuse_hole(self.log, self.end, self.last_store_timestamp)
        else:
            stopped = self.kind is StartKind.STOPPED
            before = None if stopped else self.last_run.checkpoint.physic_msg_timestamp
            refuse_loss(self.log, LogEnd(self.end, self.last_store_timestamp, before), self.crc)

    def _pass(self) -> int:
        """The walk; returns where the last sound record ends."""
        at = self.start
        file = self.log.queue.find(at)
        while file is not None:
            at, closed = self._pass_segment(file, at)
            file = self.log.following(file) if closed else None
            at = at if file is None else file.start
        last = self.log.header_at(self.last)
        if last is None:
            return at
        self.last_store_timestamp = last.store_timestamp
        if self.kind.has_point and at > self.unsafe_from:
            point = self.last_run.point
            assert point is not None, self.kind
            offsets = point.last, self.last, self.unsafe_from
            killed = self.kind is StartKind.KILLED
            at, self.last = sound_end(self.log, *offsets, at, killed=killed)
            last = self.log.header_at(self.last)
            self.last_store_timestamp = 0 if last is None else last.store_timestamp
        return at

    def _pass_segment(self, file: MappedFile, at: int) -> tuple[int, bool]:
        """Where the records of a segment end, and whether the blank is there."""
        base = at
        data = b""
        family = 0
        while True:
            if at - base >= len(data):
                base, data = at, file.open().pread(CHUNK_BYTES, at - file.start)
                self.progress.physical_offset = at
                self._write_some()
            before = self.physic if self.unsafe_from < 0 else NEVER
            scan = fast_scan(
                data, at - base, base, self.in_order, family=family, before=before, crc=self.crc
            )
            at = base + scan.end
            self.records += scan.records
            if scan.records:
                self.last = base + scan.last
            # A record that the fast scan does not handle, or that the chunk cuts in two.
            header = parse(data, at - base, at, self.crc)
            if isinstance(header, NoRecord):
                header = self.log.parse_at(file, at, crc=self.crc)
            if isinstance(header, NoRecord):
                kept = None
                if header.kind == CRC and self.kind.has_point:
                    killed = self.kind is StartKind.KILLED
                    safe = self.last_run.synced_to
                    kept = altered(self.log, file, at, safe=safe, killed=killed)
                if kept is None:
                    return at, header.kind == BLANK
                header = kept
            family = header.sys_flag & HOST_FLAGS
            self._pass_one(at, header)
            at += header.size

    def _pass_one(self, position: int, header: RecordHeader) -> None:
        self._put(position, header)
        self.records += 1
        self.last = position
        if self.unsafe_from < 0 and header.store_timestamp >= self.physic:
            self.unsafe_from = position

    def _write_some(self) -> None:
        if self.records >= self.write_at:
            self.queues.write_all(sync=False)
            self.write_at = self.records + WRITE_EVERY_RECORDS

    def _put(self, position: int, header: RecordHeader) -> None:
        """Add a record that is the first of its queue, or not simply the next."""
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        key = topic, queue_id
        if header.sys_flag & NOT_QUEUED or key in self.lost:
            return
        if not can_have_unit(topic, queue_id, 0) or self.topics.removed(topic, position):
            return
        queue = self.queues.obtain(topic, queue_id)
        # A queue that is built from a log which is ours alone has no gap, wherever the point leads.
        built = key in self.built and self.last_run.crash_point is not None
        if not can_have_unit(topic, queue_id, queue_offset):
            if self.kind.has_point or built:
                refuse_number(self.log, position, queue, queue_offset)
            return
        scan_key = queue_key(topic, queue_id)
        if scan_key not in self.in_order and self._missing(queue, queue_offset):
            self.lost.add(key)
            return
        code = code_of(topic, header.properties, header.store_timestamp, self.levels)
        unit = queue_offset, position, header.size, code
        status = queue.append(*unit)
        if (
            status is UnitStatus.REPEATED
            and queue_offset == 0
            and position >= queue.max_physical_offset
        ):
            # The topic was deleted and created again: its numbers start anew.
            queue.destroy()
            status = queue.append(*unit)
        repeated = status is UnitStatus.REPEATED and not _reaches_into(queue, position)
        # With a gap, or a last unit that reaches into this record, the queue may be wrong, which
        # shows when it has been rebuilt.
        doubtful = status is not UnitStatus.ADDED and not repeated
        if (self.kind.has_point and repeated) or (built and status is not UnitStatus.ADDED):
            refuse_number(self.log, position, queue, queue_offset)
        if doubtful:
            self.lost.add(key)
            self.in_order.pop(scan_key, None)
        elif status is UnitStatus.ADDED and topic != SCHEDULE_TOPIC:
            self.in_order[scan_key] = queue

    def _rebuild(self) -> None:
        """Rebuild the lost queues from the whole log."""
        self.progress.step = "rebuild"
        lost, self.lost = self.lost, set()
        missing_from = self.start
        self.start = self.log.min_offset
        self.in_order.clear()
        self.built = lost
        for key in lost:
            self.queues.obtain(*key).destroy()
        walk = self.log.walk(self.start, self.end, from_disk=True)
        for number, (position, header) in enumerate(walk):
            if (header.topic, header.queue_id) in lost:
                self._put(position, header)
            if not number % WRITE_EVERY_RECORDS:
                self.progress.physical_offset = position
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
        return self.topics.known(queue.topic)

    def cut(self) -> None:
        """End queues and log at the end of the walk; zero what is behind."""
        reason = reason_at(self.log, self.end)
        self.queues.write_in_front_of(self.end, again=not self.kind.has_point)
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
        """Sync, after a crash: nobody may read what a power cut could still lose."""
        self.progress.step = "sync"
        crashed = self.kind is not StartKind.STOPPED
        if crashed and 0 <= self.unsafe_from < self.end:
            for file in self.log.queue.files:
                begin = max(self.unsafe_from - file.start, 0)
                if begin < file.wrote:
                    file.rewrite(begin, file.wrote)
        if not self.kind.has_point or self.queues.unsafe_count <= QUEUES_SYNCED:
            if crashed:
                self.queues.write_all(sync=True)
            self.queues_end = self.end
        if not self.kind.has_point:
            self.queues.correct_min_offsets(self.log.min_offset)
        self.log.take_over()
