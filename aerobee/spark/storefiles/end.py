"""Where the data of a log end, and what lies behind.

The last segment flows in, its end flows out. A broker may be writing: what it has not finished is
behind the end, and so is what earlier lives of the file have left.
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
from aerobee.store.format.record import RecordHeader, parse
from aerobee.store.format.record_arrays import records_in
from aerobee.store.format.walk import magics, named_offset

if TYPE_CHECKING:
    from aerobee.spark.storefiles.segments import Segment

__all__ = ["End", "end_of_data"]

TAIL_BYTES = 64 << 10
"""So much may be half written behind the data of a log in use."""
LOOKS, PAUSE_S = 50, 0.01
"""How often and how soon a half-written end is read again while a broker may be writing it: the
system may have stopped that in the middle of a record."""
REUSED_WITHIN = 16 << 20
"""How far the records of a file's earlier life are looked for."""


class End(NamedTuple):
    """Where the data of the last segment ends.

    `used` bytes behind it are not zero; `why` says what they are. With `fault` they are none of
    what a crash, a running broker or a reused file leaves.
    """

    position: int
    used: int
    why: str
    fault: Fault | None
    closed: bool = False
    """Whether the blank is there, so that the log goes on in the next segment."""


def end_of_data(segment: Segment) -> End:
    """Walk the last segment to where its data ends, over damage too.

    What is in front of the end was whole when this looked, so no reader after it sees a record half
    written. Raises: FileNotFoundError, OSError.
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
                # Written since we looked.
                continue
            if following is None or following[1].store_timestamp < stored:
                end = _judged(file, at, stale=following is not None)
                if end.used and _walk(file, at, stored) != (at, stored, False):
                    # Written while we judged: a record, or the blank that closes the segment.
                    continue
                looks -= 1
                if end.used and following is None and looks:
                    sleep(PAUSE_S)
                    continue
                return end
            at = following[0]


def _walk(file: SegmentFile, at: int, stored: int) -> tuple[int, int, bool]:
    """Pass whole records: the place behind them, the last store time, whether a blank is there."""
    end = file.segment.end
    size = min(store_files.FIRST_WINDOW_BYTES, store_files.WINDOW_BYTES)
    while at < end:
        asked = min(size, end - at)
        data = file.read(at, at + asked)
        walked = records_in(data, at, end)
        if walked.names:
            stored = int(walked.heads.stored[-1])
        stop = walked.stop
        at = stop.physical_offset
        if stop.kind not in (MORE, END) or len(data) < asked:
            return at, stored, stop.kind == BLANK
        size = max(stop.size, min(2 * size, store_files.WINDOW_BYTES))
    return at, stored, True


def _judged(file: SegmentFile, at: int, *, stale: bool) -> End:
    """What the bytes behind the last record are. Source: spark §9."""
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
    """Whether a whole record that names another place lies behind."""
    data = file.read(at, min(at + REUSED_WITHIN, file.segment.end))
    for begin in magics(data):
        place = named_offset(data, begin)
        if place != at + begin and isinstance(parse(data, begin, place), RecordHeader):
            return True
    return False
