"""Brokers that were slow or failed are left alone for a while, as long as there are others."""

import pytest

from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.effects import Clock
from aerobee.client.steps.faults import Faults, next_step

QUEUES = [MessageQueue("T", name, n) for name in ("a", "b", "c") for n in range(2)]


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.faults = Faults(Clock(lambda: self.now_s, lambda: 0))

    def choose(self, counter: int, last: str | None = None) -> str:
        step = next_step(QUEUES, counter, last, self.faults)
        return QUEUES[(counter + step) % len(QUEUES)].broker_name


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.mark.parametrize(
    ("took_s", "away_s"),
    [(0.54, 0), (0.55, 2), (1.8, 5), (3.0, 6), (4.9, 6), (5.0, 10), (15.0, 30), (600.0, 30)],
)
def test_a_slow_broker_is_left_alone_as_long_as_by_java(
    hand: Hand, took_s: float, away_s: float
) -> None:
    hand.faults.succeeded("a", took_s)
    assert hand.faults.available("a") == (away_s == 0)
    hand.now_s += away_s
    assert hand.faults.available("a")
    hand.faults.succeeded("a", 0.01)
    assert hand.faults.available("a")


def test_a_failed_broker_counts_as_one_that_took_ten_seconds(hand: Hand) -> None:
    hand.faults.failed("a", refused=False)
    assert {hand.choose(counter) for counter in range(6)} == {"b", "c"}
    hand.now_s += 10.0
    assert {hand.choose(counter) for counter in range(6)} == {"a", "b", "c"}


def test_a_success_ends_it(hand: Hand) -> None:
    hand.faults.failed("a", refused=True)
    hand.faults.succeeded("a", 0.01)
    assert hand.faults.reachable("a")
    assert hand.faults.available("a")


def test_one_that_was_lost_is_tried_before_one_that_refused(hand: Hand) -> None:
    hand.faults.failed("a", refused=True)
    hand.faults.failed("b", refused=False)
    hand.faults.failed("c", refused=True)
    assert {hand.choose(counter) for counter in range(6)} == {"b"}


def test_where_all_failed_a_retry_still_leaves_the_last_one(hand: Hand) -> None:
    for name in "abc":
        hand.faults.failed(name, refused=True)
    assert {hand.choose(counter, "a") for counter in range(6)} == {"b", "c"}


def test_the_only_broker_is_asked_again() -> None:
    only = [MessageQueue("T", "a", n) for n in range(3)]
    faults = Faults(Clock(lambda: 0.0, lambda: 0))
    faults.failed("a", refused=True)
    assert [next_step(only, counter, "a", faults) for counter in range(3)] == [1, 1, 1]
    assert next_step(only, 0, "a", None) == 1
