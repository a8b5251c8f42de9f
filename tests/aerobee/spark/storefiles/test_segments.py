"""Segments, their splits, and which of them are wanted."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aerobee.spark.storefiles.segments import Segment, holes_between, splits_of, within_times


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 3_000))
def test_splits_cover_the_wanted_bytes_once(begin: int, end: int, limit: int, size: int) -> None:
    segment = Segment("x", 1_000, 3_000)
    limit = min(limit, segment.end)
    splits = splits_of(segment, begin, end, limit, size)
    low, high = max(begin, segment.start), min(end, limit)
    if low >= high:
        assert splits == []
        return
    assert (splits[0].begin, splits[-1].end) == (low, high)
    assert all(one.end == two.begin for one, two in pairwise(splits))
    assert all(split.end - split.begin <= size for split in splits)
    assert [split.first for split in splits] == [True] + [False] * (len(splits) - 1)
    assert [split.last for split in splits] == [False] * (len(splits) - 1) + [True]


def test_segments_of_another_time_are_left_out_and_doubtful_ones_are_not() -> None:
    hour = 3_600_000
    firsts = [0, 10 * hour, None, 30 * hour, 40 * hour]
    assert within_times(firsts, None, None) == [True] * 5
    assert within_times(firsts, 12 * hour, None) == [False, True, True, True, True]
    assert within_times(firsts, 35 * hour, None) == [False, True, False, True, True]
    assert within_times(firsts, None, 20 * hour) == [True, True, True, False, False]
    assert within_times(firsts, 10 * hour + 5, None)[0], "a clock may have stepped back"


def test_a_missing_segment_is_seen() -> None:
    row = [Segment("a", 0, 10), Segment("b", 10, 10), Segment("c", 30, 10)]
    assert list(holes_between(row)) == [(row[1], row[2])]
