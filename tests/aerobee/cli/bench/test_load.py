"""With a rate messages are sent by the clock, whatever anything takes."""

from aerobee.cli.bench.load import Load, Outcome, Schedule
from aerobee.cli.bench.sequence import Checker, Mark


def test_a_rate_is_kept_whatever_the_time_is_now() -> None:
    schedule = Schedule(Load(topic="t", rate=10, count=3), 100.0)
    assert [schedule.next(now) for now in (100.0, 105.0, 105.0)] == [100.0, 100.1, 100.2]
    assert schedule.next(105.0) is None


def test_without_a_rate_the_next_is_now_until_the_time_is_over() -> None:
    schedule = Schedule(Load(topic="t", duration_s=5), 100.0)
    assert schedule.next(101.5) == 101.5
    assert schedule.next(105.0) is None


def test_what_is_too_late_for_the_time_is_not_sent() -> None:
    schedule = Schedule(Load(topic="t", rate=10, duration_s=2, drain_s=3), 100.0)
    assert [schedule.next(now) for now in (100.0, 104.9)] == [100.0, 100.1]
    assert (schedule.next(105.0), schedule.unsent) == (None, 18)


def test_a_number_of_messages_is_sent_however_late() -> None:
    schedule = Schedule(Load(topic="t", rate=10, count=2, duration_s=2, drain_s=3), 100.0)
    assert [schedule.next(1_000.0) for _ in range(3)] == [100.0, 100.1, None]
    assert schedule.unsent == 0


def test_an_outcome_says_what_each_consumer_missed() -> None:
    checkers = [Checker(), Checker()]
    outcome = Outcome(started_s=1.0, ended_s=3.0, sent={(0, 0), (0, 1)}, checkers=checkers)
    for checker in checkers:
        checker.add(Mark(0, 0, 0, 0), "q")
    checkers[0].add(Mark(0, 0, 1, 0), "q")
    assert outcome.checked() == {"lost": 1, "duplicates": 0, "reordered": 0}
    assert outcome.sending(1 << 20)["mib_per_s"] == 1.0
