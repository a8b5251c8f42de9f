"""Rates, windows and mornings of counters that others move. Time is virtual."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.metrics.samples import DAY, HOUR, MINUTE
from aerobee.broker.metrics.sampling import MidnightTotals, Sampling
from aerobee.store.stats import StoreStats
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from trio.testing import MockClock

DAY_MS = 86_400_000


class Desk:
    """A sampler over counters of its own; topics that begin with `sys` are the broker's."""

    def __init__(self) -> None:
        self.stats = BrokerStats()
        self.store = StoreStats()
        self.clock = HandClock(0)
        self.sampling = Sampling(
            stats=self.stats,
            store=self.store,
            clock=self.clock,
            cluster="c",
            is_system_topic=lambda topic: topic.startswith("sys"),
            connections=lambda: (7, 3),
            day_of=lambda now_ms: now_ms // DAY_MS,
        )

    def put(self, topic: str, count: int) -> None:
        self.stats.topic_in(topic).messages_in += count
        self.store.messages_put += count


def test_rates_look_back_as_far_as_there_is_something_to_see() -> None:
    desk = Desk()
    assert desk.sampling.rates("put") == (0.0, 0.0, 0.0)
    for _ in range(20):
        desk.put("t", 5)
        desk.sampling.look()
    assert desk.sampling.rates("put") == (5.0, 5.0, 5.0)
    for _ in range(40):
        desk.sampling.look()
    assert desk.sampling.rates("put") == (0.0, 100 / 60, 100 / 60)
    for _ in range(2_000):
        desk.sampling.look()
    assert desk.sampling.rates("put") == (0.0, 0.0, 0.0)


def test_the_memory_of_looks_is_there_from_the_start() -> None:
    """R12: a broker that fills its rates for ten minutes would look like one that leaks."""
    desk = Desk()
    desk.put("t", 1 << 40)
    desk.sampling.look()
    tracemalloc.start()
    try:
        for _ in range(600):
            desk.put("t", 5)
            desk.sampling.look()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10_000


def test_mornings_are_what_stood_there_when_the_day_changed_without_system_topics() -> None:
    desk = Desk()
    desk.put("t", 3)
    desk.put("sys", 100)
    desk.stats.group_out("g", "t").messages_out += 2
    desk.sampling.look()
    assert (desk.sampling.yesterday, desk.sampling.today) == (MidnightTotals(), MidnightTotals())
    desk.clock.pass_ms(DAY_MS)
    desk.sampling.look()
    assert (desk.sampling.yesterday, desk.sampling.today) == (
        MidnightTotals(),
        MidnightTotals(3, 2),
    )
    desk.put("t", 4)
    desk.clock.pass_ms(DAY_MS)
    desk.sampling.look()
    assert (desk.sampling.yesterday, desk.sampling.today) == (
        MidnightTotals(3, 2),
        MidnightTotals(7, 2),
    )


@pytest.mark.trio
async def test_no_total_of_the_broker_goes_back_with_a_topic_or_a_group_that_is_deleted() -> None:
    desk = Desk()
    stats, sampling = desk.stats, desk.sampling
    stats.known = stats.known._replace(system=lambda topic: topic.startswith("sys"))
    for topic in ("gone", "kept"):
        desk.put(topic, 50)
        stats.group_out("billing", topic).messages_out += 20
        stats.timer(topic).enqueued += 7
        stats.timer(topic).dequeued += 5
        stats.pop.add(stats.pop.revive_in, (topic, "billing", "CK", "put_ok"))
        stats.pop.add(stats.pop.revive_in, (topic, "billing", "ACK", "put_ok"))
    stats.group_out("billing", "sys").messages_out += 3
    sampling.look()
    before = sampling.now(), await totals(sampling)
    assert before[0] == MidnightTotals(100, 40)
    stats.forget_topic("gone")
    sampling.look()
    assert (sampling.now(), await totals(sampling)) == before
    assert sampling.rates("timers_in")[0] == 14 / 2
    assert sampling.rates("timers_out")[0] == 10 / 2
    stats.forget_group("billing")
    assert (sampling.now(), await totals(sampling)) == before


async def totals(sampling: Sampling) -> dict[str, int]:
    """The totals of the cluster as the next sample of a minute has them."""
    sampling.samples.series.clear()
    await sampling.sample(MINUTE)
    series = sampling.samples.series
    return {item: at.messages[0] for (item, key), at in series.items() if key == "c"}


@pytest.mark.trio
async def test_windows_are_sampled_by_their_own_clocks(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = Desk()
    await nursery.start(desk.sampling.run)
    desk.put("t", 60)
    samples = desk.sampling.samples
    await trio.sleep(10.5)
    minute = samples.growth("TOPIC_PUT", "t")
    assert minute is not None
    assert minute.per_s == 6.0
    await trio.sleep(600)
    hour = samples.growth("TOPIC_PUT", "t", HOUR)
    assert hour is not None
    assert hour.messages == 60
    assert samples.growth("TOPIC_PUT", "t", DAY) == (0, 0, 0)
    minute = samples.growth("TOPIC_PUT", "t")
    assert minute is not None
    assert minute.messages == 0
    desk.stats.forget_topic("t")
    await trio.sleep(10)
    assert samples.growth("TOPIC_PUT", "t") is None
    nursery.cancel_scope.cancel()
