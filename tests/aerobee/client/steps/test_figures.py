"""What a member counts, and what of it brokers are told."""

from aerobee.client.steps.figures import Figures


def test_figures_are_of_the_last_minute_and_hour() -> None:
    figures = Figures(began=0.0)
    counts = figures.of("T")
    for now in range(0, 7200, 10):
        counts.calls += 1
        counts.call_s += 0.5
        counts.handled += 20
        counts.failed += 1
        figures.sample(float(now))
        figures.sample(now + 1.0)
    status = figures.status("T", 7190.0)
    assert status.consume_rt == 500.0
    assert status.consume_ok_tps == 2.0
    assert status.consume_failed_msgs == 359
    assert figures.status("other", 7190.0).pull_tps == 0.0
