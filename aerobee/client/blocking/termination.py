"""SIGTERM as a request to end, for a blocking `run` in the main thread."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def terminated(*, on: bool) -> Iterator[threading.Event]:
    """A context manager whose event a SIGTERM sets, instead of ending the process.

    A handler of the program stays in force, and outside the main thread there can be none: then
    the event is never set.
    """
    arrived = threading.Event()
    here = on and threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield arrived
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: arrived.set())
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
