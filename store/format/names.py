"""Names of files and places in a store directory. Pure: names in, names out."""

from __future__ import annotations

__all__ = [
    "ABORT",
    "CHECKPOINT",
    "COMMIT_LOG",
    "CONFIG",
    "CONSUME_QUEUE",
    "INDEX",
    "LOCK",
    "RESERVE",
    "SEGMENT_DIGITS",
    "SPARE",
    "file_start",
    "segment_name",
    "segment_start",
]

ABORT = "abort"
"""Exists while a broker runs on the directory."""
LOCK = "lock"
CHECKPOINT = "checkpoint"
COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"
CONFIG = "config"
RESERVE = "reserve"
"""Blocks set aside so that a stop on a full disk still has room."""
SPARE = "spare"
"""Files being made, then renamed into their directory: brokers stop at strangers there."""
SEGMENT_DIGITS = 20


def segment_name(start: int) -> str:
    """The file that starts at this byte of its queue: 20 decimal digits."""
    assert start >= 0, start
    return f"{start:020d}"


def segment_start(name: str) -> int | None:
    """The first byte a segment file holds, or None for a name that is not one."""
    if len(name) == SEGMENT_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


def file_start(offset: int, file_size: int) -> int:
    """Start of the file that holds this byte."""
    return offset - offset % file_size
