"""An event that a signal handler may set, too.

The handler interrupts a thread between any two of its steps. Where that thread is within a wait for
a `threading.Event`, or sets it, it holds the lock of that event, and the handler would wait for the
lock for ever. Here each wait has a lock of its own, which nobody but it acquires.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Event:
    """As `threading.Event`. Times in seconds."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[threading.Lock] = []
        """A lock for each wait, which `set` releases."""

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._set

    def set(self) -> None:
        """Set the event and end all waits; from any thread, and from a signal handler."""
        self._set = True
        for lock in tuple(self._waiting):
            # Another one may have released it already.
            with suppress(RuntimeError):
                lock.release()

    def clear(self) -> None:
        """Clear the event: later waits last until it is set again."""
        self._set = False

    def wait(self, timeout: float) -> bool:
        """Wait until the event is set, at most so long; returns whether it was."""
        if self._set:
            return True
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        try:
            # `set` may have come before it could see this lock.
            return self.is_set() or lock.acquire(timeout=max(0.0, timeout))
        finally:
            self._waiting.remove(lock)
