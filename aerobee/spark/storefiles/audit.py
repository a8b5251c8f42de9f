"""Audits a store directory: a row for every fault.

Parts of the log in, one per task; findings out. Exactly one task reports each fault: the one whose
part of the log has it. Nothing is repaired.
Source: spark §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aerobee.spark.storefiles.audit_queues import QueueAudit, QueueRows
from aerobee.spark.storefiles.damage import removed
from aerobee.spark.storefiles.files import LogFiles, Passage
from aerobee.spark.storefiles.read import log_of, splits_in
from aerobee.spark.storefiles.segments import Segment, Split
from aerobee.store.format.faults import CRC, TAIL, TIME_BACKWARDS, Fault
from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.format.record_arrays import crc_faults, field_at
from aerobee.store.format.tags import tags_code_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.spark.options import StoreOptions
    from aerobee.spark.storefiles.files import Fragment, SegmentFile
    from aerobee.store.format.record_arrays import Bools, Ints

EVERYTHING = 1 << 62
"""An offset behind the end of every log."""
INNER_BATCH = 0x80
"""The sysFlag bit of records with many messages, whose queues are of another kind."""


class Finding(NamedTuple):
    """A row. Topic, queue and queue offset are None if the record cannot be read."""

    segment: str
    physical_offset: int
    kind: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    detail: str


class AuditPiece(NamedTuple):
    """The part of the log of one task; `following` is the adjacent next segment, if there is one.

    `tail` and `fault` describe the bytes after the data of the last segment, `ends` means that the
    log ends there.
    """

    split: Split
    following: Segment | None
    tail: str
    fault: Fault | None
    ends: bool = False


def plan_audit(options: StoreOptions) -> list[AuditPiece]:
    """Plan the parts of the log that the options choose. Raises: as `store_read.plan`."""
    log = log_of(options)
    pieces = []
    for number, part in enumerate(log.parts):
        behind = log.parts[number + 1].segment if number + 1 < len(log.parts) else None
        ends = part.segment.end == log.end and options.ending_physical_offset is None
        splits = splits_in(part, log, options)
        if part.fault is not None and part.limit == part.segment.start:
            # The segment has nothing but damage.
            splits = [Split(part.segment, part.limit, part.limit, part.limit)]
        for split in splits:
            last = split.end == part.limit
            pieces.append(
                AuditPiece(
                    split,
                    behind if last else None,
                    part.tail if last else "",
                    part.fault if last else None,
                    ends=ends and last,
                )
            )
    return pieces


def audit(piece: AuditPiece, options: StoreOptions) -> Iterator[Finding]:
    """Find the faults in one part of the log. Raises: DataLossError, OSError."""
    wanted = options.topics
    with LogFiles(options.path) as files, LogFiles(options.path) as others:
        try:
            file = files.opened(piece.split.segment)
        except FileNotFoundError:
            removed(options, piece.split.segment.path)
            return
        for finding in _Audit(piece, options, file, others).run():
            if not wanted or finding.topic is None or finding.topic in wanted:
                yield finding


class _Audit:
    def __init__(
        self, piece: AuditPiece, options: StoreOptions, file: SegmentFile, others: LogFiles
    ) -> None:
        self._piece = piece
        self._file = file
        self._others = others
        self._segment = piece.split.segment.name
        self._queues = QueueAudit(options.path, others)
        self._stored = 0
        """Store time of the last record, in ms."""
        self._faults: list[Fault] = []

    def run(self) -> Iterator[Finding]:
        piece, split = self._piece, self._piece.split
        passage = Passage(self._file, split, self._on_damage)
        first = None if split.begin > split.segment.start else split.begin
        for fragment in passage:
            first = int(fragment.places[0]) if first is None else first
            yield from self._found_so_far()
            yield from self._look_at(fragment)
        yield from self._found_so_far()
        yield from self._look_behind(passage.at)
        if piece.fault is not None:
            yield self._of(piece.fault)
            self._queues.regions.append((piece.fault.physical_offset, split.segment.end))
        elif piece.tail:
            yield self._of(Fault(TAIL, split.limit, piece.tail))
        # Bytes between the records of two tasks belong to the first task.
        end = split.limit if passage.at is None else passage.at
        if piece.ends and self._queues.at_rest:
            first = split.limit if first is None else first
            end = EVERYTHING
        if first is not None:
            for finding in self._queues.dangling(first, end):
                yield Finding(self._segment, *finding)

    # ── Damage ──

    def _on_damage(self, fault: Fault, following: int | None) -> None:
        self._faults.append(fault)
        end = self._piece.split.limit if following is None else following
        self._queues.regions.append((fault.physical_offset, end))

    def _found_so_far(self) -> Iterator[Finding]:
        faults, self._faults = self._faults, []
        for fault in faults:
            yield self._of(fault)

    def _of(self, fault: Fault) -> Finding:
        return Finding(
            self._segment, fault.physical_offset, fault.kind, None, None, None, fault.detail
        )

    # ── Records ──

    def _look_at(self, fragment: Fragment) -> Iterator[Finding]:
        """Check consecutive records. Hot."""
        data, heads, places, names = fragment
        queue_ids = field_at(data, "queue_id", heads.starts)
        numbers = field_at(data, "queue_offset", heads.starts)

        def of(row: int, kind: str, detail: str) -> Finding:
            topic, queue_id, number = names[row].decode(), int(queue_ids[row]), int(numbers[row])
            return Finding(self._segment, int(places[row]), kind, topic, queue_id, number, detail)

        for row in crc_faults(data, heads):
            yield of(row, CRC, "body CRC")
        before = np.append(self._stored, heads.stored[:-1])
        for row in np.flatnonzero(heads.stored < before).tolist():
            yield of(row, TIME_BACKWARDS, _backwards(int(before[row]), int(heads.stored[row])))
        self._stored = int(heads.stored[-1])
        codes = _codes(fragment)
        dispatched = heads.sys_flags & (NOT_QUEUED | INNER_BATCH) == 0
        for topic, queue_id, rows in _by_queue(names, queue_ids, dispatched):
            of_queue = QueueRows(
                numbers[rows],
                places[rows],
                (heads.ends - heads.starts)[rows],
                codes[rows],
                heads.stored[rows],
            )
            for finding in self._queues.compare(topic, queue_id, of_queue):
                yield Finding(self._segment, *finding)

    def _look_behind(self, at: int | None) -> Iterator[Finding]:
        """Check that store times do not decrease after this part of the log."""
        split, following = self._piece.split, self._piece.following
        name = self._segment
        if at is not None and split.end <= at < split.limit and not split.last:
            header = self._file.header_at(at)
        elif following is not None:
            at, name = following.start, following.name
            header = self._others.header_at(at)
        else:
            return
        if header is not None and header.store_timestamp < self._stored:
            detail = _backwards(self._stored, header.store_timestamp)
            yield Finding(
                name, at, TIME_BACKWARDS, header.topic, header.queue_id, header.queue_offset, detail
            )


def _backwards(before: int, stored: int) -> str:
    return f"stored {before - stored} ms before the message in front of it"


def _codes(fragment: Fragment) -> Ints:
    """The tags code that the queue entry of each record must have."""
    data, heads, _, _ = fragment
    ends = heads.ends.tolist()
    begins = (heads.topic_ends + 2).tolist()
    codes = [tags_code_of(data[at:end]) for at, end in zip(begins, ends, strict=True)]
    return np.array(codes, np.int64)


def _by_queue(
    names: list[bytes], queue_ids: Ints, dispatched: Bools
) -> Iterator[tuple[str, int, Ints]]:
    """Topic, queue id and rows of each queue, the rows in their order."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    topics = np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))
    rows = np.flatnonzero(dispatched)
    order = rows[np.lexsort((queue_ids[rows], topics[rows]))]
    cuts = np.flatnonzero((np.diff(topics[order]) != 0) | (np.diff(queue_ids[order]) != 0)) + 1
    for group in np.split(order, cuts):
        if len(group):
            yield names[group[0]].decode(), int(queue_ids[group[0]]), group
