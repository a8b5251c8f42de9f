"""Long polling: who wakes, when, and how often. Time is virtual."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import passes
from aerobee.broker.holds.deadlines import STALE_DEADLINES
from aerobee.broker.holds.quota import HoldLimits
from aerobee.broker.pull.hold import (
    DEADLINE_TICK_S,
    EXPIRE_PULLS,
    SWEEP_S,
    WAKE_PULLS,
    HeldPull,
    Hold,
)
from aerobee.store.files.disk import Disk
from aerobee.store.format.tags import TagFilter, tags_code
from tests.kit.store_model import ManualClock, Sent, batch_body, draft, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.broker.filters.subscription import Filter

QUEUE = ("orders", 3)


class Peer:
    """A connection is asked whether it is still there, and told how many of its pulls are held."""

    def __init__(self) -> None:
        self.closed = False
        self.held = 0
        self.lane = self


class Bench:
    """A hold over one queue whose end the test moves, and the names of the pulls that woke."""

    def __init__(
        self, limits: HoldLimits | None = None, flush: Callable[[], None] = lambda: None
    ) -> None:
        self.end = 5
        self.hold = Hold(
            lambda topic, queue_id: self.end if (topic, queue_id) == QUEUE else 0,
            limits or HoldLimits(),
            flush,
        )
        self.woke: list[str] = []

    def park(
        self,
        name: str,
        *,
        at: int = 5,
        tags: str | None = None,
        sql: str | None = None,
        deadline: float = 100.0,
        peer: Peer | None = None,
        group: str = "g",
        weight: int = 1,
        matches: Filter | None = None,
    ) -> bool:
        matches = matches if tags is None else TagFilter.parse(tags)
        matches = matches if sql is None else SqlFilter(sql)
        connection = peer or Peer()
        held = HeldPull(
            connection=connection,
            group=group,
            queue=QUEUE,
            queue_offset=at,
            matches=matches,
            deadline=deadline,
            resume=lambda: self.woke.append(name),
            weight=weight,
        )
        return self.hold.park(held)

    def arrive(
        self,
        tags: str | None = None,
        *,
        topic: str = QUEUE[0],
        queue_id: int = QUEUE[1],
        properties: bytes = b"",
    ) -> bool:
        self.end += 1
        return self.hold.arrived(topic, queue_id, self.end, tags_code(tags), 0, properties)

    def sweep(self) -> None:
        """As `run` does it, with nobody in between."""
        list(self.hold.sweep())
        self.hold.wake()


def test_an_arrival_wakes_the_pulls_of_its_queue_only_at_the_end_of_the_round() -> None:
    bench = Bench()
    bench.park("one")
    bench.arrive(queue_id=4)
    bench.arrive(topic="other")
    bench.hold.wake()
    assert bench.woke == []
    bench.arrive()
    assert bench.woke == [], "messages of one round are answered together"
    bench.hold.wake()
    assert bench.woke == ["one"]


def test_an_arrival_wakes_the_pulls_whose_filter_wants_its_properties() -> None:
    bench = Bench()
    bench.park("more", sql="price > 10")
    bench.park("less", sql="price < 10")
    bench.park("all")
    bench.arrive(properties=b"price\x01x\x02")
    bench.hold.wake()
    assert bench.woke == ["all"]
    bench.arrive(properties=b"region\x01n\x02price\x0112\x02")
    bench.hold.wake()
    assert bench.woke == ["all", "more"]
    bench.sweep()
    assert bench.woke == ["all", "more", "less"], "its progress is moved by the sweep"


def test_a_pull_wakes_once_however_many_messages_come() -> None:
    bench = Bench()
    bench.park("one")
    for _ in range(3):
        bench.arrive()
    bench.hold.wake()
    bench.hold.expire(1000.0)
    bench.sweep()
    assert bench.woke == ["one"]
    assert bench.hold.parked == 0


def test_an_arrival_says_whether_anybody_waits_for_the_next() -> None:
    bench = Bench()
    bench.park("all")
    bench.park("paid only", tags="paid")
    assert bench.arrive(queue_id=4)
    assert not bench.arrive(tags="open")
    assert bench.arrive(tags="paid")
    bench.hold.wake()
    assert bench.woke == ["all", "paid only"]


def test_a_filtered_pull_sleeps_through_messages_it_does_not_want() -> None:
    bench = Bench()
    bench.park("paid only", tags="paid")
    bench.park("all")
    bench.arrive("sent")
    bench.hold.wake()
    assert bench.woke == ["all"]
    bench.arrive("paid")
    bench.hold.wake()
    assert bench.woke == ["all", "paid only"]


def test_a_sweep_moves_a_consumer_past_messages_it_does_not_want() -> None:
    bench = Bench()
    bench.park("paid only", tags="paid")
    bench.arrive("sent")
    bench.sweep()
    assert bench.woke == ["paid only"]


def test_a_message_below_the_asked_offset_wakes_nobody() -> None:
    bench = Bench()
    bench.park("ahead", at=9)
    bench.arrive()
    bench.sweep()
    assert bench.woke == []


def test_a_peer_that_closes_leaves_nothing_and_is_never_answered() -> None:
    bench = Bench(HoldLimits(total=1))
    peer = Peer()
    bench.park("gone", peer=peer)
    bench.hold.closed(peer)
    assert bench.hold.parked == 0
    assert peer.held == 0
    assert bench.park("next")
    bench.hold.expire(1000.0)
    assert bench.woke == ["next"]


def test_a_pull_that_was_woken_is_not_answered_when_its_peer_closes_before_the_round_ends() -> None:
    bench = Bench()
    peer = Peer()
    bench.park("gone", peer=peer)
    bench.arrive()
    peer.closed = True
    bench.hold.closed(peer)
    bench.hold.wake()
    assert bench.woke == []


def test_one_connection_holds_no_more_than_its_share() -> None:
    bench = Bench(HoldLimits(of_connection=2))
    peer = Peer()
    assert [bench.park(str(number), peer=peer) for number in range(3)] == [True, True, False]
    assert bench.park("other")


def test_one_group_holds_no_more_than_its_share() -> None:
    bench = Bench(HoldLimits(of_group=2))
    assert [bench.park(str(number)) for number in range(3)] == [True, True, False]
    assert bench.park("other", group="h")


def test_when_all_places_are_taken_who_has_most_gives_way_and_no_other() -> None:
    bench = Bench(HoldLimits(total=10))
    greedy, modest = Peer(), Peer()
    for number in range(8):
        bench.park(f"greedy {number}", peer=greedy)
    for number in range(2):
        bench.park(f"modest {number}", peer=modest)
    assert not bench.park("greedy 8", peer=greedy)
    assert bench.park("new")
    assert bench.park("modest 2", peer=modest)
    bench.hold.wake()
    assert bench.woke == ["greedy 0", "greedy 1"], "the longest wait first"
    assert (greedy.held, modest.held, bench.hold.parked) == (6, 3, 10)


def test_a_pull_with_a_long_filter_takes_as_many_places_as_it_costs() -> None:
    bench = Bench(HoldLimits(total=10, of_connection=6))
    peer = Peer()
    assert bench.park("long", peer=peer, weight=5)
    assert not bench.park("long too", peer=peer, weight=2)
    assert bench.park("short", peer=peer)
    assert bench.park("other", weight=4)
    assert bench.park("displaces", weight=3)
    bench.hold.wake()
    assert bench.woke == ["long"]


def test_answered_pulls_leave_nothing_behind() -> None:
    bench = Bench()
    for number in range(STALE_DEADLINES * 4):
        bench.park(str(number), at=bench.end)
        bench.arrive()
        bench.hold.wake()
    assert len(bench.woke) == STALE_DEADLINES * 4
    assert len(bench.hold.deadlines) <= STALE_DEADLINES + 2


def test_everything_is_released_when_the_broker_stops() -> None:
    bench = Bench()
    bench.park("one")
    bench.park("two", tags="x")
    bench.hold.release_all()
    assert sorted(bench.woke) == ["one", "two"]


def test_many_that_wait_for_one_message_are_answered_a_slice_at_a_time_in_their_order() -> None:
    bench = Bench()
    names = [str(number) for number in range(3 * WAKE_PULLS)]
    for name in names:
        bench.park(name)
    bench.arrive()
    bench.hold.wake()
    assert bench.woke == names[:WAKE_PULLS]
    assert bench.hold.waking
    bench.arrive()
    bench.hold.wake()
    bench.hold.wake()
    assert bench.woke == names
    assert not bench.hold.waking
    assert bench.hold.parked == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Filter | None]:
    """The filters that were asked about a message, one after the other."""
    asked: list[Filter | None] = []

    def counting(matches: Filter | None, code: int, properties: bytes) -> bool:
        asked.append(matches)
        return passes(matches, code, properties)

    monkeypatch.setattr("aerobee.broker.holds.waiting_lines.passes", counting)
    return asked


def test_a_message_is_compared_with_each_filter_once_however_many_pulls_wait(
    asked: list[Filter | None],
) -> None:
    bench = Bench()
    shared = SqlFilter("price > 10")
    for number in range(1_000):
        bench.park(str(number), matches=shared)
    bench.arrive(properties=b"price\x015\x02")
    assert (asked, bench.hold.parked) == ([shared], 1_000)
    bench.arrive(properties=b"price\x0115\x02")
    assert asked == [shared] * 2
    for _ in range(1_000 // WAKE_PULLS + 1):
        bench.hold.wake()
    assert len(bench.woke) == 1_000


def test_a_batch_asks_none_of_thousands_of_filters_that_want_other_tags(
    tmp_path: Path, asked: list[Filter | None]
) -> None:
    """20,000 pulls of one connection made the loop ask 80 million times, for nine seconds."""
    store, _ = open_store(
        tmp_path, Disk(), ManualClock(), mapped_file_size_commit_log_bytes=1 << 20
    )
    bench, peer = Bench(), Peer()
    for number in range(20_000):
        bench.park(str(number), at=0, tags=f"t{number}", peer=peer)
    told: list[int] = []

    def arrived(
        topic: str, queue_id: int, max_offset: int, code: int, stored: int, properties: bytes
    ) -> bool:
        told.append(max_offset)
        return bench.hold.arrived(*QUEUE, max_offset, code, stored, properties)

    store.arrivals.add(arrived)
    other = Sent(b"", b"TAGS\x01other\x02")
    store.put_batch(draft(), batch_body([other] * 4_000))
    store.put(draft(properties=b"TAGS\x01t7\x02"))
    assert not store.dispatch()
    assert told == [*range(1, 4_002)]
    assert asked == []
    bench.hold.wake()
    assert bench.woke == ["7"]


def test_a_pull_that_asked_for_more_is_passed_over_and_woken_by_its_message() -> None:
    bench = Bench()
    bench.park("behind", at=5)
    bench.park("ahead", at=7)
    for woke in ["behind"], ["behind"], ["behind", "ahead"]:
        bench.arrive()
        bench.hold.wake()
        assert bench.woke == woke


def test_a_woken_pull_whose_deadline_comes_before_its_turn_is_answered_once() -> None:
    bench = Bench()
    for number in range(2 * WAKE_PULLS):
        bench.park(str(number))
    bench.arrive()
    bench.hold.wake()
    bench.hold.expire(1000.0)
    while bench.hold.waking:
        bench.hold.wake()
    assert len(bench.woke) == len(set(bench.woke)) == 2 * WAKE_PULLS


def test_a_woken_pull_keeps_its_place_until_its_turn_and_goes_with_its_peer() -> None:
    bench, peer = Bench(), Peer()
    for number in range(WAKE_PULLS):
        bench.park(str(number))
    bench.park("gone", peer=peer)
    bench.arrive()
    bench.hold.wake()
    assert (bench.hold.parked, peer.held) == (1, 1)
    peer.closed = True
    bench.hold.closed(peer)
    bench.hold.wake()
    assert "gone" not in bench.woke
    assert (bench.hold.parked, peer.held) == (0, 0)


def test_who_parks_again_for_the_next_message_is_not_mixed_up_with_who_was_woken() -> None:
    bench = Bench()
    for number in range(2 * WAKE_PULLS):
        bench.park(str(number))
    bench.arrive()
    bench.hold.wake()
    bench.park("again", at=bench.end)
    while bench.hold.waking:
        bench.hold.wake()
    assert "again" not in bench.woke
    bench.arrive()
    bench.hold.wake()
    assert bench.woke[-1] == "again"


@pytest.mark.trio
async def test_the_service_goes_on_with_those_that_a_round_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.hold.run)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(10 * WAKE_PULLS):
            bench.park(str(number))
        bench.arrive()
        bench.hold.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert len(bench.woke) == 10 * WAKE_PULLS
        assert trio.current_time() == began, "nobody waits for the next tick"
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_an_idle_pull_is_answered_at_its_deadline_not_at_the_next_sweep(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flushed: list[float] = []
    bench = Bench(flush=lambda: flushed.append(trio.current_time()))
    start = trio.current_time()
    bench.park("fifteen", deadline=start + 15)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.hold.run)
        await trio.sleep(15 - 2 * DEADLINE_TICK_S)
        assert bench.woke == []
        await trio.sleep(4 * DEADLINE_TICK_S)
        assert bench.woke == ["fifteen"]
        nursery.cancel_scope.cancel()
    assert flushed, "what became ready is sent"


@pytest.mark.trio
async def test_thousands_whose_deadlines_come_at_once_do_not_wait_for_further_ticks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    steps: list[int] = []
    bench = Bench(flush=lambda: steps.append(len(bench.woke)))
    start = trio.current_time()
    for number in range(5 * EXPIRE_PULLS):
        bench.park(str(number), deadline=start + 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.hold.run)
        await trio.sleep(1 + 1.5 * DEADLINE_TICK_S)
        nursery.cancel_scope.cancel()
    assert bench.woke == [str(number) for number in range(5 * EXPIRE_PULLS)]
    assert max(after - before for before, after in pairwise(steps)) <= WAKE_PULLS


@pytest.mark.trio
async def test_the_sweep_comes_every_five_seconds(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench()
    bench.park("paid only", tags="paid")
    bench.arrive("sent")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.hold.run)
        await trio.sleep(SWEEP_S - 2 * DEADLINE_TICK_S)
        assert bench.woke == []
        await trio.sleep(4 * DEADLINE_TICK_S)
        assert bench.woke == ["paid only"]
        nursery.cancel_scope.cancel()


def test_a_connection_knows_how_many_of_its_pulls_are_held() -> None:
    bench, peer = Bench(), Peer()
    bench.park("one", peer=peer)
    bench.park("two", peer=peer, tags="A")
    assert peer.held == 2
    bench.arrive("B")
    bench.hold.wake()
    assert peer.held == 1
    bench.hold.release_all()
    assert peer.held == 0
