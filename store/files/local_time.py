"""Local time: `deleteWhen` and names of index files follow the time zone of the machine, as in
RocketMQ.
"""

from __future__ import annotations

from datetime import UTC, datetime


def local_hour(now_ms: int) -> int:
    """Hour of the day in local time, 0 to 23."""
    return datetime.fromtimestamp(now_ms / 1_000, tz=UTC).astimezone().hour


def local_day(now_ms: int) -> int:
    """Number of the day in local time."""
    return datetime.fromtimestamp(now_ms / 1_000, tz=UTC).astimezone().date().toordinal()


def local_stamp(now_ms: int) -> int:
    """Local time from year to millisecond, as one number of 17 digits."""
    when = datetime.fromtimestamp(now_ms // 1_000, tz=UTC).astimezone()
    return int(f"{when:%Y%m%d%H%M%S}") * 1_000 + now_ms % 1_000
