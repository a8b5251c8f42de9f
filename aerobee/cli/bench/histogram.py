"""Counts latencies in buckets whose width grows with the value, with three exact digits.

As in HdrHistogram, each power of two has the same number of buckets, so memory does not grow with
the number of values, and the largest are as exact as the smallest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

BUCKET_BITS = 10
"""1,024 buckets in each power of two: an error below 0.1 %."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)


class Histogram:
    """A distribution of times, in microseconds."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def add(self, value_us: int) -> None:
        """Count one value."""
        value_us = max(0, value_us)
        self.buckets[bucket_of(value_us)] += 1
        self.count += 1
        self.sum_us += value_us
        self.max_us = max(self.max_us, value_us)

    def percentile(self, percent: float) -> int:
        """The smallest bound that this share of the values does not exceed; 0 without values."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(upper_bound(bucket), self.max_us)
        return self.max_us

    def in_ms(self, percentiles: Iterable[float] = PERCENTILES) -> dict[str, Any]:
        """Mean, percentiles and maximum, in ms, under their usual names."""
        mean = self.sum_us / self.count / 1000 if self.count else 0.0
        named = {f"p{percent:g}_ms": self.percentile(percent) / 1000 for percent in percentiles}
        return {"mean_ms": mean, **named, "max_ms": self.max_us / 1000}


def bucket_of(value: int) -> int:
    """The index of a value's bucket; larger values have larger ones."""
    shift = max(0, value.bit_length() - BUCKET_BITS - 1)
    return (shift << (BUCKET_BITS + 1)) + (value >> shift)


def upper_bound(bucket: int) -> int:
    """The largest value of a bucket."""
    shift, value = divmod(bucket, 1 << (BUCKET_BITS + 1))
    return ((value + 1) << shift) - 1
