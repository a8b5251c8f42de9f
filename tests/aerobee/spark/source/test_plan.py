import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aerobee.errors import DataLossError
from aerobee.spark.offsets import Offsets, Queue
from aerobee.spark.source.plan import (
    Loss,
    LossCause,
    Range,
    backlog,
    carried,
    checked,
    coalesce,
    interleave,
    limit_of,
    limited,
    partitions_of,
    ranges_of,
    refuse,
    split,
    waits,
)

OFFSET = st.integers(0, 2**40)


def queue(number: int, broker: str = "a") -> Queue:
    return Queue("t", broker, number)


def a_range(size: int, number: int = 0, broker: str = "a", start: int = 100) -> Range:
    return Range("t", broker, ("h:1",), number, start, start + size)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """A start and an end at or after it."""
    bounds = draw(st.lists(st.tuples(OFFSET, st.integers(0, 2**20)), min_size=1, max_size=30))
    start = {queue(number): first for number, (first, _) in enumerate(bounds)}
    end = {queue(number): first + size for number, (first, size) in enumerate(bounds)}
    return start, end


# ── How far a batch goes ──


@given(batches(), st.integers(1, 2**21))
def test_a_limited_batch_never_exceeds_limit_and_end_and_starves_nobody(
    batch: tuple[Offsets, Offsets], limit: int
) -> None:
    start, end = batch
    chosen = limited(start, end, limit)
    assert list(chosen) == sorted(end)
    for one in end:
        assert start[one] <= chosen[one] <= end[one]
        assert chosen[one] > start[one] or end[one] == start[one], "a queue was starved"
    full = [one for one in end if end[one] > start[one]]
    assert backlog(start, chosen) <= max(limit, 0) + len(full)


@given(batches(), st.integers(1, 1000))
def test_limited_batches_get_to_the_end(batch: tuple[Offsets, Offsets], limit: int) -> None:
    start, end = batch
    end = {one: min(offset, start[one] + 2000) for one, offset in end.items()}
    rounds = 0
    while start != end:
        start = limited(start, end, limit)
        rounds += 1
    assert rounds <= 30 * 2000 + 1


def test_the_limit_is_shared_out_by_what_waits_rounded_down_but_at_least_one() -> None:
    start = {queue(0): 0, queue(1): 10, queue(2): 0}
    end = {queue(0): 800, queue(1): 209, queue(2): 1}
    assert limited(start, end, 100) == {queue(0): 80, queue(1): 29, queue(2): 1}


def test_a_queue_with_nothing_new_stays_where_it_is() -> None:
    start, end = {queue(0): 5, queue(1): 9}, {queue(0): 50, queue(1): 9}
    assert limited(start, end, 10) == {queue(0): 15, queue(1): 9}


def test_a_limit_in_bytes_counts_records_of_mean_size() -> None:
    assert limit_of(None, None) is None
    assert limit_of(500, None, 100.0) == 500
    assert limit_of(500, 10_000, 100.0) == 100
    assert limit_of(50, 10_000, 100.0) == 50
    assert limit_of(None, 10, 100.0) == 1, "or the stream would stand still"
    assert limit_of(None, 1 << 20) == 1024


def test_a_batch_waits_for_its_least_size_but_not_forever_and_not_the_first() -> None:
    assert waits(9, 10, 5.0, 60.0)
    assert not waits(10, 10, 5.0, 60.0)
    assert not waits(9, 10, 60.0, 60.0)
    assert not waits(0, 10, None, 60.0)
    assert not waits(0, None, 5.0, 60.0)


def test_a_queue_that_is_out_of_the_route_is_carried_over() -> None:
    start = {queue(1, "b"): 7, queue(0): 3}
    assert carried(start, {queue(0): 9}) == {queue(0): 9, queue(1, "b"): 7}
    assert list(carried(start, {})) == sorted(start)


def test_a_frozen_target_leaves_later_queues_for_the_next_run() -> None:
    target = {queue(0): 10}
    assert carried({queue(0): 4}, target) == target
    assert carried({}, target) == target


# ── What is lost ──


def test_nothing_is_lost_within_the_bounds_of_the_queue() -> None:
    found = checked({queue(0): 3}, {queue(0): 9}, {queue(0): 3}, {queue(0): 9}, fail=True)
    assert found == ({queue(0): 3}, {queue(0): 9}, ())


@pytest.mark.parametrize(
    ("start", "end", "low", "high", "left", "lost"),
    [
        (3, 9, 5, 9, (5, 9), (3, 5, LossCause.EXPIRED)),
        (3, 9, 20, 30, (9, 9), (3, 9, LossCause.EXPIRED)),
        (None, 9, 5, 9, (5, 9), (0, 5, LossCause.EXPIRED)),
        (3, 9, 0, 6, (3, 6), (6, 9, LossCause.CUT)),
        (8, 9, 0, 6, (6, 6), (6, 9, LossCause.CUT)),
        (8, 6, 0, 6, (6, 6), (6, 8, LossCause.CUT)),
        (8, 8, 0, 6, (6, 6), (6, 8, LossCause.CUT)),
        (20, 10, 0, 30, (10, 10), (10, 20, LossCause.MOVED)),
    ],
)
def test_what_the_queue_does_not_have_is_lost(
    start: int | None,
    end: int,
    low: int,
    high: int,
    left: tuple[int, int],
    lost: tuple[int, int, LossCause],
) -> None:
    starts = {} if start is None else {queue(0): start}
    bounds = ({queue(0): low}, {queue(0): high})
    found = checked(starts, {queue(0): end}, *bounds, fail=False)
    assert (found.start[queue(0)], found.end[queue(0)]) == left
    assert found.losses == (Loss(queue(0), *lost),)
    with pytest.raises(DataLossError):
        checked(starts, {queue(0): end}, *bounds, fail=True)


def test_both_ends_can_be_lost_at_once() -> None:
    found = checked({queue(0): 3}, {queue(0): 9}, {queue(0): 5}, {queue(0): 7}, fail=False)
    assert (found.start, found.end) == ({queue(0): 5}, {queue(0): 7})
    assert {loss.lost for loss in found.losses} == {LossCause.EXPIRED, LossCause.CUT}


def test_bounds_of_a_broker_that_is_down_are_not_checked() -> None:
    assert checked({queue(0): 3}, {queue(0): 9}, {}, {}, fail=True).losses == ()


def test_an_error_names_queue_offsets_and_remedy() -> None:
    losses = [Loss(queue(number), 3, 5, LossCause.EXPIRED) for number in range(7)]
    with pytest.raises(DataLossError) as caught:
        refuse(losses)
    said = str(caught.value)
    assert "queue 0 of topic t on broker a: offsets [3, 5): they expired" in said
    assert "and 2 more" in said
    assert said.count("fileReservedTime") == 1
    assert "failOnDataLoss=false" in said
    with pytest.raises(DataLossError, match=r"startingOffsets=committed.*stateLocation"):
        refuse([Loss(queue(0), 10, 20, LossCause.MOVED)])
    refuse([])


BOUND = st.integers(0, 50)


@given(BOUND, BOUND, BOUND, BOUND)
def test_what_is_left_lies_within_both_the_batch_and_the_queue(
    start: int, end: int, low: int, high: int
) -> None:
    assume(low <= high)
    one = queue(0)
    found = checked({one: start}, {one: end}, {one: low}, {one: high}, fail=False)
    first, last = found.start[one], found.end[one]
    assert first <= last
    if first < last:
        assert max(start, low) <= first
        assert last <= min(end, high)
        assert (first, last) == (max(start, low), min(end, high)), "something readable was left out"
    lost = {at for loss in found.losses for at in range(loss.start, loss.end)}
    assert set(range(start, end)) - set(range(first, last)) <= lost


# ── Ranges and partitions ──


@given(
    st.lists(st.integers(0, 5000), max_size=12),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 700),
)
def test_parts_cover_the_ranges_exactly(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    if most is not None:
        most = max(most, max(sizes, default=0) // 50)
    ranges = [a_range(size, number) for number, size in enumerate(sizes)]
    parts = split(ranges, least, most)
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    for one in ranges:
        of_one = [part for part in parts if part.queue == one.queue]
        edges = [part.start for part in of_one] + [one.end]
        assert [part.end for part in of_one] == edges[1:]
        assert not one.size or edges[0] == one.start


def test_long_ranges_are_cut_in_proportion_and_short_ones_set_aside() -> None:
    parts = split([a_range(1, 0), a_range(1000, 1), a_range(3000, 2)], min_partitions=5)
    assert [part.size for part in parts] == [1, 1000, 1000, 1000, 1000]


def test_enough_ranges_are_not_cut() -> None:
    ranges = [a_range(10, 0), a_range(1000, 1)]
    assert split(ranges, min_partitions=2) == ranges


def test_a_range_is_not_cut_below_its_records() -> None:
    assert [part.size for part in split([a_range(3)], min_partitions=10)] == [1, 1, 1]


def test_a_long_range_is_cut_evenly_below_the_most_of_a_task() -> None:
    assert [part.size for part in split([a_range(10)], max_records=4)] == [3, 3, 4]


def test_brokers_take_turns() -> None:
    ranges = [a_range(1, number, broker) for broker in "ab" for number in range(3)]
    ranges.append(a_range(1, 3, "b"))
    turns = [(one.broker, one.queue_id) for one in interleave(ranges)]
    assert turns == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3)]


def test_many_tiny_ranges_share_partitions_and_few_do_not() -> None:
    few = [a_range(5, number) for number in range(8)]
    assert coalesce(few) == [(one,) for one in few]
    many = [a_range(5, number, "ab"[number % 2]) for number in range(9)]
    (shared,) = coalesce(many)
    assert [one.broker for one in shared] == [*"aaaaabbbb"]
    long = a_range(1000, 9)
    assert coalesce([*many, long])[0] == (long,)


@given(st.lists(st.integers(1, 1500), max_size=60))
def test_nothing_is_lost_by_sharing(sizes: list[int]) -> None:
    ranges = [a_range(size, number) for number, size in enumerate(sizes)]
    partitions = coalesce(ranges)
    assert sorted(one for partition in partitions for one in partition) == sorted(ranges)
    assert all(partitions)
    for partition in partitions:
        assert len(partition) == 1 or sum(one.size for one in partition) < 1000


def test_a_plan_puts_together_only_where_no_number_of_tasks_was_asked_for() -> None:
    ranges = [a_range(5, number) for number in range(9)]
    assert len(partitions_of(ranges)) == 1
    assert len(partitions_of(ranges, 9)) == 9
    assert len(partitions_of(ranges, 18)) == 9 * 2
    assert partitions_of([]) == []


def test_ranges_leave_out_what_is_empty() -> None:
    start, end = {queue(0): 3, queue(1): 5}, {queue(1): 9, queue(0): 3}
    (one,) = ranges_of(start, end, {queue(0): ("h:1",), queue(1): ["h:1", "g:2"]})
    assert one == Range("t", "a", ("h:1", "g:2"), 1, 5, 9)
    assert one.size == 4
