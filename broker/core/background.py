"""Background work: periodic checks, and work in slices with priority for clients.

The checks remove silent clients, silent brokers and expired locks.

A slice of other work takes a few milliseconds. After each, every other task runs once; when many
client requests were served there, the work pauses for longer than it took, so that they keep most
of the loop. A few requests are served between the slices without a pause. Source: semantics §2.3
(ClientHousekeepingService); nameserver §3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.clock import Clock

SCAN_S: Final = 10.0
"""The usual period of housekeeping."""
SLICE_S: Final = 0.003
"""How long one slice may take; a step that has begun is finished."""
REST: Final = 1.8
"""How long the pause is, as a multiple of the slice, while clients are busy."""
BUSY: Final = 1_000.0
"""Requests per second of a slice from which on clients count as busy."""


class Pace:
    """The pace of one kind of work. `served` counts requests; it never goes back."""

    def __init__(self, clock: Clock, served: Callable[[], int]) -> None:
        self._clock = clock
        self._served = served
        self._began = clock.monotonic()
        self._seen = 0

    def begin(self) -> None:
        """Start a slice."""
        self._began = self._clock.monotonic()

    def over(self) -> bool:
        """Whether the slice's time is up."""
        return self._clock.monotonic() - self._began > SLICE_S

    async def rest(self) -> None:
        """End the slice and pause; returns when the next one may begin."""
        spent_s = self._clock.monotonic() - self._began
        await trio.lowlevel.checkpoint()
        if self._served() - self._seen > BUSY * spent_s:
            await trio.sleep(REST * spent_s)
        self._seen = self._served()
        self.begin()


class Housekeeping:
    """The service: runs one scan per period, the first after one period."""

    def __init__(self, scan: Callable[[], Iterator[None]], *, period_s: float = SCAN_S) -> None:
        self._scan = scan
        self._period_s = period_s

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Scan until cancelled; others run at the yields of a scan."""
        task_status.started()
        while True:
            await trio.sleep(self._period_s)
            await in_slices(self._scan())
