"""A pool's figures, and the remarks that monitors look for."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.remoting.server.pools import OVERLOAD_REMARK, Pool, Waiting, timeout_remark
from aerobee.remoting.wire.command import Command

NOBODY: Any = None


def test_the_remarks_are_those_of_rocketmq() -> None:
    assert OVERLOAD_REMARK == "[OVERLOAD]system busy, start flow control for a while"
    assert timeout_remark(212, 7) == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 212ms, size of queue: 7"
    )


@pytest.mark.parametrize(("depth", "full"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_pool_is_full_at_its_capacity(depth: int, full: bool) -> None:
    pool = Pool("p", width=2, capacity=5, max_wait_ms=None)
    pool.depth = depth
    assert pool.full is full


def test_the_oldest_request_says_how_long_the_queue_is() -> None:
    pool = Pool("p", width=2, capacity=5, max_wait_ms=200)
    assert pool.head_wait_s(100.0) == 0.0
    for arrived in (10.0, 11.0):
        pool.queue.append(Waiting(arrived, NOBODY, NOBODY, NOBODY))
    assert pool.head_wait_s(12.5) == 2.5
    assert pool.max_wait_s == 0.2


def test_without_a_limit_nobody_waits_too_long() -> None:
    assert Pool("p", width=1, capacity=1, max_wait_ms=None).max_wait_s == float("inf")


def test_what_is_queued_when_the_server_stops_is_closed_and_never_begun() -> None:
    began = []

    async def work() -> None:
        began.append(1)

    pool = Pool("p", width=1, capacity=5, max_wait_ms=None)
    command = Command(code=1)
    command.pool = pool
    pool.queue.append(Waiting(10.0, NOBODY, command, work()))
    pool.depth = 1
    pool.clear()
    assert (pool.depth, len(pool.queue), began, command.pool) == (0, 0, [], None)
