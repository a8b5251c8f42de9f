"""A clock that is wrong for a moment is not followed; one that stays so is."""

from __future__ import annotations

from typing import Final

import pytest

from aerobee.store.wall_time import SETTLE_MS, SLACK_MS, WallTime

NOW_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
NS_OF_MS: Final = 1_000_000
YEARS_MS: Final = 30 * 366 * 24 * HOUR_MS
JUMPS = [sign * size for sign in (1, -1) for size in (SLACK_MS + 1, HOUR_MS, YEARS_MS)]


class Machine:
    """A clock, looked at once a second."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bool]] = []
        self.passed_ms = 5_000
        self.shift_ms = NOW_MS
        self.wall = WallTime(
            lambda: (self.shift_ms + self.passed_ms) * NS_OF_MS,
            lambda: self.passed_ms * NS_OF_MS,
            lambda *news: self.told.append(news),
        )

    def after(self, ms: int) -> int:
        """What counts as the time so much later, in ms since the start by a right clock."""
        self.passed_ms += ms
        return self.wall.now_ms() - NOW_MS - 5_000


def test_a_clock_that_is_right_is_followed_to_the_millisecond() -> None:
    machine = Machine()
    assert [machine.after(700) for _ in range(1_000)] == [*range(700, 700_001, 700)]
    assert machine.told == []


def test_a_clock_that_is_slewed_is_followed() -> None:
    machine = Machine()
    for number in range(1, 10_001):
        machine.shift_ms += 1
        assert machine.after(1_000) == number * 1_001
    assert machine.told == []


def test_the_time_that_passed_is_asked_for_once_in_a_millisecond() -> None:
    machine = Machine()
    asked = 0

    def passed_ns() -> int:
        nonlocal asked
        asked += 1
        return machine.passed_ms * NS_OF_MS

    wall = WallTime(lambda: (machine.shift_ms + machine.passed_ms) * NS_OF_MS, passed_ns)
    for number in range(1, 6):
        machine.passed_ms += 1
        assert {wall.now_ms() for _ in range(10)} == {NOW_MS + machine.passed_ms}
        assert asked == 1 + number
    machine.shift_ms += HOUR_MS
    before = wall.now_ms()
    machine.shift_ms -= HOUR_MS
    assert wall.now_ms() == before == NOW_MS + machine.passed_ms


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_jump_that_is_taken_back_in_time_never_was(jump_ms: int) -> None:
    machine = Machine()
    machine.after(1_000)
    machine.shift_ms += jump_ms
    assert machine.after(0) == 1_000
    assert machine.after(SETTLE_MS - 1) == 1_000 + SETTLE_MS - 1
    machine.shift_ms -= jump_ms
    assert machine.after(10) == 1_000 + SETTLE_MS + 9
    assert machine.after(2 * SETTLE_MS) == 1_000 + 3 * SETTLE_MS + 9
    assert machine.told == [(jump_ms, False)]


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_jump_that_lasts_is_believed_and_said(jump_ms: int) -> None:
    machine = Machine()
    machine.shift_ms += jump_ms
    machine.after(0)
    assert machine.after(SETTLE_MS) == SETTLE_MS + jump_ms
    assert machine.after(1_000) == SETTLE_MS + jump_ms + 1_000
    assert machine.told == [(jump_ms, False), (jump_ms, True)]


def test_each_jump_has_to_last_by_itself() -> None:
    machine = Machine()
    for number in range(100):
        machine.shift_ms += HOUR_MS if number % 3 else -HOUR_MS
        assert machine.after(SETTLE_MS - 1) == (number + 1) * (SETTLE_MS - 1)


def test_after_a_jump_was_doubted_the_same_one_begins_anew() -> None:
    machine = Machine()
    for _ in range(3):
        machine.shift_ms += HOUR_MS
        machine.after(SETTLE_MS // 2)
        machine.shift_ms -= HOUR_MS
        machine.after(SETTLE_MS // 2)
    assert len(machine.told) == 3
    assert not any(believed for _, believed in machine.told)
