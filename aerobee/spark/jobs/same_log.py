"""Checks that a store and an archive are of the same log, so that logs are never mixed.

        segments of the store + entries of the manifest → how each segment relates to its entry

A record stores its physical offset, times and hosts, so the first and the last record identify a
segment. Invariant: of the segments that store and archive have in common, at least one begins with
the same record, and none ends before the part that is archived. Without common segments, the store
continues behind the archive and has its id, by itself or because the user says so. Only for an
archive without ids, which earlier versions made, is it enough that the store begins where it ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.manifest import give, make_marks
from aerobee.spark.jobs.places import sync
from aerobee.store.format.names import ARCHIVE, temporary_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from aerobee.spark.jobs.manifest import Entry
    from aerobee.spark.storefiles.files import SegmentFile
    from aerobee.spark.storefiles.segments import Segment

ID = ".log"
"""The file beside the marks with the id of the log, which every entry of its archives has, too."""

OF_A_RECORD = ("storeSize", "topic", "queueId", "queueOffset", "storeTimestamp")
"""The columns that tell a record from that of another log at the same offset."""


class SegmentMatch(Enum):
    """How a segment relates to the entry of its name."""

    SAME = "same"
    OTHER_END = "other end"
    """The first record is the same, a later one is not: a crash cut off the end of the log."""
    SHORTER = "shorter"
    FOREIGN = "foreign"
    """The first record is another one."""


def id_of_store(store: Path, log_id: str, known: Mapping[int, Entry], archive: str) -> str:
    """The log id that a store has, or `log_id`, if the user gave it; empty without one.

    Raises: ConfigurationError, if store or archive contradict the user; OSError.
    """
    kept = kept_id(store)
    if not log_id:
        return kept
    ids = _ids(known.values())
    if kept not in ("", log_id):
        raise ConfigurationError(f"--log-id {log_id}: {store} is of log {kept} ({ARCHIVE}/{ID})")
    if ids and log_id not in ids:
        raise ConfigurationError(f"--log-id {log_id}: {archive} is of log {' and '.join(ids)}")
    return log_id


def _ids(entries: Iterable[Entry]) -> list[str]:
    """The different log ids of entries, in their order."""
    return list(dict.fromkeys(entry.log for entry in entries if entry.log))


def compared(
    segments: Sequence[Segment], known: Mapping[int, Entry], log_id: str, archive: str
) -> dict[int, SegmentMatch]:
    """Compare the segments with the entries of their names; by their starts.

    Segments that the broker has deleted since they were listed are left out. `log_id` is that of
    `id_of_store`; `archive` is the name of the archive in errors.
    Raises: AerobeeError for another log, and where the archive has more of a segment; OSError.
    """
    matches = {}
    for segment in segments:
        with suppress(FileNotFoundError):
            if entry := known.get(segment.start):
                matches[segment.start] = _compared(segment, entry, is_last=segment == segments[-1])
    new = [segment for segment in segments if segment.start not in known]
    if known and new and not matches:
        _check_goes_on(new[0], list(known.values()), log_id, archive)
    if matches and all(match is SegmentMatch.FOREIGN for match in matches.values()):
        start = min(matches)
        raise AerobeeError(
            f"{archive} is of another log: segment {known[start].segment} there, by "
            f"{known[start].job}, begins with another record than the one of this store. Give each "
            "store its own --output"
        )
    for start, kind in matches.items():
        if kind is SegmentMatch.SHORTER:
            raise AerobeeError(
                f"{archive} has more of segment {known[start].segment} than this store: an older "
                "copy, or a log that lost its end. What is archived is not replaced by less; "
                "archive what the store has in another --output"
            )
    return matches


def _compared(segment: Segment, entry: Entry, *, is_last: bool) -> SegmentMatch:
    from aerobee.spark.storefiles.end import end_of_data
    from aerobee.spark.storefiles.files import SegmentFile

    with SegmentFile(segment) as file:
        if record_crc(file, segment.start) != entry.first_crc32:
            return SegmentMatch.FOREIGN
        if is_last and end_of_data(segment).position <= entry.last_offset:
            return SegmentMatch.SHORTER
        same_end = record_crc(file, entry.last_offset) == entry.last_crc32
        if entry.sealed and not is_last and segment.size != entry.bytes:
            same_end = False
    return SegmentMatch.SAME if same_end else SegmentMatch.OTHER_END


def _check_goes_on(first: Segment, entries: Sequence[Entry], log_id: str, archive: str) -> None:
    """Check that a store without any archived segment continues the archive.

    Raises: AerobeeError.
    """
    from aerobee.spark.storefiles.files import first_store_time

    end = max(entry.start + entry.bytes for entry in entries)
    newest_ms = max(entry.max_store_timestamp for entry in entries)
    stored_ms = first_store_time(first)
    behind = first.start >= end and stored_ms is not None and stored_ms >= newest_ms
    ids = _ids(entries)
    known = log_id in ids if ids else first.start == end
    if behind and known:
        return
    raise AerobeeError(
        f"{archive} has no segment in common with this store, which begins at {first.start} while "
        f"the archive ends at {end}, and nothing shows that both are of the same log. Give each "
        "store its own --output" + (_way_out(ids) if ids and behind and not log_id else "")
    )


def _way_out(ids: Sequence[str]) -> str:
    """The remedy if a store without an id is of the archive's log in spite of all."""
    return f"; or, if you know that it is the log of this archive, say --log-id {ids[-1]}"


def record_crc(file: SegmentFile, position: int) -> int | None:
    """CRC-32 over all bytes of a record; None if there is no record.

    Raises: OSError.
    """
    if file.header_at(position) is None:
        return None
    return crc32(file.read(position, position + file.size_at(position)))


def ends_of(file: SegmentFile, last_offset: int) -> tuple[int, int]:
    """CRC-32 of the first record of a segment and of that at `last_offset`. Raises: OSError."""
    return record_crc(file, file.segment.start) or 0, record_crc(file, last_offset) or 0


def holds(segment: Segment, row: Mapping[str, Any]) -> bool:
    """Whether a row of an archive is a record of this segment. Raises: OSError."""
    from aerobee.spark.storefiles.files import SegmentFile

    with SegmentFile(segment) as file:
        header = file.header_at(row["commitLogOffset"])
    if header is None:
        return False
    here = (
        header.size,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.store_timestamp,
    )
    return here == tuple(row[name] for name in OF_A_RECORD)


# ── The id ──


def kept_id(store: Path) -> str:
    """The log id in a store root; empty without one. Raises: OSError."""
    try:
        return (store / ARCHIVE / ID).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return ""


def id_of_log(log_id: str, known: Mapping[int, Entry]) -> str:
    """The id for new entries: `log_id`, or if that is empty that of the archive, or a new one.

    Only for a store that `compared` has found to be of the archive's log.
    """
    return log_id or (_ids(known.values()) or [uuid4().hex])[-1]


def keep_id(store: Path, log_id: str) -> None:
    """Make sure that the store root has the log id. Raises: OSError."""
    if kept_id(store):
        return
    directory = make_marks(store)
    path = directory / ID
    draft = path.with_name(temporary_name(path.name))
    draft.write_text(f"{log_id}\n", encoding="ascii")
    sync(draft)
    give(draft, store)
    os.replace(draft, path)
    sync(directory)
