"""Threads that wait for the disk: one for the loop's syncs, several at a start.

A sync takes about 130 µs on a fast disk, so the hand-over to the thread and back counts: with this
one it costs some 50 µs, with `trio.to_thread` 150 µs.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import trio

from aerobee.threads import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Job = tuple[Callable[[], None], Callable[[BaseException | None], None]]

T = TypeVar("T")
THREADS = 8
MANY = 64


def side_by_side(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Do blocking work for each item, in several threads when there are many.

    Syncs that wait at the same time share journal commits. The order is undefined.
    Raises: an OSError of one that fails; the others are done all the same.
    """
    left, failures = deque(items), list[BaseException]()
    share = partial(_work_off, work, left, failures)
    helpers = THREADS - 1 if len(left) >= MANY else 0
    started: list[threading.Thread] = []
    # Where the system gives no thread, this one does what the others would.
    with suppress(OSError):
        while len(started) < helpers:
            thread = threading.Thread(target=share)
            start(thread)
            started.append(thread)
    share()
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


def _work_off(work: Callable[[T], None], left: deque[T], failures: list[BaseException]) -> None:
    """Do the work for items that are left, until none is."""
    with suppress(IndexError):
        while True:
            failure = outcome(partial(work, left.popleft()))
            if failure is not None:
                failures.append(failure)


def outcome(work: Callable[[], None]) -> BaseException | None:
    """Do the work; returns its error, or None. The caller raises what no disk can cause."""
    try:
        work()
    except BaseException as error:
        return error
    return None


class SyncThread:
    """Runs blocking work in order, and reports each result in the loop."""

    __slots__ = ("_jobs", "_thread", "_token")

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def start(self) -> None:
        """Start the thread; results are reported in the calling loop. A second call does
        nothing. Raises: OSError when the system gives no thread.
        """
        if self._thread is None:
            self._token = trio.lowlevel.current_trio_token()
            thread = threading.Thread(target=self._run, name="aerobee-sync", daemon=True)
            start(thread)
            self._thread = thread

    @property
    def running(self) -> bool:
        """Whether the thread accepts work."""
        return self._thread is not None

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Do `work` in the thread, then call `done` in the loop with its error, or None."""
        assert self._thread is not None
        self._jobs.put((work, done))

    def pause(self, seconds: float) -> None:
        """Wait, in the thread, before work is tried again."""
        threading.Event().wait(seconds)

    def stop(self) -> None:
        """End the thread after its queued work; blocks until then."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _run(self) -> None:
        token = self._token
        assert token is not None
        while (job := self._jobs.get()) is not None:
            work, done = job
            failure = outcome(work)
            try:
                token.run_sync_soon(done, failure)
            except trio.RunFinishedError:
                return
