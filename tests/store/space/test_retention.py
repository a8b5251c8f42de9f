"""What the plan of a clean-up lets go, and what no clock can make it let go."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.config import StoreConfig
from aerobee.store.space.retention import (
    START_DISTRUST_S,
    AgeMeter,
    Deletion,
    Level,
    LogFile,
    Reason,
    hours_of,
    is_due,
    plan,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
SIZE = 4_096
ALL = 1 << 62
CONFIG = StoreConfig()


def row(*ages_h: float, newest_h: float | None = None) -> list[LogFile]:
    """Segments modified so many hours ago, oldest first."""
    return [
        LogFile(
            number * SIZE,
            SIZE,
            NOW - round(age * HOUR),
            NOW - round((age if newest_h is None else newest_h) * HOUR),
        )
        for number, age in enumerate(ages_h)
    ]


def decide(
    files: list[LogFile],
    level: Level = Level.ROOM,
    *,
    excess: int = 0,
    keep_from: int = ALL,
    elapsed: AgeMeter | None = None,
    crowded: bool = False,
    **changes: object,
) -> list[Deletion]:
    config = StoreConfig(**changes)  # type: ignore[arg-type]  # as the test names them
    elapsed = elapsed or AgeMeter(NOW, 0.0)
    return plan(
        files, elapsed, config, level, excess_bytes=excess, keep_from=keep_from, crowded=crowded
    )


def starts(deletions: list[Deletion]) -> list[int]:
    return [deletion.file.start // SIZE for deletion in deletions]


def test_what_is_older_than_the_retention_goes_oldest_first() -> None:
    assert starts(decide(row(100, 80, 73, 71, 0))) == [0, 1, 2]


def test_the_first_segment_that_stays_ends_the_plan() -> None:
    assert starts(decide(row(100, 10, 100, 0))) == [0]


def test_the_last_segment_never_goes() -> None:
    assert starts(decide(row(1_000, 1_000))) == [0]
    assert decide(row(1_000)) == []
    assert decide(row(1_000), Level.FULL, excess=ALL) == []
    assert decide([]) == []


def test_a_segment_goes_when_both_its_dates_are_old() -> None:
    assert decide(row(100, 0, newest_h=10)) == [], "a copy that kept its old date"
    young = [file._replace(mtime_ms=NOW) for file in row(100, 100)]
    assert decide(young) == [], "touched since, as after `cp`"
    unknown = [file._replace(newest_ms=-1) for file in row(100, 100)]
    assert starts(decide(unknown)) == [0], "without a record the date of the file decides"


def test_one_pass_takes_no_more_than_its_batch() -> None:
    assert len(decide(row(*[100] * 30))) == 10
    assert len(decide(row(*[100] * 30), delete_file_batch_max=3)) == 3


def test_what_is_still_needed_stays_even_on_a_full_disk() -> None:
    files = row(100, 100, 100, 100)
    assert starts(decide(files, Level.FULL, excess=ALL, keep_from=2 * SIZE)) == [0, 1]
    assert starts(decide(files, Level.FULL, excess=ALL, keep_from=2 * SIZE - 1)) == [0]


def test_above_the_forcible_limit_young_segments_go_until_the_excess_is_gone() -> None:
    files = row(5, 4, 3, 2, 1)
    forced = decide(files, Level.FORCED, excess=SIZE + 1)
    assert starts(forced) == [0, 1]
    assert {deletion.reason for deletion in forced} == {Reason.SPACE}
    assert decide(files, Level.FORCED, excess=0) == [], "what readers hold makes up for it"
    assert decide(files, Level.HIGH, excess=ALL) == []
    assert decide(files, Level.FULL, excess=ALL, clean_file_forcibly_enable=False) == []


def test_expired_segments_count_towards_the_excess() -> None:
    mixed = decide(row(100, 4, 3, 0), Level.FORCED, excess=2 * SIZE)
    assert [deletion.reason for deletion in mixed] == [Reason.EXPIRED, Reason.SPACE]


@given(
    st.lists(st.integers(0, 200), max_size=30),
    st.sampled_from(Level),
    st.integers(0, 40 * SIZE),
    st.integers(0, 40 * SIZE),
)
def test_a_plan_is_always_a_beginning_of_the_log_and_never_all_of_it(
    ages: list[int], level: Level, excess: int, keep_from: int
) -> None:
    files = row(*ages)
    found = starts(decide(files, level, excess=excess, keep_from=keep_from))
    assert found == list(range(len(found)))
    assert len(found) <= min(10, max(0, len(files) - 1), keep_from // SIZE)


# ── Archives ──


def marked(*ages_h: float, without: int) -> list[LogFile]:
    """As `row`; all are archived but one."""
    files = row(*ages_h)
    return [file._replace(archived=at != without) for at, file in enumerate(files)]


def test_a_segment_without_its_archive_stays_and_so_do_those_behind_it() -> None:
    files = marked(100, 90, 80, 0, without=1)
    assert starts(decide(files, wait_for_archive=True)) == [0]
    assert starts(decide(files)) == [0, 1, 2], "nobody waits unless told to"


def test_on_a_crowded_disk_expired_segments_go_without_their_archive() -> None:
    files = marked(100, 90, 3, 0, without=1)
    found = decide(files, Level.HIGH, crowded=True, wait_for_archive=True)
    assert [deletion.missed_archive for deletion in found] == [False, True]
    assert starts(found) == [0, 1], "as usual: what is not expired stays"


def test_a_disk_that_is_too_full_takes_young_segments_without_their_archive() -> None:
    files = marked(5, 4, 3, without=0)
    found = decide(files, Level.FORCED, excess=1, crowded=True, wait_for_archive=True)
    assert found == [Deletion(files[0], Reason.SPACE, missed_archive=True)]


def test_a_level_that_nobody_knows_is_not_enough() -> None:
    files = marked(100, 0, without=0)
    assert decide(files, Level.HIGH, wait_for_archive=True) == []


# ── When ──


def test_hours_are_read_as_people_write_them() -> None:
    assert hours_of("04") == {4}
    assert hours_of("04;16") == {4, 16}
    assert hours_of("04; 16;") == {4, 16}


def test_a_pass_is_due_by_the_hour_for_space_or_on_request() -> None:
    assert is_due(CONFIG, Level.ROOM, 4, manual=False)
    assert not is_due(CONFIG, Level.ROOM, 5, manual=False)
    assert is_due(CONFIG, Level.HIGH, 5, manual=False)
    assert is_due(CONFIG, Level.ROOM, 5, manual=True)


# ── Clocks ──


class Clocks:
    """Both clocks of a machine, looked at every ten seconds."""

    def __init__(self) -> None:
        self.wall = NOW
        self.monotonic = 0.0
        self.elapsed = AgeMeter(NOW, 0.0)

    def run(self, hours: float) -> None:
        """Time passes, and is looked at."""
        self.wall += round(hours * HOUR)
        self.monotonic += hours * 3_600
        assert self.elapsed.look(self.wall, self.monotonic) == 0

    def jump(self, hours: float) -> None:
        self.wall += round(hours * HOUR)
        assert self.elapsed.look(self.wall, self.monotonic) == round(hours * HOUR)

    def age_h(self, moment_ms: int) -> float:
        return self.elapsed.age_ms(moment_ms) / HOUR


@pytest.mark.parametrize("jump", [1, -1, 120, -120])
def test_no_jump_makes_anything_expire(jump: int) -> None:
    clocks = Clocks()
    files = row(71, 48, 24, 1, 0)
    clocks.jump(jump)
    assert decide(files, elapsed=clocks.elapsed) == []
    clocks.run(0.5)
    assert decide(files, elapsed=clocks.elapsed) == []


def test_time_that_was_skipped_never_counts_and_time_that_passes_does() -> None:
    clocks = Clocks()
    clocks.jump(120)
    assert clocks.age_h(NOW - HOUR) == 1
    clocks.run(10)
    assert clocks.age_h(NOW - HOUR) == 11
    written = clocks.wall
    clocks.run(5)
    assert clocks.age_h(written) == 5, "written after the jump: its own clock is right"


def test_an_hour_there_and_back_leaves_nothing() -> None:
    clocks = Clocks()
    clocks.jump(1)
    clocks.run(2)
    between = clocks.wall
    clocks.jump(-1)
    assert clocks.age_h(NOW - HOUR) == 3
    assert clocks.age_h(between) == -1, "it looks younger, and stays longer"


def test_a_step_back_and_forth_again_makes_nothing_older_than_it_is() -> None:
    clocks = Clocks()
    clocks.jump(-120)
    between = clocks.wall
    clocks.run(1)
    clocks.jump(120)
    assert clocks.age_h(between) == 1


def test_a_machine_without_a_clock_ages_its_files_rightly_once_it_knows_the_time() -> None:
    elapsed = AgeMeter(0, 0.0)
    old = NOW - 100 * HOUR
    assert elapsed.age_ms(old) < 0
    elapsed.look(NOW, 10.0)
    assert elapsed.age_ms(old) == 100 * HOUR, "written under the right clock of an earlier run"
    assert elapsed.age_ms(4_000) == 6_000, "written in this run, six seconds ago"


def test_slewing_is_no_jump() -> None:
    elapsed = AgeMeter(NOW, 0.0)
    assert elapsed.look(NOW + 10_005, 10.0) == 0
    assert elapsed.look(NOW + 24_000, 20.0) == 0


def test_the_gap_before_a_start_is_distrusted_for_an_hour() -> None:
    elapsed = AgeMeter(NOW, 50.0, last_alive_ms=NOW - 5 * DAY)
    assert elapsed.age_ms(NOW - 6 * DAY) == DAY
    elapsed.look(NOW + round(START_DISTRUST_S) * 1_000, 50.0 + START_DISTRUST_S)
    assert elapsed.age_ms(NOW - 6 * DAY) == 6 * DAY + HOUR


def test_a_clock_that_stands_before_the_last_record_at_the_start_deletes_nothing() -> None:
    elapsed = AgeMeter(NOW, 0.0, last_alive_ms=NOW + DAY)
    assert elapsed.age_ms(NOW + DAY) == -DAY
    assert elapsed.age_ms(NOW - DAY) == DAY


steps = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(-10 * DAY, 10 * DAY)), min_size=1, max_size=90
)


@given(steps, st.integers(0, 89))
def test_nothing_is_ever_older_than_the_time_that_passed_since(
    played: list[tuple[int, int]], at: int
) -> None:
    """Small drifts between two looks aside, whatever the wall clock does."""
    elapsed = AgeMeter(NOW, 0.0)
    wall, passed, written, written_at = NOW, 0, NOW, 0
    for number, (seconds, jump_ms) in enumerate(played):
        passed += seconds * 1_000
        wall = max(1, wall + seconds * 1_000 + jump_ms)
        elapsed.look(wall, passed / 1_000)
        if number == at:
            written, written_at = wall, passed
    drift = 5_000 * len(played)
    assert elapsed.age_ms(written) <= passed - written_at + drift


def test_the_memory_of_jumps_is_bounded() -> None:
    elapsed = AgeMeter(NOW, 0.0)
    for count in accumulate([1] * 500):
        elapsed.look(NOW + count * HOUR, 0.0)
    assert len(elapsed.skips) <= 64
    assert elapsed.age_ms(NOW) == 0
