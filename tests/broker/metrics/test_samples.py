from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.metrics.samples import HOUR, MINUTE, Growth, Samples


def noted(*counts: int) -> Samples:
    samples = Samples()
    for count in counts:
        samples.note("TOPIC_PUT", "t", MINUTE, count, 100 * count)
    return samples


def test_a_new_counter_began_at_zero_one_period_earlier() -> None:
    growth = noted(30).growth("TOPIC_PUT", "t")
    assert growth == Growth(30, 3_000, 10)
    assert (growth.per_s, growth.bytes_per_s) == (3.0, 300.0)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=30))
def test_a_window_holds_seven_samples_and_tells_the_growth_between_the_first_and_the_last(
    steps: list[int],
) -> None:
    counts = [sum(steps[: number + 1]) for number in range(len(steps))]
    growth = noted(*counts).growth("TOPIC_PUT", "t")
    window = [0, *counts][-7:]
    assert growth == Growth(
        window[-1] - window[0], 100 * (window[-1] - window[0]), 10 * (len(window) - 1)
    )


def test_windows_do_not_mix() -> None:
    samples = noted(1, 2, 3)
    assert samples.growth("TOPIC_PUT", "t", HOUR) == Growth()
    samples.note("TOPIC_PUT", "t", HOUR, 6, 60)
    assert samples.growth("TOPIC_PUT", "t", HOUR) == Growth(6, 60, 600)
    assert samples.growth("TOPIC_PUT", "t") == Growth(3, 300, 30)


def test_what_never_counted_is_unknown_and_what_is_gone_is_forgotten() -> None:
    samples = noted(0)
    assert samples.growth("TOPIC_PUT", "t") is None
    samples = noted(1)
    samples.begin()
    samples.note("TOPIC_PUT", "t", MINUTE, 2, 20)
    list(samples.forget())
    assert samples.growth("TOPIC_PUT", "t") is not None
    samples.begin()
    list(samples.forget())
    assert samples.growth("TOPIC_PUT", "t") is None


def test_there_is_a_limit() -> None:
    samples = Samples(limit=1)
    samples.note("TOPIC_PUT", "a", MINUTE, 1, 1)
    samples.note("TOPIC_PUT", "b", MINUTE, 1, 1)
    assert list(samples.series) == [("TOPIC_PUT", "a")]
