"""Threads where the system may give none: a full limit on processes ends no service.

The limit of a container or of a user counts the threads of others as well, and may be reached by
them. What is to be done in a thread then waits until one is there, and the loop goes on.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
import trio

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable

R = TypeVar("R")

NONE_LEFT: Final = "can't start new thread"
"""The text of Python's RuntimeError where the system gives no thread."""
REMEDY: Final = (
    "raise the limit on processes and threads (ulimit -u, TasksMax, --pids-limit, pids.max)"
)
PAUSE_S: Final = 0.5
"""The pause before another attempt."""

log = structlog.stdlib.get_logger(__name__)


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises: OSError with what to do, when the system gives none."""
    try:
        thread.start()
    except RuntimeError as error:
        if not is_none_left(error):
            raise
        raise OSError(errno.EAGAIN, f"no thread can be started: {REMEDY}") from error


async def in_thread(
    function: Callable[..., R],
    *arguments: Any,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """As `trio.to_thread.run_sync`, and waits while the system gives no thread."""
    begun = False

    def work() -> R:
        nonlocal begun
        begun = True
        return function(*arguments)

    async def attempt() -> R:
        try:
            return await trio.to_thread.run_sync(
                work, limiter=limiter, abandon_on_cancel=abandon_on_cancel
            )
        except RuntimeError as error:
            if begun and is_none_left(error):
                # The function's own: it may not be done twice.
                raise OSError(errno.EAGAIN, f"no thread can be started: {REMEDY}") from error
            raise

    return await once_there_are_threads(attempt)


async def once_there_are_threads(attempt: Callable[[], Awaitable[R]]) -> R:
    """What `attempt` returns, tried again and again while the system gives no thread."""
    told = False
    while True:
        try:
            return await attempt()
        except RuntimeError as error:
            if not is_none_left(error):
                raise
        if not told:
            told = True
            log.error("threads.none_left", remedy=REMEDY)
        await trio.sleep(PAUSE_S)


def is_none_left(error: RuntimeError) -> bool:
    """Whether the system gave no thread."""
    return str(error) == NONE_LEFT
