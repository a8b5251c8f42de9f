"""Reads the first record of a log segment from the file, without the mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.record import HEAD, store_timestamp_at

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

STORE_TIME_BYTES = 8
_pick = HEAD.pick("physical_offset", "sys_flag")


def first_store_time(disk: Disk, path: Path, start: int) -> int:
    """Store time of a segment's first record in ms; −1 when none begins it.

    For a thread: a page fault in the loop would stop everybody. Raises: OSError.
    """
    with disk.open(path, writable=False) as handle:
        head = handle.pread(HEAD.size, 0)
    if len(head) < HEAD.size:
        return -1
    physical_offset, sys_flag = _pick(head, 0)
    at = store_timestamp_at(sys_flag)
    stored = int.from_bytes(head[at : at + STORE_TIME_BYTES], signed=True)
    return stored if physical_offset == start and stored > 0 else -1
