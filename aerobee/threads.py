"""Threads where the system may give none: a full limit on processes ends no service.

The limit of a container or of a user counts the threads of others as well, and may be reached by
them. A server keeps one worker in reserve: work for a thread waits for that one where there is no
other, and the loop goes on.
"""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

R = TypeVar("R")

NONE_LEFT: Final = "can't start new thread"
"""The text of Python's RuntimeError where the system gives no thread."""
REMEDY: Final = (
    "raise the limit on processes and threads (ulimit -u, TasksMax, --pids-limit, pids.max)"
)
PAUSE_S: Final = 0.05
"""The pause before another attempt."""

log = structlog.stdlib.get_logger(__name__)


def no_thread() -> OSError:
    """The error with what to do."""
    return OSError(errno.EAGAIN, f"no thread can be started: {REMEDY}")


@contextmanager
def starting() -> Iterator[None]:
    """A block that starts a thread. Raises: OSError with what to do, when the system gives none."""
    try:
        yield
    except RuntimeError as error:
        if not is_none_left(error):
            raise
        raise no_thread() from error


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises: as `starting`."""
    with starting():
        thread.start()


class Reserve:
    """A worker of trio's that does nothing, until it is lent to work that finds no other."""

    def __init__(self) -> None:
        self._parked: threading.Event | None = None
        self._wanted = False

    def hold(self) -> None:
        """Keep a worker from now on. Raises: as `starting`."""
        self._wanted = True
        if self._parked is None:
            parked = threading.Event()
            with starting():
                trio.lowlevel.start_thread_soon(parked.wait, _nothing, "reserve")
            self._parked = parked

    def lend(self) -> None:
        """Let the worker take the next work."""
        if self._parked is not None:
            self._parked.set()
            self._parked = None

    def take_back(self) -> None:
        """Keep a worker again, if one is idle now, or can be started."""
        if self._wanted and self._parked is None:
            with suppress(OSError):
                self.hold()

    def let_go(self) -> None:
        """Keep none any more."""
        self._wanted = False
        self.lend()


RESERVE: Final = Reserve()
"""That of the process: it has one limit, and one cache of workers."""


class Work(Generic[R]):
    """A function for a thread; `begun` tells its own errors from those of the thread's start."""

    def __init__(self, function: Callable[..., R], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._begun = False
        # Trio names the thread so.
        self.__name__ = getattr(function, "__name__", None)

    def __call__(self) -> R:
        self._begun = True
        return self._function(*self._arguments)

    async def attempt(self, limiter: trio.CapacityLimiter | None, abandon: bool) -> R:
        """Its result. Raises: RuntimeError when there is no thread, and what the function raises;
        an OSError when that has begun and could start none of its own: it may not be done twice.
        """
        try:
            return await trio.to_thread.run_sync(self, limiter=limiter, abandon_on_cancel=abandon)
        except RuntimeError as error:
            if self._begun and is_none_left(error):
                raise no_thread() from error
            raise


async def in_thread(
    function: Callable[..., R],
    *arguments: Any,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """As `trio.to_thread.run_sync`, and waits while the system gives no thread."""
    work = Work(function, arguments)
    return await once_there_are_threads(lambda: work.attempt(limiter, abandon_on_cancel))


async def once_there_are_threads(attempt: Callable[[], Awaitable[R]]) -> R:
    """The result of `attempt`, which is made again and again while the system gives no thread."""
    logged = False
    try:
        while True:
            try:
                return await attempt()
            except RuntimeError as error:
                if not is_none_left(error):
                    raise
            if not logged:
                log.error("threads.none_left", remedy=REMEDY)
                logged = True
            RESERVE.lend()
            await trio.sleep(PAUSE_S)
    finally:
        RESERVE.take_back()


def is_none_left(error: RuntimeError) -> bool:
    """Whether the system gave no thread."""
    return str(error) == NONE_LEFT


def _nothing(_: object) -> None:
    """The end of the worker's rest says nothing."""
