"""The clock of a broker under test: real time, plus jumps from another thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio
import trio.testing

if TYPE_CHECKING:
    from collections.abc import Callable


class VirtualTime:
    """The clock of the loop and of the broker's timestamps: both always move together.

    Between jumps it runs like a real clock. `after`: the time of the broker's last run, to continue
    from.
    """

    def __init__(self, *, manual: bool, after: VirtualTime | None) -> None:
        self.clock = trio.testing.MockClock(rate=1.0) if manual else None
        self._ahead_s = after.ahead_s if after is not None else 0.0
        self._token: trio.lowlevel.TrioToken | None = None

    def enter(self) -> None:
        """Register the loop of this thread."""
        self._token = trio.lowlevel.current_trio_token()
        self._began = time.monotonic()

    @property
    def ahead_s(self) -> float:
        """The sum of all jumps in seconds."""
        if self.clock is None:
            return self._ahead_s
        return self._ahead_s + self.clock.current_time() - (time.monotonic() - self._began)

    def now_ms(self) -> int:
        """The wall clock, in ms."""
        return int((time.time() + self.ahead_s) * 1000)

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic() + self.ahead_s

    def call(self, work: Callable[[], object]) -> None:
        """Call a function in the loop and wait for it; does nothing if the loop has ended."""
        if self._token is not None:
            try:
                trio.from_thread.run_sync(work, trio_token=self._token)
            except trio.RunFinishedError:
                return

    def advance(self, seconds: float, jumps: int) -> None:
        """Jump ahead in `jumps` steps; after each the loop becomes idle before the next."""
        trio.from_thread.run(self._advance, seconds, jumps, trio_token=self._token)

    async def _advance(self, seconds: float, jumps: int) -> None:
        assert self.clock is not None
        for _ in range(jumps):
            self.clock.jump(seconds / jumps)
            await trio.testing.wait_all_tasks_blocked()
