"""The pools have RocketMQ's sizes and follow its keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee.broker.pools.pools import SIZES, make_pools
from aerobee.remoting.config import RemotingConfig

DEFAULT = RemotingConfig()


@pytest.mark.parametrize(
    ("name", "capacity", "wait_s"),
    [
        ("send", 10_000, 0.2),
        ("pull", 100_000, 5),
        ("lite_pull", 100_000, 5),
        ("ack", 100_000, 3),
        ("reply", 10_000, float("inf")),
        ("query", 20_000, float("inf")),
        ("heartbeat", 50_000, 31),
        ("client_manager", 1_000_000, float("inf")),
        ("consumer_manager", 1_000_000, float("inf")),
        ("load_balance", 100_000, float("inf")),
        ("admin", 10_000, 5),
    ],
)
def test_bounds_and_waits_are_those_of_rocketmq(name: str, capacity: int, wait_s: float) -> None:
    pool = make_pools(DEFAULT)[name]
    assert (pool.name, pool.capacity, pool.max_wait_s) == (name, capacity, wait_s)


@pytest.mark.parametrize("name", SIZES)
def test_each_pool_follows_its_keys(name: str) -> None:
    width, capacity, wait = SIZES[name]
    keys = {width: 3, capacity: 77} | ({wait: 1_500} if wait else {})
    pools = make_pools(replace(DEFAULT, **keys))  # type: ignore[arg-type]  # all of them numbers
    pool = pools.pop(name)
    assert (pool.width, pool.capacity) == (3, 77)
    assert pool.max_wait_s == (1.5 if wait else float("inf"))
    before = make_pools(DEFAULT)
    assert all(pool.capacity == before[other].capacity for other, pool in pools.items())


def test_without_fast_failure_nothing_is_shed_for_age() -> None:
    pools = make_pools(replace(DEFAULT, broker_fast_failure_enable=False))
    assert {pool.max_wait_s for pool in pools.values()} == {float("inf")}
