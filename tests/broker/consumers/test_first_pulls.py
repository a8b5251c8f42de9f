"""The first pulls of a group after a start: whoever is ahead of the log goes back."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aerobee.broker.consumers import first_pulls
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.consumers.first_pulls import WITHIN_MS, FirstPulls

GROUP = ("g", "t", 0)
CONSUMER, TOOL, OTHER = 1, 2, 3
"""Numbers of connections."""


def begun(*, committed: int = 40, end: int = 50, group: str = "g") -> ConsumerOffsetTable:
    """The offsets of a broker that has just started, with a queue that ends at `end`."""
    offsets = ConsumerOffsetTable()
    offsets.commit(group, "t", 0, committed, 0)
    for _ in offsets.clamp(offsets.first_pulls.begin(lambda *_: end, 0)):
        pass
    return offsets


def commit(
    offsets: ConsumerOffsetTable,
    offset: int,
    connection: int,
    *,
    end: int = 100,
    consumes: bool = False,
) -> bool:
    """A commit, as the requests that commit make it; `end` is the present one of the queue."""
    may = offsets.early_commit(GROUP, offset, connection, end, consumes=consumes)
    return may and offsets.commit(*GROUP, offset, 0)


def pull(offsets: ConsumerOffsetTable, offset: int, connection: int = CONSUMER) -> int | None:
    """Where a pull is sent back to; None: it gets what it asks for."""
    offsets.first_pull(GROUP, offset, connection, 0)
    return offsets.take_reset(*GROUP)


@pytest.mark.parametrize(
    ("committed", "asked", "sent_back"),
    [
        (40, 40, None),
        (40, 50, None),
        (40, 51, 40),
        (50, 51, 50),
        (70, 90, 50),
        (0, 51, 0),
        (-1, 51, None),
    ],
)
def test_a_first_pull_behind_the_end_of_the_start_goes_back_to_what_was_committed(
    committed: int, asked: int, sent_back: int | None
) -> None:
    offsets = begun(committed=committed)
    with capture_logs() as logs:
        assert pull(offsets, asked) == sent_back
    assert [entry["event"] for entry in logs] == ["consumer_offset.beyond"] * (
        sent_back is not None
    )
    assert pull(offsets, 60) is None, "only the first one of a connection is looked at"


def test_a_consumer_is_not_believed_since_another_one_has_pulled_the_queue() -> None:
    """The queue was the other one's for a moment: whoever has it last goes on where it was."""
    offsets = begun()
    assert pull(offsets, 40, CONSUMER) is None
    commit(offsets, 45, CONSUMER)
    assert pull(offsets, 90, OTHER) == 45


def test_a_consumer_that_has_not_heard_of_it_goes_back_over_its_next_connection() -> None:
    offsets = begun()
    assert pull(offsets, 90, CONSUMER) == 40
    assert pull(offsets, 90, OTHER) == 40


def test_a_queue_that_moves_later_goes_on_where_it_was_committed() -> None:
    offsets = begun()
    assert pull(offsets, 40, CONSUMER) is None
    commit(offsets, 60, CONSUMER)
    assert pull(offsets, 60, OTHER) is None


def test_what_a_consumer_that_left_has_committed_is_not_where_the_next_one_goes_on() -> None:
    offsets = begun()
    commit(offsets, 80, CONSUMER, consumes=True)
    assert pull(offsets, 80, OTHER) == 40


@pytest.mark.parametrize("consumes", [True, False])
def test_a_commit_behind_the_present_end_is_not_stored(*, consumes: bool) -> None:
    offsets = begun()
    assert not commit(offsets, 80, CONSUMER, end=79, consumes=consumes)
    assert offsets.query(*GROUP) == 40
    assert commit(offsets, 80, TOOL, end=80)


def test_the_queues_of_a_topic_made_again_are_others() -> None:
    offsets = begun()
    commit(offsets, 80, CONSUMER)
    offsets.first_pulls.forget("t")
    offsets.commit(*GROUP, 10, 0)
    assert pull(offsets, 60) is None


def test_commits_of_a_consumer_that_has_to_go_back_are_not_kept() -> None:
    offsets = begun()
    assert commit(offsets, 80, CONSUMER), "nobody knows yet"
    offsets.first_pull(GROUP, 90, CONSUMER, 0)
    assert not commit(offsets, 90, CONSUMER)
    assert offsets.take_reset(*GROUP) == 40
    assert offsets.query(*GROUP) == 40


def test_an_early_commit_within_the_log_is_where_it_goes_on() -> None:
    offsets = begun()
    commit(offsets, 45, CONSUMER)
    assert pull(offsets, 51) == 45


def test_what_a_tool_has_committed_was_meant() -> None:
    offsets = begun()
    commit(offsets, 80, TOOL)
    assert pull(offsets, 80) is None
    assert offsets.query(*GROUP) == 80


def test_a_reset_by_an_administrator_stands() -> None:
    offsets = begun()
    offsets.reset(*GROUP, 10, 0)
    assert pull(offsets, 90) == 10


def test_other_groups_and_queues_are_believed() -> None:
    offsets = begun()
    for other in [("h", "t", 0), ("g", "u", 0), ("g", "t", 1)]:
        offsets.first_pull(other, 90, CONSUMER, 0)
    assert not offsets.resets


def test_the_marks_of_a_spark_sink_are_no_offsets() -> None:
    offsets = begun(group="SPARK_SINK_1", committed=900)
    mark = ("SPARK_SINK_1", "t", 0)
    assert offsets.early_commit(mark, 901, CONSUMER, 100, consumes=False)
    offsets.first_pull(("SPARK_SINK_1", "t", 0), 90, CONSUMER, 0)
    assert not offsets.resets


def test_after_some_minutes_all_are_believed() -> None:
    offsets = begun()
    offsets.first_pulls.expire(WITHIN_MS - 1)
    assert offsets.first_pulls.awaited
    offsets.first_pulls.expire(WITHIN_MS)
    assert not offsets.first_pulls.awaited


def test_no_crowd_of_groups_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_pulls, "QUEUES_MAX", 2)
    offsets = begun()
    for group in ("a", "b"):
        offsets.first_pull((group, "t", 0), 90, CONSUMER, 0)
    assert pull(offsets, 90) is None


def test_no_crowd_of_groups_that_commit_fills_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_pulls, "QUEUES_MAX", 1)
    offsets = begun()
    offsets.early_commit(("a", "t", 0), 80, CONSUMER, 100, consumes=False)
    commit(offsets, 80, CONSUMER)
    assert pull(offsets, 90) is None, "it is believed, as nothing is known of it"


def test_nobody_is_awaited_before_a_start() -> None:
    assert not FirstPulls().awaited
