"""The queue of a message group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.grpc.translation.queue_choice import chosen_queue

GROUPS = [f"order-{number}" for number in range(2_000)]


@given(st.text(max_size=63), st.integers(1, 1_000))
def test_a_group_has_one_queue_that_exists(group: str, queues: int) -> None:
    queue = chosen_queue(group, queues)
    assert 0 <= queue < queues
    assert queue == chosen_queue(group, queues)


def test_without_queues_there_is_none() -> None:
    assert chosen_queue("g", 0) == -1


@given(st.text(max_size=63), st.integers(1, 100))
def test_one_more_queue_moves_a_group_to_it_or_not_at_all(group: str, queues: int) -> None:
    after = chosen_queue(group, queues + 1)
    assert after in (chosen_queue(group, queues), queues)


def test_groups_are_spread_over_the_queues() -> None:
    counts = [0] * 8
    for group in GROUPS:
        counts[chosen_queue(group, 8)] += 1
    assert min(counts) > len(GROUPS) / 8 * 0.75, counts
