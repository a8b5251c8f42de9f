"""Reads the first record of a log segment from the file, without the mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.record import HEAD, store_time

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk


def first_store_time(disk: Disk, path: Path, start: int) -> int:
    """Store time of a segment's first record in ms; −1 when none begins it.

    For a thread: a page fault in the loop would stop everybody. Raises: OSError.
    """
    with disk.open(path, writable=False) as handle:
        head = handle.pread(HEAD.size, 0)
    if len(head) < HEAD.size:
        return -1
    stored = store_time(head, start)
    return stored if stored > 0 else -1
