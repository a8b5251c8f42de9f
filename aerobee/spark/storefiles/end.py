"""Finds the end of a log's data, and describes the bytes after it.

The last segment in, its end out. A broker may be writing: a record that it has not finished is
after the end, and so are the remains of a reused file.
Source: spark §9.
"""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from aerobee.spark.storefiles import files as store_files
from aerobee.spark.storefiles.files import SegmentFile
from aerobee.store.format.faults import BAD_LENGTHS, BLANK, END, MORE, Fault
from aerobee.store.format.names import ABORT
from aerobee.store.format.record import RecordHeader, named_offset, parse
from aerobee.store.format.record_arrays import records_in
from aerobee.store.format.walk import magics

if TYPE_CHECKING:
    from aerobee.spark.storefiles.segments import Segment

TAIL_BYTES = 64 << 10
"""The most bytes that may be half written after the data of a log in use."""
LOOKS, PAUSE_S = 50, 0.01
"""How often and how soon a half-written end is read again while a broker may be writing it: its
process may have been paused in the middle of a record.
"""
REUSED_WITHIN = 16 << 20
"""The range in which records of a reused file's earlier content are searched."""


class End(NamedTuple):
    """The end of the data of the last segment.

    `used` bytes after it are not zero; `why` explains them. With `fault` they are not what a crash,
    a running broker or a reused file leaves.
    """

    position: int
    used: int
    why: str
    fault: Fault | None
    closed: bool = False
    """Whether a blank closes the segment, so that the log continues in the next one."""


def end_of_data(segment: Segment) -> End:
    """Walk the last segment to the end of its data, also over damage.

    Every record before the end was whole at this time, so later readers see no half-written
    record. Raises: FileNotFoundError, OSError.
    """
    with SegmentFile(segment) as file:
        at, stored = segment.start, 0
        looks = LOOKS if (Path(segment.path).parents[1] / ABORT).exists() else 1
        while True:
            at, stored, closed = _walk(file, at, stored)
            if closed:
                return End(at, 0, "", None, closed=True)
            following = file.next_whole(at + 1, segment.end)
            if file.header_at(at) is not None:
                # A broker has written it since the last read.
                continue
            if following is None or following[1].store_timestamp < stored:
                end = _judged(file, at, stale=following is not None)
                if end.used and _walk(file, at, stored) != (at, stored, False):
                    # A broker has written it since: a record, or the blank that closes the segment.
                    continue
                looks -= 1
                if end.used and following is None and looks:
                    sleep(PAUSE_S)
                    continue
                return end
            at = following[0]


def _walk(file: SegmentFile, at: int, stored: int) -> tuple[int, int, bool]:
    """Skip whole records: the position after them, the last store time, whether a blank follows."""
    end = file.segment.end
    size = min(store_files.FIRST_WINDOW_BYTES, store_files.WINDOW_BYTES)
    while at < end:
        length = min(size, end - at)
        data = file.read(at, at + length)
        walked = records_in(data, at, end)
        if walked.names:
            stored = int(walked.heads.stored[-1])
        stop = walked.stop
        at = stop.physical_offset
        if stop.kind not in (MORE, END) or len(data) < length:
            return at, stored, stop.kind == BLANK
        size = max(stop.size, min(2 * size, store_files.WINDOW_BYTES))
    return at, stored, True


def _judged(file: SegmentFile, at: int, *, stale: bool) -> End:
    """Classify the bytes after the last record. Source: spark §9."""
    used = file.used_behind(at)
    if not used:
        return End(at, 0, "", None)
    damage = file.damage(at)
    if stale:
        why = "of an earlier end of the log, which a cut leaves"
    elif used <= TAIL_BYTES or (damage.kind == BAD_LENGTHS and file.size_at(at) >= used):
        why = f"half written: {damage.detail}"
    elif _reused(file, at):
        why = "records of a file that is used again"
    else:
        return End(at, used, damage.detail, damage)
    return End(at, used, why, None)


def _reused(file: SegmentFile, at: int) -> bool:
    """Whether a whole record with another physical offset follows."""
    data = file.read(at, min(at + REUSED_WITHIN, file.segment.end))
    for begin in magics(data):
        place = named_offset(data, begin)
        if place != at + begin and isinstance(parse(data, begin, place), RecordHeader):
            return True
    return False
