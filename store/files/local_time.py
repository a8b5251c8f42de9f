"""The hour on the wall: `deleteWhen` is meant in the time zone of the machine, as RocketMQ's is."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["local_hour"]


def local_hour(now_ms: int) -> int:
    """Hour of the day, 0 to 23, where this machine stands."""
    return datetime.fromtimestamp(now_ms / 1_000, tz=UTC).astimezone().hour
