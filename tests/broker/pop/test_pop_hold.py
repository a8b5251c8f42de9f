"""Held pops: who wakes, in what order, and who does not. Time is virtual."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import passes
from aerobee.broker.holds.deadlines import STALE_DEADLINES
from aerobee.broker.holds.quota import HoldLimits
from aerobee.broker.pop.pop_hold import (
    ALL_QUEUES,
    EXPIRE_POPS,
    TICK_S,
    WAKE_POPS,
    HeldPop,
    PopHold,
    PopLimits,
)
from aerobee.store.format.tags import TagFilter, tags_code
from tests.broker.peers import Peer

if TYPE_CHECKING:
    from aerobee.broker.filters.subscription import Filter


class Bench:
    """A hold, and the names of those that woke; a star means for the last time."""

    def __init__(self, limits: PopLimits | None = None) -> None:
        self.listening: list[bool] = []
        self.slices: list[int] = []
        """How many the clock woke in each slice."""
        self.hold = PopHold(limits or PopLimits(), self.listening.append, self.finish_round)
        self.woke: list[str] = []

    def park(
        self,
        name: str,
        *,
        topic: str = "t",
        group: str = "g",
        queue_id: int = ALL_QUEUES,
        kind: str = "pop",
        matches: Filter | None = None,
        deadline: float = 100.0,
        look_at: float | None = None,
        peer: Peer | None = None,
    ) -> bool:
        return self.hold.park(
            HeldPop(
                connection=peer or Peer(),
                topic=topic,
                group=group,
                queue_id=queue_id,
                kind=kind,
                matches=matches,
                deadline=deadline,
                look_at=deadline if look_at is None else look_at,
                resume=lambda last: self.woke.append(name + "*" * last),
            )
        )

    def finish_round(self) -> None:
        self.slices.append(self.hold.wake())

    def arrive(
        self, topic: str = "t", queue_id: int = 0, tag: str | None = None, properties: bytes = b""
    ) -> list[str]:
        """Who wakes."""
        self.hold.arrived(topic, queue_id, 1, tags_code(tag), 0, properties)
        return self.wake()

    def wake(self) -> list[str]:
        self.woke.clear()
        self.hold.wake()
        return list(self.woke)


def test_a_message_wakes_the_longest_wait_of_each_group() -> None:
    bench = Bench()
    for name in ("a1", "a2", "a3"):
        bench.park(name, group="a")
    bench.park("b1", group="b")
    assert bench.arrive() == ["a1", "b1"]
    assert bench.arrive() == ["a2"]
    assert bench.arrive("other") == []
    assert bench.hold.parked == 1


def test_who_goes_after_it_was_woken_leaves_its_message_to_another_of_its_group() -> None:
    bench = Bench()
    gone = Peer()
    bench.park("one", peer=gone)
    bench.park("two", queue_id=0)
    bench.park("three", queue_id=2)
    bench.park("other", group="other", queue_id=2)
    bench.hold.arrived("t", 1, 1, 0, 0, b"")
    gone.close("its client left")
    bench.hold.closed(gone)
    assert bench.wake() == [], "the next slice has it"
    assert bench.wake() == ["two"]
    assert bench.hold.parked == 2


def test_an_arrival_says_whether_anybody_waits_for_the_next() -> None:
    bench = Bench()
    bench.park("one")
    bench.park("two")
    assert bench.hold.arrived("other", 0, 1, 0, 0, b"")
    assert not bench.hold.arrived("t", 0, 1, 0, 0, b"")
    assert bench.hold.arrived("t", 0, 2, 0, 0, b"")
    assert bench.wake() == ["one", "two"]


def test_who_waits_for_all_queues_comes_first_and_who_waits_for_one_hears_of_its_own() -> None:
    bench = Bench()
    bench.park("of 1", queue_id=1)
    bench.park("of all")
    assert bench.arrive(queue_id=1) == ["of all", "of 1"]
    bench.park("of 1", queue_id=1)
    assert bench.arrive(queue_id=0) == []


def test_what_comes_back_wakes_one_of_its_own_group_whatever_its_queue() -> None:
    for topic in ("%RETRY%g_t", "%RETRY%g+t"):
        bench = Bench()
        bench.park("of 3", queue_id=3)
        bench.park("of all")
        bench.park("other", group="h")
        assert bench.arrive(topic) == ["of all"]
        assert bench.arrive(topic) == ["of 3"]
        assert bench.arrive(topic) == []


def test_a_filter_passes_the_message_on_to_the_next() -> None:
    bench = Bench()
    bench.park("x", matches=TagFilter.parse("X"))
    bench.park("y", matches=TagFilter.parse("Y"))
    bench.park("sql", matches=SqlFilter("n > 5"))
    assert bench.arrive(tag="Z", properties=b"n\x013\x02") == []
    assert bench.arrive(tag="Y") == ["y"]
    assert bench.arrive(tag="Z", properties=b"n\x017\x02") == ["sql"]
    assert bench.arrive(tag="X") == ["x"]


def test_a_peer_that_is_gone_gets_nothing_and_the_next_one_does() -> None:
    bench = Bench()
    gone = Peer()
    bench.park("gone", peer=gone)
    bench.park("here")
    gone.close("reset")
    bench.hold.closed(gone)
    assert bench.arrive() == ["here"]


def test_kinds_do_not_take_from_each_other() -> None:
    bench = Bench()
    bench.park("pop")
    bench.park("notification", kind="notification")
    assert sorted(bench.arrive()) == ["notification", "pop"]


def test_a_queue_that_is_free_wakes_one_of_its_group() -> None:
    bench = Bench()
    bench.park("of 1", queue_id=1)
    bench.park("other", group="h")
    bench.hold.freed("t", "g", 0)
    assert bench.wake() == []
    bench.hold.freed("t", "g", 1)
    assert bench.wake() == ["of 1"]


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        (PopLimits(HoldLimits(total=2)), [True, True, False, False]),
        (PopLimits(HoldLimits(of_group=2)), [True, True, True, False]),
        (PopLimits(of_queue=1), [True, False, True, True]),
        (PopLimits(lines=1), [True, True, False, True]),
    ],
)
def test_each_limit_is_kept(limits: PopLimits, fits: list[bool]) -> None:
    bench = Bench(limits)
    assert [
        bench.park("a"),
        bench.park("b"),
        bench.park("c", group="other"),
        bench.park("d", queue_id=1),
    ] == fits


def test_what_arrives_is_listened_to_only_while_somebody_waits() -> None:
    bench = Bench()
    bench.park("a")
    bench.park("b")
    assert bench.listening == [True]
    bench.arrive()
    bench.arrive()
    assert bench.listening == [True, False]
    assert bench.hold.count("t", "g", ALL_QUEUES, "pop") == 0


def test_a_held_request_counts_at_its_connection() -> None:
    bench = Bench()
    peer = Peer()
    bench.park("a", peer=peer)
    bench.park("b", peer=peer)
    assert peer.held == 2
    bench.arrive()
    assert peer.held == 1
    bench.hold.release_all()
    assert bench.woke == ["a", "b*"]
    assert peer.held == 0


@pytest.mark.trio
async def test_deadlines_end_the_wait_and_earlier_looks_do_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()
    now = trio.current_time()
    bench.park("late", deadline=now + 10)
    bench.park("looks", deadline=now + 10, look_at=now + 3)
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.hold.run)
        await trio.sleep(3 + TICK_S)
        assert bench.woke == ["looks"]
        await trio.sleep(7)
        assert bench.woke == ["looks", "late*"]
        nursery.cancel_scope.cancel()


def test_what_was_answered_long_before_its_deadline_leaves_no_heap_behind() -> None:
    bench = Bench()
    for number in range(5_000):
        bench.park(str(number))
        bench.arrive()
    assert len(bench.hold.deadlines) <= STALE_DEADLINES + 2
    assert not bench.hold.groups
    assert not bench.hold.places
    assert not bench.hold.by_retry_topic


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Filter | None]:
    """The filters that were asked about a message, one after the other."""
    asked: list[Filter | None] = []

    def counting(matches: Filter | None, code: int, properties: bytes) -> bool:
        asked.append(matches)
        return passes(matches, code, properties)

    monkeypatch.setattr("aerobee.broker.holds.waiting_lines.passes", counting)
    return asked


def test_thousands_that_do_not_want_it_are_passed_in_no_time(asked: list[Filter | None]) -> None:
    """One filter is asked once, however many wait with it."""
    bench = Bench(PopLimits(of_queue=10_000))
    same = SqlFilter("n > 5")
    for number in range(1_000):
        bench.park(str(number), matches=same)
    assert bench.arrive(properties=b"n\x013\x02") == []
    assert asked == [same]


def test_thousands_of_tags_and_groups_are_not_asked_about_a_message_with_another(
    asked: list[Filter | None],
) -> None:
    bench = Bench(PopLimits(of_queue=30_000))
    for number in range(10_000):
        bench.park(f"a {number}", matches=TagFilter.parse(f"t{number}"))
        bench.park(f"{number} b", group=str(number), matches=TagFilter.parse("b"), queue_id=1)
    for _ in range(4_000):
        assert bench.arrive(tag="other", queue_id=1) == []
        assert bench.arrive("%RETRY%g_t", tag="other", queue_id=1) == []
    assert asked == []
    assert bench.arrive(tag="t7", queue_id=1) == ["a 7"]
    assert bench.arrive("%RETRY%g_t", tag="t8") == ["a 8"]


def test_of_those_with_different_filters_the_longest_wait_comes_first() -> None:
    bench = Bench()
    bench.park("x", matches=TagFilter.parse("X||Y"))
    bench.park("sql", matches=SqlFilter("n > 5"))
    bench.park("all")
    bench.park("y", matches=TagFilter.parse("Y"))
    woke = [bench.arrive(tag="Y", properties=b"n\x017\x02") for _ in range(5)]
    assert woke == [["x"], ["sql"], ["all"], ["y"], []]


def test_thousands_that_are_woken_at_once_run_again_a_slice_at_a_time() -> None:
    bench = Bench(PopLimits(of_queue=10_000))
    names = [str(number) for number in range(5 * WAKE_POPS)]
    for name in names:
        bench.park(name)
    bench.hold.release_all()
    woke = list(bench.woke)
    assert len(woke) == WAKE_POPS
    while bench.hold.waking:
        woke += bench.wake()
    assert woke == [f"{name}*" for name in names]


@pytest.mark.trio
async def test_thousands_whose_deadlines_come_at_once_are_answered_a_slice_at_a_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(PopLimits(of_queue=10_000))
    now = trio.current_time()
    for number in range(3 * EXPIRE_POPS):
        bench.park(str(number), deadline=now + 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.hold.run)
        await trio.sleep(1 + TICK_S)
        nursery.cancel_scope.cancel()
    assert max(bench.slices) == WAKE_POPS
    assert bench.woke == [f"{number}*" for number in range(3 * EXPIRE_POPS)]


def test_a_peer_that_closes_leaves_its_places_to_others() -> None:
    bench = Bench(PopLimits(of_queue=2))
    gone, here = Peer(), Peer()
    assert bench.park("gone", peer=gone)
    assert bench.park("here", peer=here)
    assert not bench.park("no room")
    bench.hold.closed(gone)
    assert bench.hold.count("t", "g", ALL_QUEUES, "pop") == 1
    assert bench.park("another")
    assert bench.arrive() == ["here"]


def test_when_all_places_are_taken_who_has_most_is_answered_for_good() -> None:
    bench = Bench(PopLimits(HoldLimits(total=4)))
    greedy = Peer()
    for number in range(4):
        bench.park(f"greedy {number}", peer=greedy)
    assert not bench.park("greedy 4", peer=greedy)
    assert bench.park("new")
    assert bench.wake() == ["greedy 0*"]
    assert (greedy.held, bench.hold.parked) == (3, 4)
