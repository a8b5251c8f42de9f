"""Reads a store directory as messages, or its segments as rows: plans parts, and reads them.

Options in; a plan of pieces, one per task, out, and record batches of each piece. No Spark here. A
piece is read completely, or the read fails, or the log says what is missing: a plan ends where the
data ended when it was made, even if the broker writes more.
Source: spark §9.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aerobee.spark.rows.decode import Decoder
from aerobee.spark.rows.records import FIRST_MS, LAST_MS, Bodies
from aerobee.spark.source.plan import tiny_together
from aerobee.spark.storefiles.damage import Damage, data_lost, removed
from aerobee.spark.storefiles.end import End, end_of_data
from aerobee.spark.storefiles.files import (
    Passage,
    SegmentFile,
    all_segments,
    first_store_time,
    segments_of,
)
from aerobee.spark.storefiles.queue_read import QueuePiece, queue_fragments, queue_pieces
from aerobee.spark.storefiles.segments import Segment, Split, holes_between, splits_of, within_times
from aerobee.spark.topics import topic_filter
from aerobee.store.format.faults import CRC, Fault
from aerobee.store.format.record_arrays import crc_faults, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from aerobee.spark.options import StoreOptions
    from aerobee.spark.storefiles.files import Fragment
    from aerobee.store.format.record_arrays import Bools, Heads, Ints

log = logging.getLogger("aerobee.spark.store")


class Part(NamedTuple):
    """A segment and the end of its data.

    `tail` describes the bytes after them, "" for none; `fault` means that they are damage.
    """

    segment: Segment
    limit: int
    sealed: bool
    tail: str = ""
    fault: Fault | None = None


class Log(NamedTuple):
    """The parts of the log that the options choose, and the bounds of the selected offsets."""

    parts: tuple[Part, ...]
    begin: int
    end: int


# ── The plan ──


def plan(options: StoreOptions) -> Sequence[Split | QueuePiece]:
    """Plan the pieces of the tasks.

    Raises: ConfigurationError for a directory that is not a store, DataLossError,
    RecordDamagedError, OSError.
    """
    log = log_of(options)
    if options.via == "consumequeue":
        low = max(log.begin, log.parts[0].segment.start) if log.parts else 0
        high = min(log.end, log.parts[-1].limit) if log.parts else 0
        return queue_pieces(options, low, high)
    return [split for part in log.parts for split in splits_in(part, log, options)]


def tasks(options: StoreOptions) -> list[tuple[Split | QueuePiece, ...]]:
    """Plan tasks: a piece of the plan each, tiny pieces of queues together. Raises: as `plan`."""
    pieces = plan(options)
    queues = [piece for piece in pieces if isinstance(piece, QueuePiece)]
    splits = [(piece,) for piece in pieces if isinstance(piece, Split)]
    return [*splits, *tiny_together(queues, lambda piece: piece.size)]


def splits_in(part: Part, log: Log, options: StoreOptions) -> list[Split]:
    """The splits of the selected range of a part."""
    return splits_of(part.segment, log.begin, log.end, part.limit, options.split_bytes)


def log_of(options: StoreOptions) -> Log:
    """The segments with selected records, each with the end of its data. Raises: as `plan`."""
    segments = _segments(options.path)
    start = options.starting_physical_offset
    begin = start or 0
    last = segments[-1] if segments else None
    end = options.ending_physical_offset
    if segments and start is not None and start < segments[0].start:
        text = f"startingPhysicalOffset {begin}: the log in {options.path} begins at"
        data_lost(options, f"{text} {segments[0].start}, older segments are deleted")
    end = end if end is not None else (last.end if last else 0)
    chosen = [segment for segment in segments if segment.end > begin and segment.start < end]
    for left, two in holes_between(segments):
        if begin < two.start and left.end < end:
            text = f"{options.path}: bytes {left.end} to {two.start} of the log are missing between"
            data_lost(options, f"{text} {left.name} and {two.name}")
    parts = [
        part
        for segment in _of_times(chosen, options)
        if (part := _part(segment, options, is_last=segment == last)) is not None
    ]
    return Log(tuple(parts), begin, end)


def _segments(root: str) -> list[Segment]:
    """The segments with records, plus the first one after them that is damaged."""
    segments = segments_of(root)
    behind = segments[-1].end if segments else 0
    for segment in all_segments(root):
        with suppress(FileNotFoundError):
            if segment.start >= behind and end_of_data(segment).fault is not None:
                return [*segments, segment]
    return segments


def _of_times(segments: list[Segment], options: StoreOptions) -> list[Segment]:
    """The segments that can have records of the selected times."""
    starting, ending = options.starting_timestamp, options.ending_timestamp
    if starting is None and ending is None:
        return segments
    there, firsts = [], []
    for segment in segments:
        try:
            firsts.append(first_store_time(segment))
            there.append(segment)
        except FileNotFoundError:
            removed(options, segment.path)
    kept = within_times(firsts, starting, ending)
    return [segment for segment, keep in zip(there, kept, strict=True) if keep]


def _part(segment: Segment, options: StoreOptions, *, is_last: bool) -> Part | None:
    """A segment with the end of its data; None if it is not selected, or deleted."""
    if not is_last:
        return Part(segment, segment.end, sealed=True)
    try:
        end = end_of_data(segment)
    except FileNotFoundError:
        removed(options, segment.path)
        return None
    if options.sealed_only and not end.closed:
        return None
    _judge_end(segment, end, options)
    return Part(segment, end.position, end.closed, _tail_of(end), end.fault)


def _judge_end(segment: Segment, end: End, options: StoreOptions) -> None:
    if end.fault is not None and options.mode == "read":
        wanted = options.ending_physical_offset
        if wanted is None or wanted > end.position:
            Damage(options, segment.path).report(end.fault, None)
    elif end.used:
        text = "%s: the data end at %d; %s"
        log.info(text, segment.path, end.position, _tail_of(end))


def _tail_of(end: End) -> str:
    return f"{end.used} bytes behind the data: {end.why}" if end.used else ""


# ── The messages ──


def read(
    piece: Split | QueuePiece, options: StoreOptions, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read the messages of one piece of the plan, with these columns.

    Raises: RecordDamagedError, DataLossError, CompressionError, OSError.
    """
    decoder = Decoder(
        names,
        broker_name=options.broker_name,
        bodies=Bodies.of(options.decompress, options.on_unreadable),
        batch_rows=options.batch_rows,
    )
    choice = _Choice(options)
    place = piece.segment.path if isinstance(piece, Split) else piece.queue.path
    damage = Damage(options, place)
    for data, heads, places, topics in _fragments(piece, options, damage):
        keep = choice.of(heads, places, topics)
        if options.verify_crc and keep.any():
            _drop_wrong(data, heads, places, keep, damage)
        if keep.any():
            yield from decoder.batches(data, heads.starts[keep])
    damage.summed_up()


def _fragments(
    piece: Split | QueuePiece, options: StoreOptions, damage: Damage
) -> Iterator[Fragment]:
    if isinstance(piece, QueuePiece):
        yield from queue_fragments(piece, options, damage)
        return
    try:
        file = SegmentFile(piece.segment)
    except FileNotFoundError:
        removed(options, piece.segment.path)
        return
    with file:
        yield from Passage(file, piece, damage.report)


class _Choice:
    """Tests which records the options select."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._topic = topic_filter(options.topics, exclude_system=options.exclude_system)
        self._all_topics = not options.topics and not options.exclude_system

    def of(self, heads: Heads, places: Ints, topics: Sequence[bytes]) -> Bools:
        """One truth value per record. Hot."""
        options = self._options
        keep = places >= (options.starting_physical_offset or 0)
        if options.ending_physical_offset is not None:
            keep &= places < options.ending_physical_offset
        if options.starting_timestamp is not None:
            keep &= heads.stored >= options.starting_timestamp
        if options.ending_timestamp is not None:
            keep &= heads.stored < options.ending_timestamp
        if not self._all_topics:
            wanted = {name: self._topic(name.decode()) for name in set(topics)}
            if not all(wanted.values()):
                keep &= np.fromiter(map(wanted.__getitem__, topics), np.bool_, len(topics))
        if options.exclude_system:
            keep &= visible(heads)
        return keep


def _drop_wrong(data: bytes, heads: Heads, places: Ints, keep: Bools, damage: Damage) -> None:
    """Drop the records whose body does not match its CRC."""
    rows = np.flatnonzero(keep)
    for number in crc_faults(data, heads.chosen(keep)):
        row = rows[number]
        keep[row] = False
        position = int(places[row])
        damage.report(Fault(CRC, position, "body CRC"), position)


# ── The segments as rows ──


class SegmentRow(NamedTuple):
    """A row; `size_bytes` is the length of the file, times are µs, None without a record."""

    segment: str
    size_bytes: int
    first_physical_offset: int | None
    last_physical_offset: int | None
    records: int
    min_store_timestamp: int | None
    max_store_timestamp: int | None
    sealed: bool
    modified_us: int


def plan_segments(options: StoreOptions) -> list[Part]:
    """Plan the segments that the options choose, one per task. Raises: as `plan`."""
    return list(log_of(options).parts)


def segment_rows(part: Part, options: StoreOptions) -> Iterator[SegmentRow]:
    """The row of a segment; none if it is deleted. Damage is skipped and logged.

    Raises: DataLossError, OSError.
    """
    segment = part.segment
    try:
        file = SegmentFile(segment)
    except FileNotFoundError:
        removed(options, segment.path)
        return
    records = 0
    first = last = oldest = newest = None
    with file:
        modified_us = int(file.modified_s() * 1_000_000)
        split = Split(segment, segment.start, part.limit, part.limit)
        for fragment in Passage(file, split, lambda fault, _: _log_fault(segment.path, fault)):
            records += len(fragment.names)
            first = int(fragment.places[0]) if first is None else first
            last = int(fragment.places[-1])
            low, high = int(fragment.heads.stored.min()), int(fragment.heads.stored.max())
            oldest = low if oldest is None else min(oldest, low)
            newest = high if newest is None else max(newest, high)
    yield SegmentRow(
        Path(segment.path).name,
        segment.size,
        first,
        last,
        records,
        _microseconds(oldest),
        _microseconds(newest),
        part.sealed,
        modified_us,
    )


def _microseconds(ms: int | None) -> int | None:
    # Times outside of the calendar become its nearest bound.
    return None if ms is None else min(max(ms, FIRST_MS), LAST_MS) * 1_000


def _log_fault(path: str, fault: Fault) -> None:
    log.warning("%s: damaged at %d (%s: %s)", path, fault.physical_offset, fault.kind, fault.detail)
