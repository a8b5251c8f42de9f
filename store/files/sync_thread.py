"""One thread that waits for the disk in place of the loop.

A sync takes about 130 µs on a fast disk, so the way to the thread and back counts: through this one
it costs some 50 µs, through `trio.to_thread` 150 µs (bench/append.py prints both).
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    Job = tuple[Callable[[], None], Callable[[BaseException | None], None]]

__all__ = ["SyncThread"]


class SyncThread:
    """Runs blocking work in order; what it ended with is told in the loop."""

    __slots__ = ("_jobs", "_thread", "_token")

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def start(self) -> None:
        """Begin to take work; in the loop that is told of its end. A second call does nothing."""
        if self._thread is None:
            self._token = trio.lowlevel.current_trio_token()
            self._thread = threading.Thread(target=self._run, name="aerobee-sync", daemon=True)
            self._thread.start()

    @property
    def running(self) -> bool:
        """Whether work would be done."""
        return self._thread is not None

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Do `work` in the thread, then call `done` in the loop with what it raised, or None."""
        assert self._thread is not None
        self._jobs.put((work, done))

    def stop(self) -> None:
        """End the thread behind the work it has; blocks as long as that takes."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _run(self) -> None:
        token = self._token
        assert token is not None
        while (job := self._jobs.get()) is not None:
            work, done = job
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:
                failure = error
            try:
                token.run_sync_soon(done, failure)
            except trio.RunFinishedError:
                return
