"""What is out in order: blocked, acknowledged, visible again, counted; and its file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.pop.pop_orders import OffsetIllegal, PopOrderTable

JAVA = {
    "orderedConsumptionLevel": "QUEUE",
    "table": {
        "t@g": {
            "0": {
                "popTime": 1000,
                "i": 60000,
                "o": [5, 1, 3],
                "ot": {"6": 9000},
                "oc": {"5": 2},
                "l": 1000,
                "cm": 1,
                "a": "attempt",
            }
        }
    },
}


def table_with(*offsets: int, pop_time: int = 1_000, attempt: str | None = None) -> PopOrderTable:
    table = PopOrderTable()
    hand_out(table, *offsets, pop_time=pop_time, attempt=attempt)
    return table


def hand_out(
    table: PopOrderTable, *offsets: int, pop_time: int, attempt: str | None = None
) -> tuple[dict[int, int], int]:
    counts = table.hand_out(
        "t", "g", 0, offsets, attempt_id=attempt, pop_time=pop_time, invisible_ms=60_000
    )
    return dict(counts.by_offset), counts.least


@given(st.lists(st.integers(0, 4), unique=True))
def test_the_offset_moves_to_the_first_that_is_not_acknowledged(acked: list[int]) -> None:
    offsets = [3, 4, 7, 9, 10]
    table = table_with(*offsets)
    following = 3
    for number in acked:
        following = table.acknowledge("t", "g", 0, offsets[number], 1_000) or -1
    left = [offset for number, offset in enumerate(offsets) if number not in acked]
    assert following == (left[0] if left else 11)
    assert bool(table.blocked_until("t", "g", 0, None, 2_000)) == bool(left)


def test_a_stale_receipt_changes_nothing_and_a_wrong_offset_is_an_error() -> None:
    table = table_with(3, 4)
    changes = table.changes
    assert table.acknowledge("t", "g", 0, 3, 999) is None
    with pytest.raises(OffsetIllegal):
        table.acknowledge("t", "g", 0, 5, 1_000)
    table.hide("t", "g", 0, 3, 999, 5)
    assert table.changes == changes
    assert table.acknowledge("t", "g", 7, 3, 1_000) is None, "2 may not be done, nobody knows"


def test_a_queue_is_free_when_the_last_of_it_is_visible() -> None:
    table = table_with(3, 4)
    assert table.blocked_until("t", "g", 0, None, 60_999) == 61_000
    assert table.blocked_until("t", "g", 0, None, 61_000) == 0
    table.hide("t", "g", 0, 4, 1_000, 90_000)
    assert table.blocked_until("t", "g", 0, None, 61_000) == 90_000
    table.hide("t", "g", 0, 4, 1_000, 2_000)
    table.acknowledge("t", "g", 0, 3, 1_000)
    assert table.blocked_until("t", "g", 0, None, 2_000) == 0


def test_a_clock_that_went_back_hides_nothing_for_longer_than_was_asked_for() -> None:
    year_ms = 366 * 86_400_000
    table = table_with(3, 4, pop_time=year_ms)
    assert table.blocked_until("t", "g", 0, None, 5_000) == 65_000
    assert table.blocked_until("t", "g", 0, None, 64_999) == 65_000
    table.hide("t", "g", 0, 4, year_ms, 90_000)
    assert table.blocked_until("t", "g", 0, None, 65_000) == 90_000
    assert table.blocked_until("t", "g", 0, None, 90_000) == 0


def test_deliveries_are_counted_by_message_and_the_same_attempt_is_none() -> None:
    table = table_with(3, 4, attempt="a")
    assert hand_out(table, 3, 4, pop_time=2_000, attempt="a") == ({}, 0)
    assert hand_out(table, 3, 4, pop_time=3_000, attempt="b") == ({3: 1, 4: 1}, 1)
    assert hand_out(table, 4, 5, pop_time=4_000) == ({4: 2}, 0)
    assert hand_out(table, 4, 5, pop_time=5_000) == ({4: 3, 5: 1}, 1)


def test_the_file_of_the_java_broker_is_read_and_written_as_it_is() -> None:
    table = PopOrderTable()
    table.load(JAVA)
    batch = table.get("t", "g", 0)
    assert batch is not None
    assert batch.offsets == [5, 6, 8]
    assert batch.next_offset() == 6
    assert table.blocked_until("t", "g", 0, "attempt", 0) == 0
    assert json.loads(json.dumps(table.document())) == JAVA


@pytest.mark.parametrize(
    "queues", [[], {"0": []}, {"0": {}}, {"x": {"popTime": 1}}, {"0": {"popTime": "now"}}]
)
def test_a_file_that_is_none_changes_nothing(queues: object) -> None:
    table = table_with(3)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        table.load({"table": {"t@g": queues}})
    assert table.get("t", "g", 0) is not None


def test_what_nobody_popped_for_a_day_is_forgotten() -> None:
    table = table_with(3)
    visible_ms = 61_000
    list(table.expire(lambda moment_ms: visible_ms + 24 * 3_600_000 - moment_ms))
    assert table.batches
    list(table.expire(lambda moment_ms: visible_ms + 24 * 3_600_000 + 1 - moment_ms))
    assert not table.batches


def test_what_is_hidden_for_longer_than_a_day_is_not_forgotten_before() -> None:
    table = table_with(3, 4)
    day_ms = 24 * 3_600_000
    table.hide("t", "g", 0, 4, 1_000, 3 * day_ms)
    list(table.expire(lambda moment_ms: 2 * day_ms - moment_ms))
    assert table.blocked_until("t", "g", 0, None, 2 * day_ms) == 3 * day_ms
    assert table.acknowledge("t", "g", 0, 3, 1_000) == 4
    list(table.expire(lambda moment_ms: 4 * day_ms - moment_ms))
    assert table.batches
    list(table.expire(lambda moment_ms: 4 * day_ms + 1 - moment_ms))
    assert not table.batches


def test_a_batch_of_a_group_made_anew_outlives_the_expiry_of_the_old_one() -> None:
    table = table_with(3)
    expiry = table.expire(lambda moment_ms: 10 * 24 * 3_600_000 if moment_ms < 100_000 else 0)
    next(expiry)
    table.delete_group("g")
    hand_out(table, 0, pop_time=200_000)
    list(expiry)
    assert table.blocked_until("t", "g", 0, None, 200_001)


def test_all_batches_go_at_once() -> None:
    table = table_with(3, 4)
    before = table.changes
    table.forget_all()
    assert table.blocked_until("t", "g", 0, None, 1_001) == 0
    assert table.changes > before
