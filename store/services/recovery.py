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

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import structlog

from store.errors import StoreDamaged
from store.format.record import (
    MAGIC_V1,
    START,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    explain,
    parse,
)
from store.format.unit import SCHEDULE_TOPIC, DelayLevels, code_of
from store.results import Recovery, UnitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store.files.commit_log import CommitLog
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
SEARCH_BYTES = 1 << 20
_MAGIC = MAGIC_V1.to_bytes(4, "big")[:3]
"""What both record versions begin with."""
_NO_UNIT = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


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
        run.refuse_holes()
        run.find_start()
        run.walk()
        run.refuse_loss()
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
        self.seen: set[tuple[str, int]] = set()
        self.lost: set[tuple[str, int]] = set()
        """Queues whose units are missing from before the start of the walk."""

    def refuse_holes(self) -> None:
        """A missing segment between others cannot be repaired from what is there."""
        files = self.log.queue.files
        for file, following in pairwise(files):
            if file.end != following.start:
                raise StoreDamaged(
                    f"{self.log.queue.path_of(file.end)} is missing between {file.path.name} and "
                    f"{following.path.name}: restore it, or move the older segments away"
                )

    def find_start(self) -> None:
        """Settle the ends of the queues and the place where the walk begins."""
        queues = self.queues
        queues.recover(scan=not self.clean)
        self.lost = {key for key, queue in queues.table.items() if queue.damaged}
        reach = queues.max_physical_offset()
        furthest = self._furthest(reach)
        if reach < 0:
            self.start = self.log.min_offset
        elif not self.clean:
            self.start = abnormal_start(self._first_records(), self.checkpoint.min_timestamp)
            # Of what the checkpoint does not vouch for any page may be missing: built again.
            queues.truncate(self.start)
        elif furthest >= 0 and self._timestamp_at(furthest):
            # All older messages have their units: a clean stop waits for dispatch.
            self.start = furthest
        else:
            self.start = normal_start(self._first_records(), reach)

    def _furthest(self, reach: int) -> int:
        """Where the last message that has a unit should begin; −1 without one."""
        for queue in self.queues.table.values():
            if reach >= 0 and queue.max_physical_offset == reach:
                unit = queue.unit(queue.end_offset - 1)
                return unit[0] if unit else -1
        return -1

    def _first_records(self) -> Iterable[FirstRecord]:
        for file in reversed(self.log.queue.files):
            yield FirstRecord(file.start, self._timestamp_at(file.start))

    def _timestamp_at(self, physical_offset: int) -> int:
        """Store time in ms of the whole record there, 0 when there is none."""
        file = self.log.queue.find(physical_offset)
        if file is None:
            return 0
        found = parse(file.readable(), physical_offset - file.start, physical_offset, crc=self.crc)
        return 0 if isinstance(found, int) else found[5]

    def walk(self) -> None:
        """Pass every whole record from the start on, and give the queues what they lack."""
        self.end = self._pass(self.start, None, self._dispatch)
        if self.lost:
            log.warning(
                "store.queues_rebuilt",
                queues=sorted(f"{topic}-{queue_id}" for topic, queue_id in self.lost),
            )
            for key in self.lost:
                self.queues.obtain(*key).destroy()
            self._pass(self.log.min_offset, self.end, self._rebuild)

    def _pass(self, start: int, end: int | None, dispatch: Callable[[int, Digest], None]) -> int:
        """One walk; returns where the last sound record ends."""
        physic = self.checkpoint.physic_msg_timestamp
        doubtful = -1
        records = 0
        walk = self.log.walk(start, end, crc=self.crc)
        for position, digest in walk:
            dispatch(position, digest)
            if digest[5] < physic or not looks_torn(digest[6]):
                doubtful = -1
            elif doubtful < 0:
                doubtful = position
            self.last_store_timestamp = digest[5]
            if self.unsafe_from < 0 and digest[5] >= physic:
                self.unsafe_from = position
            records += 1
            if records % WRITE_EVERY_RECORDS == 0:
                self.queues.write_all(sync=False)
        if end is None:
            self.records = records
        # A whole run of them is cut, so that a second recovery finds nothing more to cut.
        torn = doubtful >= 0 and not self.clean
        return doubtful if torn else walk.stop.physical_offset

    def _dispatch(self, position: int, digest: Digest) -> None:
        """Give one record to its queue, unless older units of that queue are missing."""
        key = digest[1], digest[2]
        if key not in self.seen:
            self.seen.add(key)
            if self._missing(key, digest[3]):
                self.lost.add(key)
        if key not in self.lost and not self._put(position, digest):
            self.lost.add(key)

    def _missing(self, key: tuple[str, int], queue_offset: int) -> bool:
        """Whether a queue that is empty should not be, when this is the first record seen of it."""
        queue = self.queues.find(*key)
        queue = self.queues.find(*key)
        if queue_offset == 0 or self.start <= self.log.min_offset:
            return False
        if queue is not None and (
            queue.max_physical_offset >= 0 or queue.end_offset == queue_offset
        ):
            return False
        return self.known is None or self.known(key[0])

    def _rebuild(self, position: int, digest: Digest) -> None:
        if (digest[1], digest[2]) in self.lost and not self._put(position, digest):
            log.error(
                "store.queue_incomplete",
                topic=digest[1],
                queue_id=digest[2],
                queue_offset=digest[3],
                physical_offset=position,
            )

    def _put(self, position: int, digest: Digest) -> bool:
        """Add the unit of a record; False when units before it are missing."""
        size, topic, queue_id, queue_offset, sys_flag, stored, properties = digest
        if sys_flag & TRANSACTION_MASK in _NO_UNIT:
            return True
        code = code_of(topic, properties, stored, self.levels)
        unit = (topic, queue_id, queue_offset, position, size, code)
        status = self.queues.put(*unit)
        if status is UnitStatus.REPEATED and queue_offset == 0:
            queue = self.queues.obtain(topic, queue_id)
            if position >= queue.max_physical_offset:
                # The topic was deleted and made again: its numbers start anew.
                queue.destroy()
                status = self.queues.put(*unit)
        return status is not UnitStatus.GAP

    def refuse_loss(self) -> None:
        """What was on disk for certain must not be behind the cut: that is damage, not a tear."""
        safe_until = None if self.clean else self.checkpoint.physic_msg_timestamp
        for position in self._behind():
            stored = self._timestamp_at(position)
            # Older ones are what an earlier cut by another broker has left, which erases nothing.
            if (
                stored
                and stored >= self.last_store_timestamp
                and (safe_until is None or stored <= safe_until)
            ):
                raise StoreDamaged(
                    f"{self._file_of(self.end)} is damaged at physical offset {self.end} "
                    f"({self._reason()}), whole messages follow at {position}: restore the file "
                    "from a copy; to give up everything behind the damage, remove `checkpoint` "
                    "and create an empty file `abort` beside it"
                )

    def _behind(self) -> Iterable[int]:
        """Places behind the end where a record may begin."""
        file = self.log.queue.find(self.end)
        if file is not None:
            handle = file.open()
            for begin, end in handle.data_ranges(self.end - file.start, file.size):
                for at in range(begin, end, SEARCH_BYTES):
                    piece = handle.pread(SEARCH_BYTES + len(_MAGIC) - 1, at)
                    found = piece.find(_MAGIC)
                    while found >= 0:
                        yield file.start + at + found - START.offset["magic"]
                        found = piece.find(_MAGIC, found + 1)
        yield from (file.start for file in self.log.queue.files if file.start > self.end)

    def _file_of(self, physical_offset: int) -> str:
        file = self.log.queue.find(physical_offset)
        return str(file.path if file else self.log.queue.directory)

    def _reason(self) -> str:
        file = self.log.queue.find(self.end)
        if file is None:
            return "no segment"
        return explain(file.readable(), self.end - file.start, self.end, self.crc)

    def cut(self) -> None:
        """End queues and log at the end of the walk; zero what lies behind, so it stays dead."""
        reason = self._reason()
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
