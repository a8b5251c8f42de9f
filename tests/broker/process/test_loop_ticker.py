"""The ticker against a clock that tells the truth and one that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.counters.server_stats import LoopStats
from aerobee.broker.process.loop_ticker import LoopTicker

if TYPE_CHECKING:
    from trio.testing import MockClock


class TrioClock:
    """The loop's own time, so that virtual time works; `stall_s` is added once per reading."""

    def __init__(self) -> None:
        self.stall_s = 0.0
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += self.stall_s
        self.stall_s = 0.0
        return self.now + trio.current_time()


@pytest.mark.trio
async def test_a_loop_that_is_free_has_no_lag(autojump_clock: MockClock) -> None:
    stats = LoopStats()
    with trio.move_on_after(1):
        await LoopTicker(stats, TrioClock(), tick_s=0.01).run()
    assert sum(stats.lag.counts) == stats.lag.counts[0] == 99
    assert stats.lag.max_s == pytest.approx(0, abs=1e-9)


@pytest.mark.trio
async def test_a_standstill_is_seen_with_its_length(autojump_clock: MockClock) -> None:
    stats, clock = LoopStats(), TrioClock()
    async with trio.open_nursery() as nursery:
        await nursery.start(LoopTicker(stats, clock, tick_s=0.01).run)
        await trio.sleep(0.055)
        clock.stall_s = 0.3  # what a blocking call of 0.3 s does to the next reading
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert stats.lag.max_s == pytest.approx(0.3)
    assert stats.lag.counts[stats.lag.bounds.index(0.5)] == 1


@pytest.mark.trio
async def test_the_last_turn_is_known_from_the_start_on(autojump_clock: MockClock) -> None:
    stats, clock = LoopStats(), TrioClock()
    assert stats.last_turn == float("-inf")
    async with trio.open_nursery() as nursery:
        await nursery.start(LoopTicker(stats, clock).run)
        assert stats.last_turn == clock.monotonic()
        nursery.cancel_scope.cancel()
