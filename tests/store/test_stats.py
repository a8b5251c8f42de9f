import pytest

from aerobee.store.stats import SYNC_BOUNDS_S, Durations, StoreStats


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, 0), (0.0002, 0), (0.00021, 1), (5.0, 10), (5.1, 11)]
)
def test_a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass(
    seconds: float, bucket: int
) -> None:
    durations = Durations()
    durations.add(seconds)
    assert durations.counts.index(1) == bucket
    assert durations.count == 1


def test_sum_and_maximum_are_kept() -> None:
    durations = Durations()
    for seconds in (0.5, 2.0, 1.0):
        durations.add(seconds)
    assert (durations.total_s, durations.max_s, durations.count) == (3.5, 2.0, 3)
    assert len(durations.counts) == len(SYNC_BOUNDS_S) + 1


def test_every_counter_begins_at_0() -> None:
    stats = StoreStats()
    for name in StoreStats.__slots__:
        value = getattr(stats, name)
        if name == "recovery":
            value = value.physical_offset
        assert not value or value.count == 0
