"""Tells damage from a torn end: data that was certainly on disk must not be cut off.

The log and the end that recovery found in; out comes nothing, or StoreDamaged naming the file, the
physical offset and the remedy. Reads only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import structlog

from aerobee.store.errors import StoreDamaged
from aerobee.store.format.faults import BLANK, NoRecord
from aerobee.store.format.properties import is_closed
from aerobee.store.format.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    START,
    RecordHeader,
)
from aerobee.store.format.walk import candidates_in, fault_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.checkpoint import Checkpoint
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.recovery.last_stop import LastStop

_log = structlog.get_logger(__name__)


class LogEnd(NamedTuple):
    """Where recovery would cut."""

    physical_offset: int
    last_store_timestamp: int
    """Of the record in front of it, in ms; 0 without one."""
    safe_before: int | None
    """Records stored before this time, in ms, were on disk; None: all were."""


def refuse_holes(log: CommitLog) -> None:
    """Refuse a log with a missing segment in between. Raises: StoreDamaged."""
    for file, following in pairwise(log.queue.files):
        if file.end != following.start:
            raise StoreDamaged(
                f"{log.queue.path_of(file.end)} is missing between {file.path.name} and "
                f"{following.path.name}: restore it, or move the older segments away"
            )


def warn_of_begin(log: CommitLog, stop: LastStop) -> None:
    """Say that the oldest segments are gone since the last stop, where no other broker was since.

    An operator who needs room may remove them, so that it is no reason to refuse a start.
    """
    if stop.log_begin < log.min_offset:
        _log.warning(
            "store.oldest_missing",
            path=str(log.queue.path_of(stop.log_begin)),
            physical_offset=stop.log_begin,
            begin_offset=log.min_offset,
        )


def refuse_no_log(log: CommitLog, checkpoint: Checkpoint, reach: int) -> None:
    """Refuse an empty log that had messages; clean-up keeps the last segment. Raises: StoreDamaged.

    `reach` is how far queues or the recovery point know of messages, −1 when they know of none.
    """
    if reach >= 0:
        witness = f"there were messages up to physical offset {reach}"
    elif any(checkpoint[:3]):
        witness = "`checkpoint` knows of stored messages"
    else:
        return
    raise StoreDamaged(
        f"{log.queue.directory} holds no segment, but {witness}: set storePathCommitLog to where "
        "the segments are, or restore them from a copy, or move the data directory away to begin "
        "anew (what is in its `config` may come along)"
    )


def refuse_short(log: CommitLog, end_offset: int, led_to: Sequence[int]) -> None:
    """Refuse, after a clean stop, a log whose end is missing. Raises: StoreDamaged, OSError.

    `led_to` are the physical offsets at or behind the end that last units lead to. A single one
    behind the end is itself wrong.
    """
    last = log.queue.find(end_offset)
    if last is log.queue.last and last and _is_blank(log.parse_at(last, end_offset)):
        # The log goes on in the next segment.
        end_offset = last.end
    if end_offset in led_to or len(led_to) > 1:
        more = f", consume queues know of messages up to the one at {max(led_to)}"
        refuse_damage(log, end_offset, more)


def _is_blank(header: RecordHeader | NoRecord) -> bool:
    return isinstance(header, NoRecord) and header.kind == BLANK


def refuse_foreign_bytes(log: CommitLog, end_offset: int) -> None:
    """Refuse a log that begins with foreign bytes. Raises: StoreDamaged, OSError.

    A crash leaves the first bytes of a segment zero, or as they were written.
    """
    first = log.queue.first
    if first is None or end_offset > first.start:
        return
    size, magic = START.read(_start_of(first, 0))
    if (size or magic) and magic not in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC):
        raise StoreDamaged(
            f"{first.path} holds no message and begins with bytes that no broker writes (at "
            f"physical offset {first.start}, magic {magic:#010x}): restore it from a copy, or "
            f"move {log.queue.directory} away to begin anew"
        )


def refuse_loss(log: CommitLog, end: LogEnd, crc: bool) -> None:
    """Refuse to cut off whole records that were certainly on disk. Raises: StoreDamaged,
    OSError.
    """
    for position in _behind(log, end.physical_offset):
        stored = record_time_at(log, position, crc)
        # Older ones were left by another broker's cut, which erases nothing.
        if (
            stored
            and stored >= end.last_store_timestamp
            and (end.safe_before is None or stored < end.safe_before)
        ):
            refuse_damage(log, end.physical_offset, f", whole messages follow at {position}")


def refuse_hole(log: CommitLog, physical_offset: int, last_store_timestamp: int) -> None:
    """Refuse to cut off whole records after a kill, when all that was written is there.

    An append that the kill interrupted may lack its begin: then what follows is the rest of one
    batch, of one queue and one time. Raises: StoreDamaged, OSError.
    """
    file = log.queue.find(physical_offset)
    torn = file is not None and not any(_start_of(file, physical_offset - file.start))
    appends: set[tuple[str, int, int]] = set()
    for position in _behind(log, physical_offset):
        if position == physical_offset:
            # That record was cut off because its properties are not closed.
            continue
        segment = log.queue.find(position)
        header = None if segment is None else log.parse_at(segment, position, crc=True)
        # Older ones were left by another broker's cut, which erases nothing.
        if not isinstance(header, RecordHeader) or header.store_timestamp < last_store_timestamp:
            continue
        appends.add((header.topic, header.queue_id, header.store_timestamp))
        if not torn or len(appends) > 1:
            more = f", whole messages follow at {position}"
            refuse_damage(log, physical_offset, more)


def _start_of(file: MappedFile, position: int) -> bytes:
    return file.open().pread(START.size, position)


def refuse_damage(log: CommitLog, physical_offset: int, more: str = "") -> NoReturn:
    """Report data that was certainly on disk and cannot be read. Raises: StoreDamaged, OSError."""
    raise StoreDamaged(
        f"{_path_at(log, physical_offset)} is damaged at physical offset {physical_offset} "
        f"({reason_at(log, physical_offset)}){more}: restore the file from "
        "a copy; without one `aerobee store export` writes what is readable, behind the damage "
        "too, to files, and `aerobee store repair` gives up what is behind it, and keeps that"
    )


def refuse_number(
    log: CommitLog, physical_offset: int, queue: ConsumeQueue, queue_offset: int
) -> NoReturn:
    """Report a record without the next number of its queue, though the queue is whole: its own
    number is damaged, or a record behind the last one of the queue that says now that it is of
    another. Raises: StoreDamaged, OSError.
    """
    name, number = f"{queue.topic}-{queue.queue_id}", queue.end_offset
    more = f", a record of {name} has number {queue_offset} in place of {number}"
    if (before := queue.max_physical_offset) > 0:
        more += f"; if it is sound, one behind number {number - 1}, which ends at {before} in "
        more += f"{_path_at(log, before - 1)}, is damaged"
    refuse_damage(log, physical_offset, more)


def _path_at(log: CommitLog, physical_offset: int) -> Path:
    """The segment with this byte, or what one that begins there would be."""
    file = log.queue.find(physical_offset)
    return file.path if file else log.queue.path_of(physical_offset)


def altered(
    log: CommitLog, file: MappedFile, physical_offset: int, *, safe: int, killed: bool
) -> RecordHeader | None:
    """A record whose body is not what was written, if that is damage and not a torn end; else None.

    It stays in the log and keeps its unit: readers leave it out and continue behind it. All before
    `safe` was on disk; after a kill everything is there but the end of the last append.
    """
    header = log.parse_at(file, physical_offset)
    if isinstance(header, NoRecord):
        return None
    end = physical_offset + header.size
    if end > safe:
        following = log.parse_at(file, end)
        if not killed or (isinstance(following, NoRecord) and not _is_blank(following)):
            return None
    _log.error(
        "commit_log.corrupt_record",
        physical_offset=physical_offset,
        reason=reason_at(log, physical_offset),
        continued_at=end,
    )
    return header


def sound_end(
    log: CommitLog, before: int, last: int, begin: int, end: int, *, killed: bool
) -> tuple[int, int]:
    """The end of the records from `begin` on that lost nothing, and the begin of the last one.

    The CRC covers the body only, but records of ours have closed properties. Records of a Java
    master of 4.9.1 to 5.1.4 have not, as the record in front shows: there zeros tell what was never
    written. A kill leaves one that is not whole, the last; a power cut may lose any page. `before`
    begins the record in front of them, `last` the last one before `end`.
    """
    front = log.header_at(before)
    is_whole = is_closed if front is None or is_closed(front.properties) else _ends_in_no_zero
    tail = log.header_at(last)
    if killed and (tail is None or is_whole(tail.properties)):
        return end, last
    for position, header in log.walk(begin, end):
        if not is_whole(header.properties) and (position == last or not killed):
            return position, before
        before = position
    return end, last


def _ends_in_no_zero(properties: bytes) -> bool:
    return not properties.endswith(b"\0")


def _behind(log: CommitLog, physical_offset: int) -> Iterator[int]:
    """Physical offsets behind the end where a record may begin."""
    file = log.queue.find(physical_offset)
    if file is not None:
        begin = physical_offset - file.start
        yield from candidates_in(file.open(), begin, file.size, file.start)
    yield from (file.start for file in log.queue.files if file.start > physical_offset)


def record_time_at(log: CommitLog, physical_offset: int, crc: bool) -> int:
    """Store time in ms of the whole record there, 0 when there is none. Raises: OSError."""
    file = log.queue.find(physical_offset)
    if file is None:
        return 0
    header = log.parse_at(file, physical_offset, crc=crc)
    return 0 if isinstance(header, NoRecord) else header.store_timestamp


def reason_at(log: CommitLog, physical_offset: int) -> str:
    """Why the log ends there, in words. Raises: OSError."""
    file = log.queue.find(physical_offset)
    if file is None:
        return "no segment"
    data = log.bytes_at(file, physical_offset)
    return fault_at(data, 0, physical_offset, file.end).detail
