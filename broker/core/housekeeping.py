"""Periodic checks: silent clients, silent brokers, expired locks.

Source: semantics §2.3 (ClientHousekeepingService); nameserver §3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SCAN_S: Final = 10.0


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
