"""Waiting for what only another process can make true: the one place where tests look again.

Everything that can be awaited as an event is awaited as one; this is for the rest, such as a route
that another name server will answer soon. It never waits longer than told and always says for what.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within_s: float, what: str, every_s: float = 0.05) -> T:
    """The first truthy answer of `look`. Raises: AssertionError that names `what`."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not (answer := look()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {answer!r}")
        pause.wait(every_s)
    return answer
