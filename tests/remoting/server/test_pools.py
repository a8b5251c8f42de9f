"""A pool's figures, and the remarks that monitors look for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.server.pools import OVERLOAD_REMARK, Pool, Waiting, timeout_remark
from aerobee.remoting.wire.command import Command


class Peer(str):
    """A connection, known by its name."""

    __slots__ = ()

    @property
    def lane(self) -> str:
        """Of a call: the connection in front of the dot."""
        return self.partition(".")[0]


NOBODY: Any = Peer("nobody")


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
        pool.running = pool.width
        assert not pool.enter(Waiting(arrived, NOBODY, NOBODY, NOBODY))
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
    pool.running = pool.width
    pool.enter(Waiting(10.0, NOBODY, command, work()))
    pool.depth = 1
    pool.clear()
    assert (pool.depth, pool.queued, began, command.pool) == (0, 0, [], None)


# ── Turns ──


def request(peer: str, number: int) -> Any:
    who: Any = Peer(peer)
    what: Any = number
    return Waiting(float(number), who, what, NOBODY)


def test_who_asks_once_is_next_however_many_another_has_asked() -> None:
    pool = Pool("p", width=4, capacity=10_000, max_wait_ms=None)
    runs = [n for n in range(1_000) if pool.enter(request("greedy", n))]
    assert runs == [0, 1], "half of the width is for others"
    assert [pool.enter(request(peer, 0)) for peer in ("a", "b", "c")] == [True, True, False]
    peer: Any = "greedy"
    first: Any = pool.next(peer)
    assert first == request("c", 0)
    assert pool.next(first.connection) == request("greedy", 2)


def test_calls_of_one_connection_have_half_of_the_width_together() -> None:
    pool = Pool("p", width=4, capacity=10_000, max_wait_ms=None)
    runs = [n for n in range(10) if pool.enter(request(f"greedy.{n}", n))]
    assert runs == [0, 1]
    assert pool.enter(request("a", 0))
    assert pool.next("greedy") == request("greedy.2", 2)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60),
)
def test_every_request_runs_once_in_its_connections_order_and_within_the_width(
    width: int, steps: list[tuple[str, bool]]
) -> None:
    pool = Pool("p", width=width, capacity=10_000, max_wait_ms=None)
    running: list[Any] = []
    began: dict[Any, list[Any]] = {peer: [] for peer in "abc"}
    entered: dict[Any, list[Any]] = {peer: [] for peer in "abc"}

    def begin(waiting: Any) -> None:
        running.append(waiting)
        began[waiting.connection].append(waiting.command)

    def end() -> None:
        following = pool.next(running.pop(0).connection)
        if following is None:
            pool.running -= 1
        else:
            begin(following)

    for number, (peer, ends) in enumerate(steps):
        waiting = request(peer, number)
        entered[peer].append(number)
        if pool.enter(waiting):
            begin(waiting)
        if ends and running:
            end()
        assert len(running) == pool.running <= width
        for one in "abc":
            own = [of for of in running if of.connection == one]
            assert len(own) <= pool.most_of_one
    while running:
        end()
    assert began == entered
    assert (pool.running, pool.queued, pool.lines) == (0, 0, {})
