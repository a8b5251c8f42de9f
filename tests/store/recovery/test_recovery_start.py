"""Where recovery begins to walk: decisions as values."""

import pytest

from aerobee.store.recovery.recovery_start import FirstRecord, abnormal_start, normal_start

NEWEST_FIRST = [
    FirstRecord(8_192, 0),
    FirstRecord(4_096, 2_000),
    FirstRecord(2_048, 1_500),
    FirstRecord(0, 1_000),
]
"""Segments by their first record; the last one was made ahead, and has none."""


@pytest.mark.parametrize(
    ("reach", "start"), [(9_000, 4_096), (4_096, 4_096), (4_095, 2_048), (0, 0), (-1, 0)]
)
def test_after_a_stop_it_is_the_newest_segment_that_queues_reach_into(
    reach: int, start: int
) -> None:
    assert normal_start(NEWEST_FIRST, reach) == start


@pytest.mark.parametrize(
    ("timestamp", "start"),
    [(5_000, 4_096), (2_000, 4_096), (1_999, 2_048), (1_000, 0), (999, 0), (0, 0)],
)
def test_after_a_crash_it_is_the_newest_segment_that_begins_before_what_may_be_lost(
    timestamp: int, start: int
) -> None:
    assert abnormal_start(NEWEST_FIRST, timestamp) == start


def test_without_segments_it_is_the_begin() -> None:
    assert normal_start([], 100) == abnormal_start([], 100) == 0


def test_where_the_checkpoint_is_before_all_it_is_the_oldest_segment() -> None:
    cleaned = [FirstRecord(12_288, 3_000), FirstRecord(8_192, 2_500)]
    assert abnormal_start(cleaned, 1) == normal_start(cleaned, 0) == 8_192
