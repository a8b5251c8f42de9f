"""Slow rounds of the reactor, examined afterwards: how long their puts took, and whether too long.

A put is a copy in memory and is not timed. Only a slow round is examined: every record has the
millisecond in which its append began, so the time to the next one, or to the end of the round, is
the most that its append can have taken. Appends wait for the disk when the page cache is full of
dirty pages.

While the loop is blocked nobody can be refused. Afterwards sends that came meanwhile are refused,
with the remarks that RocketMQ would have given at the time, and later requests are served. Source:
semantics §17.1 (isOSPageCacheBusy, BrokerFastFailure).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import structlog

from aerobee.remoting.server.pools import Stall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.remoting.server.arrivals import SlowRound
    from aerobee.remoting.server.pools import Pool
    from aerobee.store.clock import Clock
    from aerobee.store.queues.dispatch import Dispatcher
    from aerobee.store.stats import Durations

SLOW_PUT_MS = 10
"""Puts below are not counted one by one."""

log = structlog.stdlib.get_logger(__name__)


def begun_since(since_ms: int, stored: Iterable[int]) -> list[int]:
    """Store times not before `since_ms`, in order; `stored` has the last one first."""
    rounds = []
    for stored_ms in stored:
        if stored_ms < since_ms:
            break
        rounds.append(stored_ms)
    rounds.reverse()
    return rounds


class SlowRounds:
    """Examines slow rounds before their records are dispatched. `puts` gets the slow puts."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        pool: Pool,
        puts: Durations,
        clock: Clock,
        limit_ms: Callable[[], int],
    ) -> None:
        """`pool` is that of the sends, `limit_ms` returns osPageCacheBusyTimeOutMills."""
        self._dispatcher = dispatcher
        self._pool = pool
        self._puts = puts
        self._clock = clock
        self._limit_ms = limit_ms

    def look(self, slow: SlowRound) -> None:
        """Find the slow puts of a slow round."""
        now_ms, took_ms = self._clock.now_ms(), int((slow.ended - slow.began) * 1000)
        records = reversed(self._dispatcher.pending)
        begun = begun_since(now_ms - took_ms, (record.store_timestamp for record in records))
        longest_ms = behind_ms = 0
        for first_ms, next_ms in pairwise([*begun, now_ms]):
            put_ms = next_ms - first_ms
            if put_ms >= SLOW_PUT_MS:
                self._puts.add(put_ms / 1000)
                if put_ms > longest_ms:
                    longest_ms, behind_ms = put_ms, now_ms - next_ms
        if longest_ms > self._limit_ms():
            self._refuse(slow.ended - behind_ms / 1000, longest_ms)

    def _refuse(self, end: float, took_ms: int) -> None:
        """Refuse sends that came before `end`."""
        limit_ms = self._limit_ms()
        self._pool.stall = Stall(end - (took_ms - limit_ms) / 1000, end)
        log.warning("commit_log.append_slow", elapsed_ms=took_ms, limit_ms=limit_ms)
