"""Refuses a start without `topics.json` where the store knows topics: its tables are elsewhere.

A directory that was copied in part, or a disk that is not mounted, would come up with new tables:
topics that nobody finds, and groups that begin anew, behind what they have not read.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from aerobee.store.errors import StoreDamaged
from aerobee.store.format.names import ABORT, CONSUME_QUEUE, LAST_STOP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.broker.saved.json_file import JsonFile

SHOWN: Final = 3
NO_TOPICS: Final = "{}"
"""The content of a table that is there and says nothing."""


def refuse_lost(file: JsonFile, root: Path, is_system: Callable[[str], bool]) -> None:
    """Refuse to begin new tables beside the queues of topics. Blocking.

    After a crash in the first life of a store its topics may not have been saved yet: it goes on.
    Raises: StoreDamaged, OSError.
    """
    disk = file.disk
    if file.content(file.path) is not None or file.content(file.backup) is not None:
        return
    if disk.exists(root / ABORT) and not disk.exists(root / LAST_STOP):
        return
    queues = root / CONSUME_QUEUE
    names = disk.listdir(queues) if disk.is_directory(queues) else []
    topics = sorted(name for name in names if not is_system(name))
    if topics:
        more = "" if len(topics) <= SHOWN else f" and {len(topics) - SHOWN} more"
        folder = file.path.parent
        place = shlex.quote(str(file.path))
        raise StoreDamaged(
            f"{file.path} and its backup are missing or empty, and {queues} has queues of"
            f" {', '.join(topics[:SHOWN])}{more}: mount the disk of {folder}, or restore it from a"
            " copy. Without it groups begin anew, and may pass over messages. To go on all the"
            f" same, with topics as their queues tell them: mkdir -p {shlex.quote(str(folder))} &&"
            f" echo '{NO_TOPICS}' > {place}"
        )
