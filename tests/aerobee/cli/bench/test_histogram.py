"""Percentiles of a histogram are those of the values themselves, to three digits."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.cli.bench.histogram import PERCENTILES, Histogram, bucket_of, upper_bound


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_percentiles_are_right_to_three_digits(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    ordered = sorted(values)
    for percent in (*PERCENTILES, 100.0):
        exact = ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]
        found = histogram.percentile(percent)
        assert exact <= found <= exact * 1.001 + 1
    assert (histogram.count, histogram.max_us) == (len(values), max(values))


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_larger_values_have_no_smaller_buckets(one: int, two: int) -> None:
    low, high = sorted((one, two))
    assert bucket_of(low) <= bucket_of(high)
    assert upper_bound(bucket_of(high)) >= high


def test_without_values_all_is_nought() -> None:
    found = Histogram().in_ms()
    assert set(found.values()) == {0.0}
    assert next(iter(found)) == "mean_ms"
    assert list(found)[-3:] == ["p99.9_ms", "p99.99_ms", "max_ms"]
