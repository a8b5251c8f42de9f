"""A campaign that stops early, or whose failure nobody can repeat, proves nothing."""

import threading
from pathlib import Path

import pytest

from tests.kit.campaign import Campaign, Run, execute


def campaign(run: object) -> Campaign:
    return Campaign(key="T", title="a test", unit="tests", t1=3, t2=9, run=run)  # type: ignore[arg-type]  # each test's own


def draws(seed: int, first: int, cycles: int) -> list[float]:
    drawn: list[float] = []

    def run(run: Run) -> None:
        drawn.extend(cycle.rng.random() for cycle in run.cycles())

    execute(campaign(run), cycles, seed, Path(), first=first).check()
    return drawn


def test_a_cycle_draws_the_same_whether_it_runs_alone_or_among_others() -> None:
    together = draws(7, 0, 5)
    assert len(set(together)) == 5
    assert draws(7, 3, 1) == [together[3]]
    assert draws(8, 0, 5) != together


def test_a_run_of_fewer_cycles_than_asked_has_failed() -> None:
    outcome = execute(campaign(lambda run: run.done(4)), 5, 0, Path())
    assert (outcome.executed, outcome.wanted) == (4, 5)
    with pytest.raises(AssertionError, match="4 of 5 tests"):
        outcome.check()


def test_a_run_goes_on_until_its_minutes_are_over() -> None:
    def run(run: Run) -> None:
        for cycle in run.cycles():
            if cycle.number == 20:
                run.until = 0

    assert execute(campaign(run), 5, 0, Path(), minutes=60).executed == 21


def test_a_failure_says_how_to_repeat_its_cycle() -> None:
    def run(run: Run) -> None:
        for cycle in run.cycles():
            run.counts["seen"] += 1
            assert cycle.number != 2, "lost"

    outcome = execute(campaign(run), 5, 42, Path())
    assert outcome.counts == {"seen": 3}
    with pytest.raises(AssertionError, match="lost") as failed:
        outcome.check()
    assert "--only T --seed 42 --first 2 --cycles 1" in failed.value.__notes__[-1]


def test_what_a_thread_fails_with_fails_the_run() -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    def run(run: Run) -> None:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        run.done(run.wanted)

    with pytest.raises(ValueError, match="in a thread"):
        execute(campaign(run), 5, 0, Path()).check()


def test_a_skip_is_no_failure() -> None:
    def run(_: Run) -> None:
        pytest.skip("no loop mounts here")

    with pytest.raises(pytest.skip.Exception):
        execute(campaign(run), 5, 0, Path())
