"""Sharing out queues: everything once, evenly, and the same for whoever works it out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.assignment.assignment import STRATEGIES, alone, shared
from aerobee.remoting.wire.bodies.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


def queues(count: int, brokers: int = 1) -> list[MessageQueue]:
    return [
        MessageQueue(broker_name=f"b{broker}", queue_id=number, topic="t")
        for broker in range(brokers)
        for number in range(count)
    ]


@pytest.mark.parametrize("name", STRATEGIES)
@given(count=st.integers(0, 40), many=st.integers(1, 20))
def test_every_queue_has_one_member_and_no_member_has_two_more(
    name: str, count: int, many: int
) -> None:
    clients = [f"c{number:02}" for number in range(many)]
    parts = [alone(STRATEGIES[name], queues(count), clients, client) for client in clients]
    assert Counter(queue for part in parts for queue in part) == Counter(queues(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_the_java_broker_shares_out_runs_with_the_longer_ones_first() -> None:
    parts = [alone(STRATEGIES["AVG"], queues(8), ["a", "b", "c"], one) for one in "abc"]
    assert [[queue.queue_id for queue in part] for part in parts] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]


@pytest.mark.parametrize(("share", "many"), [(-1, 5), (0, 5), (4, 5), (9, 5), (1, 2)])
def test_who_shares_with_everybody_pops_from_each_broker_as_a_whole(share: int, many: int) -> None:
    clients = [f"c{number}" for number in range(many)]
    found = shared(STRATEGIES["AVG"], queues(4, brokers=2), clients, "c0", share)
    assert [(queue.broker_name, queue.queue_id) for queue in found] == [("b0", -1), ("b1", -1)]


def test_who_shares_with_some_gets_their_queues_too() -> None:
    clients = ["a", "b", "c", "d"]
    found = shared(STRATEGIES["AVG"], queues(4), clients, "d", 2)
    assert [queue.queue_id for queue in found] == [3, 0, 1]


def test_with_more_members_than_queues_each_has_one() -> None:
    clients = [f"c{number}" for number in range(6)]
    found = [shared(STRATEGIES["AVG"], queues(4), clients, client, 1) for client in clients]
    assert [[queue.queue_id for queue in part] for part in found] == [[0], [1], [2], [3], [0], [1]]


def test_a_stranger_gets_nothing() -> None:
    for allocate in STRATEGIES.values():
        assert alone(allocate, queues(4), ["a"], "b") == []
        assert shared(allocate, queues(4), ["a", "b", "c"], "d", 1) == []


def test_a_share_beyond_measure_takes_no_longer_than_there_are_queues() -> None:
    clients = [f"c{number:05}" for number in range(20_001)]
    asked: list[int] = []

    def allocate(of: Sequence[MessageQueue], many: int, place: int) -> Sequence[MessageQueue]:
        asked.append(place)
        return STRATEGIES["AVG"](of, many, place)

    found = shared(allocate, queues(30_000), clients, "c00007", 19_999)
    assert len(found) == len(set(found)) == 30_000 - 2  # those of c00006, who is left out
    assert len(asked) == 20_000
