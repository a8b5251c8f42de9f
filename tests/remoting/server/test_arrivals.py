"""When bytes came: each thing that is known, and all of them beside a kernel that knows better."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.server.arrivals import (
    JUST_NOW_S,
    NO_SLOW_ROUND,
    Arrivals,
    Reading,
    SlowRound,
)

SOCKETS = 5
NAMED_AT_MOST = 3
SLOW_S = 0.050


def begin(
    arrivals: Arrivals,
    now: float,
    *,
    all_named: bool = True,
    waited: bool = False,
    slow: SlowRound = NO_SLOW_ROUND,
) -> None:
    arrivals.begin(now, all_named=all_named, waited=waited, slow=slow)


def test_what_a_read_brings_came_after_the_read_before_it() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    assert (arrivals.read(reading, 1.5, 100), reading.until) == (0, 1.5)
    begin(arrivals, 2)
    assert arrivals.read(reading, 2.5, 100) == 1.5


def test_a_socket_that_was_not_named_was_empty_when_that_round_began() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    begin(arrivals, 2)
    assert arrivals.read(reading, 2.5, 100) == 1


def test_a_socket_may_hold_something_that_was_not_named_when_not_all_were() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    begin(arrivals, 2, all_named=False)
    begin(arrivals, 3)
    assert arrivals.read(reading, 3.5, 100) == 1


def test_a_socket_that_the_poller_was_not_asked_about_may_have_held_something() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    arrivals.unasked(reading)
    begin(arrivals, 2)
    assert arrivals.read(reading, 2.5, 100) == 0


def test_what_ended_a_wait_has_just_come() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    arrivals.read(reading, 1.5, 100)
    begin(arrivals, 300, waited=True)
    assert arrivals.read(reading, 300.5, 100) == 300


@pytest.mark.parametrize(
    ("slow", "since"),
    [
        (SlowRound(299.6, 299.999), 299.6),
        (SlowRound(299.6, 299.9 - JUST_NOW_S), 300),
        (SlowRound(0.5, 299.999), 300),
    ],
    ids=["just now", "a while ago", "begun before the round that found nothing"],
)
def test_what_ended_a_wait_may_have_come_since_a_slow_round_began(
    slow: SlowRound, since: float
) -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    begin(arrivals, 300, waited=True, slow=slow)
    assert arrivals.read(reading, 300.5, 100) == since


def test_what_did_not_fit_came_in_the_later_part_of_the_time() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 4)
    assert (arrivals.read(reading, 4, 100, unread=300), reading.until) == (0, 1)
    begin(arrivals, 4)
    assert (arrivals.read(reading, 4, 300), reading.until) == (1, 4)


def test_the_time_of_a_pause_does_not_count() -> None:
    arrivals, reading = Arrivals(0), Reading(0)
    begin(arrivals, 1)
    reading.resumed = 7
    begin(arrivals, 8)
    assert arrivals.read(reading, 8.5, 100) == 7


class Kernel:
    """Sockets whose bytes came at known times, a loop that reads them, and what it works out."""

    def __init__(self) -> None:
        self.now = 100.0
        self.came: list[list[float]] = [[] for _ in range(SOCKETS)]
        self.arrivals = Arrivals(self.now)
        self.readings = [Reading(self.now) for _ in range(SOCKETS)]
        self.rests = [False] * SOCKETS
        """Whether something was left at the last read: its age is an estimate."""
        self.empty_at = [self.now] * SOCKETS
        """When the poller last had room for this socket and did not name it, or it was emptied."""
        self.slow = NO_SLOW_ROUND

    def pass_time(self, seconds: float, senders: list[int]) -> None:
        """Bytes of `senders` come one after the other meanwhile."""
        for number, sender in enumerate(senders, 1):
            self.came[sender].append(self.now + seconds * number / (len(senders) + 1))
        self.now += seconds

    def sleep(self, seconds: float, sender: int, late_s: float) -> None:
        """Nothing is there until one sends; the loop goes on when another round has ended."""
        if any(self.came):
            return
        self.now += seconds
        began = self.now
        self.pass_time(late_s, [sender])
        if late_s > SLOW_S:
            self.slow = SlowRound(began, self.now)
        self.round(0.0, [], waited=True)

    def round(self, cost_s: float, room: list[int], *, waited: bool = False) -> None:
        """Read the sockets that are named, at most so many bytes of each."""
        named = [number for number in range(SOCKETS) if self.came[number]][:NAMED_AT_MOST]
        all_named = len(named) < NAMED_AT_MOST
        self.arrivals.begin(self.now, all_named=all_named, waited=waited, slow=self.slow)
        for number in range(SOCKETS):
            if number not in named and (all_named or waited):
                self.empty_at[number] = self.now
        for turn, number in enumerate(named):
            self.now += cost_s
            came, reading = self.came[number], self.readings[number]
            received = min(len(came), room[turn] if turn < len(room) else len(came))
            read, self.came[number] = came[:received], came[received:]
            before = reading.until
            since = self.arrivals.read(reading, self.now, received, len(came) - received)
            assert before <= since <= reading.until <= self.now
            if not self.rests[number]:
                assert since <= read[0] + (SLOW_S if waited else 0)
                assert since >= self.empty_at[number]
            self.rests[number] = bool(self.came[number])
            if not self.rests[number]:
                assert read[-1] <= reading.until == self.now
                self.empty_at[number] = self.now


times = st.floats(0.0001, 0.2)
senders = st.lists(st.integers(0, SOCKETS - 1), max_size=8)
steps = st.one_of(
    st.tuples(st.just("pass"), times, senders),
    st.tuples(st.just("sleep"), times, st.integers(0, SOCKETS - 1), times),
    st.tuples(st.just("round"), times, st.lists(st.integers(1, 3), max_size=NAMED_AT_MOST)),
)


@given(st.lists(steps, max_size=40))
def test_a_request_is_never_taken_for_younger_than_it_is_nor_for_older_than_what_is_known(
    taken: list[tuple[object, ...]],
) -> None:
    kernel = Kernel()
    for name, *arguments in taken:
        getattr(kernel, {"pass": "pass_time"}.get(str(name), str(name)))(*arguments)
