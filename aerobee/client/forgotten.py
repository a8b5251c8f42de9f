"""Clients, producers and consumers that a program left open: named once, when it ends.

What was sent and not answered yet, or handled and not committed yet, may be lost with them, and
the broker keeps the places of a consumer for a while.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import Counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from aerobee.client.life import Life

__all__ = ["note_closed", "note_open", "tell"]

log = logging.getLogger("aerobee.client")

opened: WeakKeyDictionary[Life, int] = WeakKeyDictionary()
"""Whatever runs, or was ended by somebody else, and the process that started it."""


def note_open(life: Life) -> None:
    """It runs, and has to be closed by this process."""
    opened[life] = os.getpid()


def note_closed(life: Life) -> None:
    """It was closed, or its start has failed."""
    opened.pop(life, None)


@atexit.register
def tell() -> None:
    """Log what was left open, in one line. A fork knows nothing of what its parent opened."""
    own = os.getpid()
    names = Counter(life.what for life, pid in list(opened.items()) if pid == own)
    if names:
        what = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
        log.warning(
            "not closed when the program ended: %s; use `with` (or `async with`), or call close "
            "(or aclose), so that nothing in flight is lost",
            what,
        )
