"""Virtual time stands while threads work: what a disk takes is no part of a test.

trio counts a task that waits for a thread as blocked. So virtual time would fly past every call
that a thread makes, on a slow machine further than on a fast one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
from trio.testing import MockClock

from aerobee.store.files.sync_thread import SyncThread

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_S: Final = 0.0002
_NOBODY: Final = threading.Event()


class Working:
    """The calls in threads that a loop with virtual time waits for: they keep it awake."""

    now: ClassVar[Working | None] = None
    """Those of the latest such loop."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self.token = token
        self._calls = 0
        self._held = 0
        """Those of them that a test holds on purpose: time passes meanwhile."""
        self._awake = False
        self._lock = threading.Lock()

    def count(self, calls: int = 0, held: int = 0) -> None:
        """So many more of them; from any thread."""
        with self._lock:
            self._calls += calls
            self._held += held
        try:
            self.token.run_sync_soon(self._wake)
        except trio.RunFinishedError:
            return

    def _wake(self) -> None:
        if self._calls > self._held and not self._awake:
            # Refused in a loop that ends: no time passes there any more.
            with suppress(RuntimeError):
                trio.lowlevel.spawn_system_task(self._stay_awake)
                self._awake = True

    async def _stay_awake(self) -> None:
        try:
            while self._calls > self._held:
                await trio.lowlevel.checkpoint()
                # The threads need the interpreter.
                _NOBODY.wait(TURN_S)
        finally:
            self._awake = False


def working() -> Working | None:
    """Those of the loop that runs here; None without a loop, or where time is real."""
    if not trio.lowlevel.in_trio_run() or not isinstance(trio.lowlevel.current_clock(), MockClock):
        return None
    token = trio.lowlevel.current_trio_token()
    if Working.now is None or Working.now.token is not token:
        Working.now = Working(token)
    return Working.now


class Opening(threading.Event):
    """What a thread waits for until the test lets it go on: virtual time passes meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._counting = threading.Lock()

    def wait(self, timeout: float | None = None) -> bool:
        with self._counting:
            if self.is_set():
                return True
            self._waiting += 1
            self._count(1)
        return super().wait(timeout)

    def set(self) -> None:
        with self._counting:
            self._count(-self._waiting)
            self._waiting = 0
            super().set()

    def _count(self, held: int) -> None:
        if held and Working.now is not None:
            Working.now.count(held=held)


def let_threads_finish() -> None:
    """From now on virtual time stands while threads work, whoever has them work."""
    run_sync, submit = trio.to_thread.run_sync, SyncThread.submit

    async def counted(*args: Any, **how: Any) -> Any:
        calls = working()
        if calls is None:
            return await run_sync(*args, **how)
        calls.count(1)
        try:
            return await run_sync(*args, **how)
        finally:
            calls.count(-1)

    def submitted(
        thread: SyncThread, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        if (calls := working()) is None:
            submit(thread, work, done)
            return
        calls.count(1)
        submit(thread, work, partial(_done, calls, done))

    trio.to_thread.run_sync = counted  # type: ignore[assignment]  # of the same shape
    SyncThread.submit = submitted  # type: ignore[assignment, method-assign]  # of the same shape


def _done(
    calls: Working, done: Callable[[BaseException | None], None], failure: BaseException | None
) -> None:
    calls.count(-1)
    done(failure)
