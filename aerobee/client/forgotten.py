"""Clients, producers and consumers that a program left open: named once, when it ends.

Messages that were sent and not answered yet, or handled and not committed yet, may be lost with
them, and the broker keeps the places of a consumer for a while.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import Counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

log = logging.getLogger("aerobee.client")


class OpenObject(NamedTuple):
    """An object that was started, such as a Producer, and the process that did so."""

    what: str
    pid: int


opened: WeakKeyDictionary[object, OpenObject] = WeakKeyDictionary()
"""The lives of whatever runs, or was ended by somebody else."""


def note_open(life: object, what: str) -> None:
    """Note an object that runs, and has to be closed by this process."""
    opened[life] = OpenObject(what, os.getpid())


def note_closed(life: object) -> None:
    """Note an object that was closed, or whose start has failed."""
    opened.pop(life, None)


@atexit.register
def tell() -> None:
    """Log what was left open, in one line. A fork knows nothing of what its parent opened."""
    own = os.getpid()
    names = Counter(life.what for life in list(opened.values()) if life.pid == own)
    if names:
        what = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
        log.warning(
            "not closed when the program ended: %s; use `with` (or `async with`), or call close "
            "(or aclose), so that nothing in flight is lost",
            what,
        )
