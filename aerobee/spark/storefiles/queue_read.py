"""Reads messages through their consume queue: entries → records, in the order of each queue.

First a plan of ranges of queue offsets, then the records of each range. An entry that leads nowhere
is damage; one that leads before the log or outside the selected range is not, unless entries on
both sides of it lead into that range.
Source: spark §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aerobee.errors import ConfigurationError
from aerobee.spark.storefiles.damage import removed
from aerobee.spark.storefiles.files import WINDOW_BYTES, Fragment, LogFiles, all_segments
from aerobee.spark.storefiles.queue_files import (
    LIGHT_QUEUES,
    QueueReader,
    batched_topics,
    has_files,
    has_queues,
    places_of,
    queues_of,
)
from aerobee.spark.topics import topic_filter
from aerobee.store.format.faults import CQ_MISMATCH, Fault
from aerobee.store.format.record import FIXED_BYTES
from aerobee.store.format.record_arrays import field_at, heads_of
from aerobee.store.format.unit import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.spark.options import StoreOptions
    from aerobee.spark.storefiles.damage import Damage
    from aerobee.spark.storefiles.queue_files import Units
    from aerobee.spark.storefiles.segments import Segment
    from aerobee.store.format.queue_reader import Queue
    from aerobee.store.format.record_arrays import Bools, Ints

CHUNK_UNITS = 4_096
GAP_BYTES = 16 << 10
"""Gaps in the log up to this size are read along instead of with a second call."""
SAMPLE_UNITS = 1_000
RECORD_BYTES = 1_024
"""The assumed size of a record without an entry."""


class QueuePiece(NamedTuple):
    """Queue offsets [begin, end) of a queue, and the selected bytes [low, high) of the log."""

    queue: Queue
    begin: int
    end: int
    low: int
    high: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.begin


def queue_pieces(options: StoreOptions, low: int, high: int) -> list[QueuePiece]:
    """Plan pieces whose entries lead to about `splitBytes` of the log each.

    Raises: ConfigurationError without queues, OSError.
    """
    if not has_queues(options.path):
        raise ConfigurationError(
            f"via=consumequeue: {options.path} has no consume queues in files; read it "
            "via=commitlog"
        )
    wanted = topic_filter(options.topics, exclude_system=options.exclude_system)
    for topic in filter(wanted, batched_topics(options.path)):
        raise ConfigurationError(
            f"via=consumequeue: the queues of topic {topic} hold batches (queue.type=BatchCQ); "
            "read it via=commitlog, or name other topics"
        )
    pieces: list[QueuePiece] = []
    for queue in queues_of(
        options.path, lambda topic: wanted(topic) and not topic.startswith(LIGHT_QUEUES)
    ):
        with QueueReader(queue) as reader:
            first, end = queue.first, reader.end()
            sample = reader.units(max(first, end - SAMPLE_UNITS), min(end - first, SAMPLE_UNITS))
        sizes = sample["size"][(sample["size"] > 0) & (sample["place"] > 0)]
        mean = int(np.median(sizes)) if len(sizes) else RECORD_BYTES
        step = max(options.split_bytes // max(mean, FIXED_BYTES), 1)
        pieces += [
            QueuePiece(queue, at, min(at + step, end), low, high) for at in range(first, end, step)
        ]
    return pieces


def queue_fragments(piece: QueuePiece, options: StoreOptions, damage: Damage) -> Iterator[Fragment]:
    """Read the records of a piece. Raises: RecordDamagedError, DataLossError, OSError."""
    with QueueReader(piece.queue) as reader, LogFiles(options.path) as files:
        records = _Records(piece, options, damage, files)
        for queue_offsets, units in _wanted(piece, reader, damage):
            yield from records.of(queue_offsets, units)
        if reader.gone and _is_lost(piece, options.path):
            removed(options, f"a file of {piece.queue.path}")


def _is_lost(piece: QueuePiece, root: str) -> bool:
    """Whether a deleted file of the queue had entries for selected records.

    A broker deletes such a file when all its messages are deleted, or with its topic.
    """
    first = min((segment.start for segment in all_segments(root)), default=piece.high)
    return first > piece.low or not has_files(piece.queue)


def _wanted(piece: QueuePiece, reader: QueueReader, damage: Damage) -> Iterator[tuple[Ints, Units]]:
    """The entries for selected records. All entries between such must be valid."""
    queue, begin, end, _, _ = piece
    before = range(begin, queue.first, -CHUNK_UNITS)
    entered = _any_inside(
        piece, reader, ((max(at - CHUNK_UNITS, queue.first), at) for at in before)
    )
    doubted = np.empty((0, 2), np.int64)
    for at in range(begin, end, CHUNK_UNITS):
        units = reader.units(at, min(CHUNK_UNITS, end - at))
        inside = _inside(piece, units)
        offsets = np.arange(at, at + len(units))
        chosen = np.flatnonzero(inside)
        first = 0 if entered else int(chosen[0]) if len(chosen) else len(units)
        stray = np.flatnonzero(~inside[first:]) + first
        doubted = np.concatenate((doubted, np.stack((offsets, places_of(units)), 1)[stray]))
        if not len(chosen):
            continue
        entered = True
        between = doubted[:, 0] < offsets[chosen[-1]]
        _tell(doubted[between], damage)
        doubted = doubted[~between]
        yield offsets[chosen], units[chosen]
    if len(doubted):
        behind = range(end, queue.end, CHUNK_UNITS)
        if _any_inside(piece, reader, ((at, min(at + CHUNK_UNITS, queue.end)) for at in behind)):
            _tell(doubted, damage)


def _any_inside(piece: QueuePiece, reader: QueueReader, ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether an entry of these ranges leads to a selected record, the nearest range first.

    Holes of any length are skipped, but only few entries that lead elsewhere.
    """
    for begin, end in ranges:
        units = reader.units(begin, end - begin)
        if _inside(piece, units).any():
            return True
        if (units["size"] > 0).sum() > CHUNK_UNITS // 2:
            return False
    return False


def _tell(doubted: Ints, damage: Damage) -> None:
    for queue_offset, place in doubted.tolist():
        detail = f"the unit of queue offset {queue_offset} leads to no message of the queue"
        damage.report_fault(Fault(CQ_MISMATCH, place, detail))


def _inside(piece: QueuePiece, units: Units) -> Bools:
    places = places_of(units)
    blank = (places == 0) & (units["size"] == BLANK_SIZE)
    inside: Bools = (units["size"] > 0) & (places >= piece.low) & (places < piece.high) & ~blank
    return inside


class _Records:
    """Reads the records of queue entries: one call for records that are close together."""

    def __init__(
        self, piece: QueuePiece, options: StoreOptions, damage: Damage, files: LogFiles
    ) -> None:
        self._queue = piece.queue
        self._options = options
        self._damage = damage
        self._files = files

    def of(self, queue_offsets: Ints, units: Units) -> Iterator[Fragment]:
        """Read the records of these entries, as many at a time as fit into a window."""
        pieces: list[bytes] = []
        records: list[tuple[int, int, int]] = []
        room = WINDOW_BYTES
        for queue_offset, place, size, data in self._read(queue_offsets, units):
            if len(data) > room and pieces:
                yield from self._checked(pieces, records)
                pieces, records, room = [], [], WINDOW_BYTES
            pieces.append(data)
            records.append((queue_offset, place, size))
            room -= len(data)
        if pieces:
            yield from self._checked(pieces, records)

    def _read(self, queue_offsets: Ints, units: Units) -> Iterator[tuple[int, int, int, bytes]]:
        """Queue offset, physical offset, size and bytes of each record."""
        rows = list(zip(queue_offsets.tolist(), *_columns(units), strict=True))
        at = 0
        while at < len(rows):
            queue_offset, place, size = rows[at]
            segment = self._segment(queue_offset, place, size)
            if segment is None:
                at += 1
                continue
            behind, end = at + 1, place + size
            while behind < len(rows):
                _, following, more = rows[behind]
                if (
                    not end <= following <= end + GAP_BYTES
                    or following + more > min(place + WINDOW_BYTES, segment.end)
                    or more < FIXED_BYTES
                ):
                    break
                end = following + more
                behind += 1
            data = self._bytes(segment, place, end)
            if data is not None:
                for number, begin, length in rows[at:behind]:
                    low = begin - place
                    yield number, begin, length, data[low : low + length].ljust(length, b"\0")
            at = behind

    def _segment(self, queue_offset: int, place: int, size: int) -> Segment | None:
        """The segment that can have such a record."""
        segment = self._files.segment_of(place)
        if segment is None:
            removed(self._options, f"the segment of physical offset {place}")
            return None
        # The size in an entry may be wrong, so the size in the record is checked first.
        head = self._bytes(segment, place, place + 4)
        if head is None:
            return None
        own_size = int.from_bytes(head, "big", signed=True)
        if place + size > segment.end or size < FIXED_BYTES or own_size != size:
            detail = f"queue offset {queue_offset}: no record of {size} bytes is there"
            self._damage.report_fault(Fault(CQ_MISMATCH, place, detail))
            return None
        return segment

    def _bytes(self, segment: Segment, begin: int, end: int) -> bytes | None:
        try:
            return self._files.opened(segment).read(begin, end)
        except FileNotFoundError:
            removed(self._options, segment.path)
            return None

    def _checked(
        self, pieces: list[bytes], records: list[tuple[int, int, int]]
    ) -> Iterator[Fragment]:
        """The whole records that are of this queue and at this queue offset."""
        data = b"".join(pieces)
        numbers, places, sizes = np.array(records, np.int64).T
        ends = np.cumsum(sizes)
        heads = heads_of(data, ends - sizes, ends, places)
        queue, starts = self._queue, ends - sizes
        right = heads.whole.copy()
        right &= field_at(data, "queue_id", starts) == queue.queue_id
        right &= field_at(data, "queue_offset", starts) == numbers
        name = queue.topic.encode()
        for number in np.flatnonzero(right).tolist():
            if data[heads.topics[number] : heads.topic_ends[number]] != name:
                right[number] = False
        for number in np.flatnonzero(~right).tolist():
            what = "another message" if heads.whole[number] else "no whole record"
            detail = f"queue offset {numbers[number]} leads to {what}"
            self._damage.report_fault(Fault(CQ_MISMATCH, int(places[number]), detail))
        count = int(right.sum())
        if count:
            yield Fragment(data, heads.chosen(right), places[right], [name] * count)


def _columns(units: Units) -> tuple[list[int], list[int]]:
    return units["place"].tolist(), units["size"].tolist()
