"""Dumps the messages of a store directory in the order of the log. Read-only."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import decode
from aerobee.store.format.record import RecordHeader, parse, read
from aerobee.store.tools.directory import opened
from aerobee.store.tools.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.store.format.record import Record
    from aerobee.store.tools.findings import Findings


class DumpFilter(NamedTuple):
    """The filter of a dump: every field that is not None restricts it."""

    topic: str | None = None
    queue_id: int | None = None
    from_queue_offset: int = 0
    most: int | None = None
    behind: int = 0
    """The physical offset to begin at."""

    def takes(self, position: int, header: RecordHeader) -> bool:
        """Whether this record passes the filter, apart from the limit on their number."""
        return (
            position >= self.behind
            and self.topic in (None, header.topic)
            and self.queue_id in (None, header.queue_id)
            and header.queue_offset >= self.from_queue_offset
        )


def dump(
    root: Path, wanted: DumpFilter, findings: Findings, log: Path | None = None
) -> Iterator[dict[str, Any]]:
    """The messages that pass the filter, in the form of `described`; damage goes to `findings`.

    Damaged bodies are shown as they are. Raises: StoreRefused, OSError.
    """
    with opened(root, findings, log) as directory:
        for record, sound in records(Passage(directory, findings, crc=False), wanted):
            yield described(record, sound=sound)


def records(passage: Passage, wanted: DumpFilter) -> Iterator[tuple[Record, bool]]:
    """The records that pass the filter, and whether the body of each is sound."""
    left = wanted.most
    if left == 0:
        return
    for position, header in passage:
        if not wanted.takes(position, header):
            continue
        data = passage.data(position, header.size)
        yield read(data), isinstance(parse(data, 0, position, True), RecordHeader)
        if left is not None:
            left -= 1
            if not left:
                return


def described(record: Record, *, sound: bool = True) -> dict[str, Any]:
    """A record as JSON values: times in ISO format, UTC; the body as text if valid, else base64."""
    properties = decode(record.properties)
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "message_id": properties.get("UNIQ_KEY"),
        "offset_message_id": offset_id(record.store_host, record.physical_offset),
        "store_time": iso_time(record.store_timestamp),
        "born_time": iso_time(record.born_timestamp),
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "reconsume_times": record.reconsume_times,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS", "").split(),
        "properties": properties,
        "body_sound": sound,
        **_body(bytes(record.body)),
    }


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def iso_time(timestamp_ms: int) -> str:
    """A time in ISO format in UTC, to the millisecond; out of range, the number itself."""
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
