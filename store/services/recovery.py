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

from store.format.record import BAD, BLANK_FOUND, HOST_FLAGS, TRANSACTION_PREPARED
from store.format.sweep import NEVER, line_key, sweep
from store.format.unit import SCHEDULE_TOPIC, DelayLevels, code_of, has_place
from store.results import Recovery, RecoveryProgress, UnitStatus
from store.services.damage import (
    LogEnd,
    reason_at,
    record_time_at,
    refuse_holes,
    refuse_loss,
    refuse_no_log,
    refuse_short,
    refuse_strangers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store.files.commit_log import CommitLog
    from store.files.consume_queue import ConsumeQueue
    from store.files.consume_queues import ConsumeQueues
    from store.files.disk import Clock
    from store.files.last_stop import LastStop, QueueEnds
    from store.files.mapped_file import MappedFile
    from store.format.checkpoint import Checkpoint
    from store.format.record import Digest

__all__ = ["FirstRecord", "abnormal_start", "clamped", "normal_start", "recover"]

log = structlog.get_logger("store.recovery")

CHUNK_BYTES = 1 << 20
WRITE_EVERY_RECORDS = 65_536
"""So that building long queues again does not keep them in memory."""
TORN_ENDS = (0x00, 0xFF)
"""What a torn write leaves where the last byte of a property string should be."""


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
    last_stop: LastStop | None = None,
    progress: RecoveryProgress | None = None,
) -> Recovery:
    """Bring log and queues into agreement; both are loaded, nothing serves yet.

    `levels` dates the units of parked delay messages. `known` says whether a topic still exists;
    the queues of one that does not are not searched for through the whole log. `last_stop` counts
    after a clean stop. `progress` is kept for whoever looks from another thread.
    Raises: StoreDamaged before anything is cut, when the cut would take what was known to be safe.
    """
    began = clock.monotonic()
    run = _Recovery(commit_log, queues, checkpoint, clean, levels or DelayLevels(), crc, known)
    run.last_stop = last_stop if clean else None
    run.progress = progress or RecoveryProgress()
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
        run.find_start()
        run.walk()
        run.cut()
        run.make_durable()
    else:
        # After a crash queues may be ahead of the log, but the checkpoint never is.
        refuse_no_log(commit_log, checkpoint, -1)
        queues.recover(scan=not clean)
        refuse_no_log(commit_log, checkpoint, queues.max_physical_offset() if clean else -1)
        queues.destroy()
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
        self.physic = checkpoint.physic_msg_timestamp
        self.last_stop: LastStop | None = None
        self.progress = RecoveryProgress()
        self.unsafe_from = -1
        """The first record that may not be on disk yet; −1 when all are."""
        self.last = -1
        """Where the last record passed begins; −1 before the first."""
        self.write_at = WRITE_EVERY_RECORDS
        self.lines: dict[tuple[bytes, int], ConsumeQueue] = {}
        """Queues that lack nothing so far; a sweep gives units to them itself."""
        self.lost: set[tuple[str, int]] = set()
        """Queues whose units are missing from before the start of the walk."""
        self.led_to = -1
        """After a clean stop: where the last unit leads, if that is to no message."""

    def find_start(self) -> None:
        """Settle the ends of the queues and the place where the walk begins."""
        queues = self.queues
        self.progress.step = "queues"
        self.progress.end_offset = self.log.max_offset
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
        # That unit leads nowhere: the queue or the log is not what was left on disk.
        self.led_to = -1 if unit is None else unit[0]
        self.lost.add((queue.topic, queue.queue_id))
        return normal_start(self._first_records(), reach)

    def _first_records(self) -> Iterable[FirstRecord]:
        for file in reversed(self.log.queue.files):
            yield FirstRecord(file.start, record_time_at(self.log, file.start, self.crc))

    def walk(self) -> None:
        """Pass every whole record from the start on, and give the queues what they lack."""
        self.progress.step = "log"
        self.end = self._pass()
        self._refuse()
        short = self._short_of_last_stop()
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
                # None of its messages is left in the log; their numbers are used all the same.
                queue.begin_at(ends.end)
        for queue in self.queues.table.values():
            queue.next_offset = max(queue.next_offset, queue.end_offset)

    def _short_of_last_stop(self) -> dict[tuple[str, int], QueueEnds]:
        """Queues that are not what the last stop left, if the log is."""
        last = self.last_stop
        if last is None or (last.log_begin, last.log_end) != (self.log.min_offset, self.end):
            return {}
        short = {}
        table = self.queues.table
        for topic, queues in last.queues.items():
            for queue_id, ends in queues.items():
                queue = table.get((topic, queue_id))
                whole = queue and queue.end_offset == ends.end and queue.min_offset <= ends.begin
                if not whole and (self.known is None or self.known(topic)):
                    short[topic, queue_id] = ends
        return short

    def _refuse(self) -> None:
        """Damage that a cut would hide, before anything of the log or a whole queue goes."""
        safe_before = None if self.clean else self.checkpoint.physic_msg_timestamp
        end = LogEnd(self.end, self.last_store_timestamp, safe_before)
        refuse_strangers(self.log, self.end)
        if self.led_to >= self.end:
            refuse_short(self.log, self.end, self._led_behind(), self.crc)
        refuse_loss(self.log, end, self.crc)

    def _led_behind(self) -> list[int]:
        """Where the last two units of every queue lead, if that is not in front of the end."""
        units = (
            queue.unit(queue.end_offset - back)
            for queue in self.queues.table.values()
            for back in (1, 2)
        )
        return [unit[0] for unit in units if unit is not None and unit[0] >= self.end]

    def _pass(self) -> int:
        """The walk; returns where the last sound record ends."""
        at = self.start
        file = self.log.queue.find(at)
        while file is not None:
            at, found = self._pass_segment(file, at)
            file = self.log.queue.after(file) if found == BLANK_FOUND else None
            at = at if file is None else file.start
        last = self._digest_at(self.last)
        if last is None:
            return at
        self.last_store_timestamp = stored = last[5]
        if not self.clean and stored >= self.physic and looks_torn(last[6]):
            return self._sound_end(self.unsafe_from)
        return at

    def _pass_segment(self, file: MappedFile, at: int) -> tuple[int, int]:
        """Where the records of a segment end, and what is there, as `parse` says."""
        base = at
        data = b""
        family = 0
        while True:
            if at - base >= len(data):
                base, data = at, file.open().pread(CHUNK_BYTES, at - file.start)
                self.progress.physical_offset = at
                self._write_some()
            before = self.physic if self.unsafe_from < 0 else NEVER
            swept = sweep(
                data, at - base, base, self.lines, family=family, before=before, crc=self.crc
            )
            at = base + swept.end
            self.records += swept.records
            if swept.records:
                self.last = base + swept.last
            # What the sweep does not take, or what the chunk cuts in two.
            found = self.log.parse_at(file, at, crc=self.crc)
            if isinstance(found, int):
                return at, found
            family = found[4] & HOST_FLAGS
            self._pass_one(at, found)
            at += found[0]

    def _pass_one(self, position: int, digest: Digest) -> None:
        self._put(position, digest)
        self.records += 1
        self.last = position
        if self.unsafe_from < 0 and digest[5] >= self.physic:
            self.unsafe_from = position

    def _write_some(self) -> None:
        if self.records >= self.write_at:
            self.queues.write_all(sync=False)
            self.write_at = self.records + WRITE_EVERY_RECORDS

    def _digest_at(self, position: int) -> Digest | None:
        file = self.log.queue.find(position)
        found = BAD if file is None else self.log.parse_at(file, position)
        return None if isinstance(found, int) else found

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
        if not has_place(topic, queue_id, queue_offset):
            return
        queue = self.queues.obtain(topic, queue_id)
        line = line_key(topic, queue_id)
        if line not in self.lines and self._missing(queue, queue_offset):
            self.lost.add(key)
            return
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
            self.lines.pop(line, None)
        elif status is UnitStatus.ADDED and topic != SCHEDULE_TOPIC:
            self.lines[line] = queue

    def _rebuild(self) -> None:
        """Build the lost queues from the whole log."""
        self.progress.step = "rebuild"
        lost, self.lost = self.lost, set()
        missing_from = self.start
        self.start = self.log.min_offset
        self.lines.clear()
        for key in lost:
            self.queues.obtain(*key).destroy()
        for number, (position, digest) in enumerate(self.log.walk(self.start, self.end)):
            if (digest[1], digest[2]) in lost:
                self._put(position, digest)
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
        return self.known is None or self.known(queue.topic)

    def cut(self) -> None:
        """End queues and log at the end of the walk; zero what lies behind, so it stays dead."""
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
        self.progress.step = "sync"
        if not self.clean:
            if 0 <= self.unsafe_from < self.end:
                for file in self.log.queue.files:
                    begin = max(self.unsafe_from - file.start, 0)
                    if begin < file.wrote:
                        file.rewrite(begin, file.wrote)
            self.queues.write_all(sync=True)
        self.queues.correct_min_offsets(self.log.min_offset)
        self.log.take_over()
