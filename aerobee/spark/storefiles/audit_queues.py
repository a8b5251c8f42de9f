"""Checks the consume queues of a store against its log, one part of the log at a time.

Records of one part of the log in, queue by queue; findings out: queue entries that are missing,
wrong or lead nowhere, and gaps in the queue offsets. Entries that the next start of a broker would
write are no findings, nor are the remains of a deleted topic.
Source: spark §9, store format §1.3.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.relaxed_json import decode
from aerobee.spark.storefiles.queue_files import (
    LIGHT_QUEUES,
    UNITS,
    QueueReader,
    has_queues,
    queues_of,
)
from aerobee.store.format.checkpoint import CHECKPOINT
from aerobee.store.format.faults import CQ_MISMATCH, CQ_MISSING, END
from aerobee.store.format.names import ABORT, CONFIG, RECOVERY_POINT
from aerobee.store.format.names import CHECKPOINT as CHECKPOINT_FILE
from aerobee.store.format.queue_faults import number_fault, unit_detail, unit_fault
from aerobee.store.format.recovery_point import newest_point
from aerobee.store.format.unit import BLANK_SIZE, UNIT_SIZE, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.spark.storefiles.files import LogFiles
    from aerobee.store.format.queue_reader import Queue
    from aerobee.store.format.record_arrays import Ints
    from aerobee.store.format.recovery_point import RecoveryPoint

NEVER = 1 << 62
EXPLAINED_MAX = 100_000
"""The longest gap whose messages are checked one by one."""


class QueueRows(NamedTuple):
    """Records of one queue in the order of the log."""

    offsets: Ints
    places: Ints
    sizes: Ints
    codes: Ints
    """The tags codes that their queue entries must have."""
    stored: Ints

    def cut(self, begin: int, end: int) -> QueueRows:
        """The rows from `begin` to before `end`."""
        return QueueRows(*(column[begin:end] for column in self))


class QueueFinding(NamedTuple):
    """A finding about one queue offset; `place` is the physical offset."""

    place: int
    kind: str
    topic: str
    queue_id: int
    queue_offset: int
    detail: str


class QueueState:
    """The state of one queue during the audit."""

    __slots__ = ("first", "key", "next", "queue", "seen")

    def __init__(self, key: tuple[str, int], queue: Queue | None) -> None:
        self.key = key
        self.queue = queue
        self.next: int | None = None
        """The queue offset that the next record must have; None before the first one."""
        self.seen: list[Ints] = []
        self.first: tuple[int, int] | None = None
        """Queue offset and physical offset of the first entry, once it has been read."""


class QueueAudit:
    """Compares all queues with one part of the log. Raises: OSError."""

    def __init__(self, root: str, files: LogFiles) -> None:
        self._files = files
        self._there = has_queues(root)
        self._topics = _topics_of(root)
        self._pending_after = _safe_until(root)
        self._point = _point_of(root)
        self._extended = (Path(root) / "consumequeue_ext").is_dir()
        self.regions: list[tuple[int, int]] = []
        """Ranges of the log without a readable record."""
        queues = queues_of(root, lambda topic: not topic.startswith(LIGHT_QUEUES))
        self._states = {
            (queue.topic, queue.queue_id): QueueState((queue.topic, queue.queue_id), queue)
            for queue in queues
        }

    # ── From log to queues ──

    def compare(self, topic: str, queue_id: int, rows: QueueRows) -> Iterator[QueueFinding]:
        """Compare further records of a queue."""
        state = self._states.get((topic, queue_id))
        if state is None:
            state = self._states[topic, queue_id] = QueueState((topic, queue_id), None)
        state.seen.append(rows.offsets)
        cuts = np.flatnonzero(np.diff(rows.offsets) != 1) + 1
        bounds = [0, *cuts.tolist(), len(rows.offsets)]
        for number, begin in enumerate(bounds[:-1]):
            run = rows.cut(begin, bounds[number + 1])
            after = int(rows.offsets[bounds[number + 1]]) if number + 2 < len(bounds) else None
            yield from self._number(state, run, after)
            if self._compared(state):
                yield from self._compare_run(state, run)

    def _compared(self, state: QueueState) -> bool:
        """Whether the queue must have entries. Entries of a deleted topic are gone with it."""
        topic = state.key[0]
        if topic.startswith(LIGHT_QUEUES) or not self._there:
            return False
        return state.queue is not None or self._topics is None or topic in self._topics

    def _number(
        self, state: QueueState, run: QueueRows, after: int | None
    ) -> Iterator[QueueFinding]:
        """Check that a run of consecutive records continues the one before."""
        first, count = int(run.offsets[0]), len(run.offsets)
        expected, state.next = state.next, first + count
        fault = number_fault(expected, first)
        if fault == END or (expected is not None and self._explained(state, expected, first)):
            return
        detail = "a queue offset below 0" if expected is None else f"follows {expected - 1}"
        yield _finding(state, fault, run, 0, detail)
        if expected is not None and after == expected + count:
            # Only these have wrong queue offsets.
            state.next = after

    def _explained(self, state: QueueState, begin: int, end: int) -> bool:
        """Whether the messages of a gap are in unreadable ranges of the log."""
        if state.queue is None or not begin < end <= begin + EXPLAINED_MAX:
            return False
        with QueueReader(state.queue) as reader:
            units = reader.units(begin, end - begin)
        return all(
            size > 0 and self._unreadable(place)
            for place, size in zip(units["place"].tolist(), units["size"].tolist(), strict=True)
        )

    def _unreadable(self, place: int) -> bool:
        return any(begin <= place < end for begin, end in self.regions)

    def _compare_run(self, state: QueueState, run: QueueRows) -> Iterator[QueueFinding]:
        first, count = int(run.offsets[0]), len(run.offsets)
        if first < 0:
            return
        if state.queue is None:
            units = np.zeros(count, UNITS)
        else:
            with QueueReader(state.queue) as reader:
                units = reader.units(first, count)
        same = (units["place"] == run.places) & (units["size"] == run.sizes)
        for at in np.flatnonzero(~same | (units["code"] != run.codes)).tolist():
            unit = Unit(int(units["place"][at]), int(units["size"][at]), int(units["code"][at]))
            kind, detail = self._judged(state, run, at, unit)
            if kind != END:
                yield _finding(state, kind, run, at, detail)

    def _judged(self, state: QueueState, run: QueueRows, at: int, unit: Unit) -> tuple[str, str]:
        """Kind and detail of a wrong queue entry; END if it has no fault that counts."""
        stored = int(run.stored[at])
        if stored > self._pending_after:
            return END, ""
        wanted = Unit(int(run.places[at]), int(run.sizes[at]), int(run.codes[at]))
        kind = unit_fault(state.key[0], wanted, unit, stored_ms=stored, extended=self._extended)
        gone = kind == CQ_MISSING and (
            self._of_earlier_topic(state, run, at)
            or self._is_deleted(state, run, at)
            or (state.queue is None and wanted.physical_offset < self._whole_until)
        )
        again = kind == CQ_MISMATCH and self._is_again(
            state, int(run.offsets[at]), unit.physical_offset, wanted.physical_offset
        )
        if kind == END or gone or again:
            return END, ""
        return kind, unit_detail(kind, wanted, unit)

    @cached_property
    def _whole_until(self) -> int:
        """No queue is lost that had units of messages before this byte; 0 if nothing says so.

        The recovery point has the sum of the ends of all queues there, which anything lost makes
        smaller. So a queue without files is one of a deleted topic, which may have been made anew.
        """
        point, units = self._point, 0
        if point is None:
            return 0
        for state in self._states.values():
            if state.queue is not None:
                with QueueReader(state.queue) as reader:
                    units += reader.first_at(point.queues_end, state.queue.first, state.queue.end)
        return point.queues_end if units == point.queues_units else 0

    def _of_earlier_topic(self, state: QueueState, run: QueueRows, at: int) -> bool:
        """Whether the topic was created anew after this record."""
        if state.queue is None:
            return False
        if state.first is None:
            state.first = self._first_unit(state.queue)
        number, place = state.first
        return int(run.offsets[at]) >= number and int(run.places[at]) < place

    def _is_deleted(self, state: QueueState, run: QueueRows, at: int) -> bool:
        """Whether a broker has deleted the message or its topic since, and so the queue entry."""
        segment = self._files.segment_of(int(run.places[at]))
        if segment is None or not Path(segment.path).exists():
            return True
        return state.queue is not None and not Path(state.queue.path).exists()

    def _first_unit(self, queue: Queue) -> tuple[int, int]:
        with QueueReader(queue) as reader:
            units = reader.units(queue.first, max(queue.file_bytes // UNIT_SIZE, 1))
        real = np.flatnonzero((units["size"] > 0) & (units["place"] + units["size"] > 0))
        real = real[~((units["place"][real] == 0) & (units["size"][real] == BLANK_SIZE))]
        if not len(real):
            return queue.first, 0
        return queue.first + int(real[0]), int(units["place"][real[0]])

    def _is_again(self, state: QueueState, queue_offset: int, place: int, old: int) -> bool:
        """Whether the entry leads to a later message of this offset: the topic was created anew."""
        if place <= old:
            return False
        header = self._files.header_at(place)
        if header is None:
            return False
        return (header.topic, header.queue_id, header.queue_offset) == (*state.key, queue_offset)

    # ── From queues to log ──

    @property
    def at_rest(self) -> bool:
        """Whether no broker uses the store, and the next start will not repair it."""
        return self._pending_after == NEVER

    def dangling(self, begin: int, end: int) -> Iterator[QueueFinding]:
        """Entries that lead to bytes [begin, end) of the log, but not to a message of theirs.

        All records that begin there have been compared before.
        """
        for state in self._states.values():
            if state.queue is not None and state.queue.starts:
                yield from self._dangling_of(state, state.queue, begin, end)

    def _dangling_of(
        self, state: QueueState, queue: Queue, low: int, high: int
    ) -> Iterator[QueueFinding]:
        with QueueReader(queue) as reader:
            begin = reader.first_at(low, queue.first, queue.end)
            end = reader.first_at(high, begin, queue.end)
            units = reader.units(begin, end - begin)
        seen = np.concatenate(state.seen) if state.seen else np.empty(0, np.int64)
        stray = ~np.isin(np.arange(begin, end), seen) & (units["size"] > 0)
        stray &= (units["place"] >= low) & (units["place"] < high)
        stray &= (units["place"] != 0) | (units["size"] != BLANK_SIZE)
        for at in np.flatnonzero(stray).tolist():
            place, size = int(units["place"][at]), int(units["size"][at])
            if not self._unreadable(place):
                detail = f"the unit says {size} bytes at {place}, where no such message is"
                yield QueueFinding(place, CQ_MISMATCH, *state.key, begin + at, detail)


def _finding(state: QueueState, kind: str, run: QueueRows, at: int, detail: str) -> QueueFinding:
    place, number = int(run.places[at]), int(run.offsets[at])
    return QueueFinding(place, kind, *state.key, number, detail)


def _topics_of(root: str) -> frozenset[str] | None:
    """The topics of the store; None if no file lists them."""
    try:
        content = decode((Path(root) / CONFIG / "topics.json").read_bytes())
        return frozenset(content["topicConfigTable"])
    except (FileNotFoundError, NotADirectoryError, BodyError, KeyError, TypeError):
        return None


def _point_of(root: str) -> RecoveryPoint | None:
    """The last recovery point of a broker of ours; None without one."""
    try:
        return newest_point((Path(root) / RECOVERY_POINT).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _safe_until(root: str) -> int:
    """The store time in ms up to which queue entries must exist.

    A broker in use, or the next start after a crash, still has to write later ones.
    """
    if not (Path(root) / ABORT).exists():
        return NEVER
    try:
        data = (Path(root) / CHECKPOINT_FILE).read_bytes()[: CHECKPOINT.size]
    except FileNotFoundError:
        return 0
    return CHECKPOINT.read(data.ljust(CHECKPOINT.size, b"\0")).min_timestamp
