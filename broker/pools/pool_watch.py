"""Samples the pools every second, and logs a line a minute for those under load.

A pool without waits or refusals logs nothing; RocketMQ logs a line for each every second. Source:
semantics §17.4 (printWaterMark).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.remoting.server.pools import Pool
    from aerobee.store.clock import Clock

LOOK_S: Final = 1.0
LOOKS: Final = 60
"""Samples per line."""
WAITED_S: Final = 0.1
"""A longer wait at the head of a queue is logged."""

log = structlog.stdlib.get_logger(__name__)


class Minute:
    """The samples of one pool since the last line."""

    __slots__ = ("deepest", "longest_s", "refused", "timed_out")

    def __init__(self, pool: Pool) -> None:
        self.deepest = 0
        self.longest_s = 0.0
        self.refused = pool.refused
        """The pool's count when the minute began; `timed_out` likewise."""
        self.timed_out = pool.timed_out


class PoolWatch:
    """The service."""

    def __init__(self, pools: Iterable[Pool], clock: Clock) -> None:
        self._clock = clock
        self._seen = {pool: Minute(pool) for pool in pools}

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Sample until cancelled."""
        task_status.started()
        while True:
            for _ in range(LOOKS):
                await trio.sleep(LOOK_S)
                self.look()
            self.report()

    def look(self) -> None:
        """Record the depth of the pools, and how long the first in their queues have waited."""
        now = self._clock.monotonic()
        for pool, minute in self._seen.items():
            minute.deepest = max(minute.deepest, pool.depth)
            minute.longest_s = max(minute.longest_s, pool.head_wait_s(now))

    def report(self) -> None:
        """Log a line for each pool that refused requests or made them wait; start a new minute."""
        for pool, minute in self._seen.items():
            refused = pool.refused - minute.refused
            timed_out = pool.timed_out - minute.timed_out
            if refused or timed_out or minute.longest_s > WAITED_S:
                log.warning(
                    "pool.busy",
                    pool=pool.name,
                    deepest=minute.deepest,
                    waited_ms=round(minute.longest_s * 1000),
                    refused=refused,
                    timed_out=timed_out,
                )
            self._seen[pool] = Minute(pool)
