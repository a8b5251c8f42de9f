"""Looks at the pools every second, and writes a line a minute for those that had much to do.

A pool that served whatever came has nothing to say; RocketMQ writes a line for each every second.
Source: semantics §17.4 (printWaterMark).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.remoting.server.pools import Pool
    from aerobee.store.clock import Clock

__all__ = ["PoolWatch"]

LOOK_S: Final = 1.0
LOOKS: Final = 60
"""Looks between lines."""
WAITED_S: Final = 0.1
"""A head of a queue that has waited longer is worth a line."""

log = structlog.stdlib.get_logger("aerobee.broker")


class Minute:
    """What was seen of one pool since the last line."""

    __slots__ = ("deepest", "longest_s", "refused", "timed_out")

    def __init__(self, pool: Pool) -> None:
        self.deepest = 0
        self.longest_s = 0.0
        self.refused = pool.refused
        """So many had been refused when the minute began; `timed_out` likewise."""
        self.timed_out = pool.timed_out


class PoolWatch:
    """The service."""

    def __init__(self, pools: Iterable[Pool], clock: Clock) -> None:
        self._clock = clock
        self._seen = {pool: Minute(pool) for pool in pools}

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Look until cancelled."""
        task_status.started()
        while True:
            for _ in range(LOOKS):
                await trio.sleep(LOOK_S)
                self.look()
            self.report()

    def look(self) -> None:
        """Remember how deep the pools are, and how long the first in their queues have waited."""
        now = self._clock.monotonic()
        for pool, minute in self._seen.items():
            minute.deepest = max(minute.deepest, pool.depth)
            minute.longest_s = max(minute.longest_s, pool.head_wait_s(now))

    def report(self) -> None:
        """A line for each pool that refused requests or made them wait; a new minute begins."""
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
