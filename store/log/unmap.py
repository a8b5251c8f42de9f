"""Unmaps old segments, so that a long log takes no more resources than a short one.

Each mapping takes page tables, and with older Pythons a descriptor of its own; each handle takes
one. Older segments are read through a few handles that are opened on demand.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import trio

if TYPE_CHECKING:
    from mmap import mmap

    from aerobee.store.files.disk import Disk
    from aerobee.store.log.commit_log import CommitLog

LOOK_S = 0.1


async def unmap_behind(commit_log: CommitLog, disk: Disk) -> NoReturn:
    """Unmap each old segment soon after it is on disk; until cancelled."""
    seen = None
    while True:
        at = commit_log.mapped_from, commit_log.flushed // commit_log.segment_bytes
        if at != seen:
            seen = at
            await disk.in_thread(_unmap, disk, commit_log.let_go())
        await trio.sleep(LOOK_S)


def _unmap(disk: Disk, mappings: list[mmap]) -> None:
    """Drop page tables piece by piece, the rest goes with the last reader. For a thread."""
    while mappings:
        mapping = mappings.pop()
        # Systems without that call drop all of it at once.
        with suppress(OSError):
            disk.forget_pages(mapping)
