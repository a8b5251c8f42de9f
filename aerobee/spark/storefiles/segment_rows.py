"""The segments of a store directory as rows: fill level, time range, whether sealed.

Source: spark §9.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aerobee.spark.rows.records import FIRST_MS, LAST_MS
from aerobee.spark.storefiles.damage import removed
from aerobee.spark.storefiles.files import Passage, SegmentFile
from aerobee.spark.storefiles.read import log_of
from aerobee.spark.storefiles.segments import Split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.spark.options import StoreOptions
    from aerobee.spark.storefiles.read import Part
    from aerobee.store.format.faults import Fault

log = logging.getLogger("aerobee.spark.store")


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
    """Plan the segments that the options choose, one per task. Raises: as `store_read.plan`."""
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
