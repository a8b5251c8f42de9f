"""Damage is not a tear: what was on disk for certain must not vanish in a cut.

The log and the end that recovery found flow in; out comes nothing, or StoreDamaged naming the file,
the place and the remedy. Reads only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from store.errors import StoreDamaged
from store.format.record import MAGIC_V1, START, explain, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.files.commit_log import CommitLog
    from store.files.mapped_file import MappedFile

__all__ = ["LogEnd", "candidates", "reason_at", "record_time_at", "refuse_holes", "refuse_loss"]

SEARCH_BYTES = 1 << 20
_ZEROS = bytes(SEARCH_BYTES + 8)
_MAGIC = MAGIC_V1.to_bytes(4, "big")[:3]
"""What both versions of a record begin with, behind the size."""


class LogEnd(NamedTuple):
    """Where recovery would cut."""

    physical_offset: int
    last_store_timestamp: int
    """Of the record in front of it, in ms; 0 without one."""
    safe_before: int | None
    """Records stored before this time, in ms, were on disk; None: all were."""


def refuse_holes(log: CommitLog) -> None:
    """A segment missing between others. Raises: StoreDamaged."""
    for file, following in pairwise(log.queue.files):
        if file.end != following.start:
            raise StoreDamaged(
                f"{log.queue.path_of(file.end)} is missing between {file.path.name} and "
                f"{following.path.name}: restore it, or move the older segments away"
            )


def refuse_loss(log: CommitLog, end: LogEnd, crc: bool) -> None:
    """Whole records behind the end that were on disk for certain. Raises: StoreDamaged, OSError."""
    for position in _behind(log, end.physical_offset):
        stored = record_time_at(log, position, crc)
        # Older ones are what an earlier cut by another broker has left, which erases nothing.
        if (
            stored
            and stored >= end.last_store_timestamp
            and (end.safe_before is None or stored < end.safe_before)
        ):
            at = end.physical_offset
            file = log.queue.find(at)
            raise StoreDamaged(
                f"{file.path if file else log.queue.directory} is damaged at physical offset {at} "
                f"({reason_at(log, at, crc)}), whole messages follow at {position}: restore the "
                "file from a copy; to give up everything behind the damage, remove `checkpoint` "
                "and create an empty file `abort` beside it"
            )


def _behind(log: CommitLog, physical_offset: int) -> Iterator[int]:
    """Places behind the end where a record may begin."""
    file = log.queue.find(physical_offset)
    if file is not None:
        yield from candidates(file, physical_offset - file.start)
    yield from (file.start for file in log.queue.files if file.start > physical_offset)


def candidates(file: MappedFile, position: int) -> Iterator[int]:
    """Physical offsets in a segment, from a position on, where a record may begin.

    Raises: OSError.
    """
    handle = file.open()
    # Reading makes holes look like data to whoever asks later, so all is asked first.
    for begin, end in list(handle.data_ranges(position, file.size)):
        for at in range(begin, end, SEARCH_BYTES):
            piece = handle.pread(SEARCH_BYTES + len(_MAGIC) - 1, at)
            found = -1 if piece == _ZEROS[: len(piece)] else piece.find(_MAGIC)
            while found >= 0:
                yield file.start + at + found - START.offset["magic"]
                found = piece.find(_MAGIC, found + 1)


def record_time_at(log: CommitLog, physical_offset: int, crc: bool) -> int:
    """Store time in ms of the whole record there, 0 when there is none. Raises: OSError."""
    file = log.queue.find(physical_offset)
    if file is None:
        return 0
    found = parse(file.readable(), physical_offset - file.start, physical_offset, crc)
    return 0 if isinstance(found, int) else found[5]


def reason_at(log: CommitLog, physical_offset: int, crc: bool) -> str:
    """Why the log ends there, in words. Raises: OSError."""
    file = log.queue.find(physical_offset)
    if file is None:
        return "no segment"
    return explain(file.readable(), physical_offset - file.start, physical_offset, crc)
