"""Time passes as the real one does, but for a process that stands still."""

from __future__ import annotations

import time
from threading import Event

import pytest
import trio

from tests.kit.patient_clock import SLEEP_S, STEP_S, PatientClock, run_patiently


class Real:
    """What the test says is the time."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_of_the_process_is_a_step() -> None:
    real = Real()
    clock = PatientClock(real)
    real.now += 60
    clock.start_clock()
    real.now += STEP_S / 2
    assert clock.current_time() == pytest.approx(STEP_S / 2)
    real.now += 60
    assert clock.current_time() == pytest.approx(STEP_S * 1.5)
    assert clock.deadline_to_sleep_time(clock.current_time() + 9) == SLEEP_S
    assert clock.deadline_to_sleep_time(clock.current_time() - 1) == pytest.approx(-1)


def test_a_loop_sleeps_as_long_as_it_is_told_and_a_pause_ends_no_deadline() -> None:
    async def run() -> None:
        began = time.perf_counter()
        await trio.sleep(0.2)
        assert time.perf_counter() - began >= 0.2
        with trio.move_on_after(0.5) as scope:
            Event().wait(0.6)  # the process is to stand still
            await trio.sleep(0.01)
        assert not scope.cancelled_caught

    trio.run(run, clock=PatientClock())


@pytest.mark.trio(run=run_patiently)
async def test_a_test_with_this_mark_has_it() -> None:
    assert isinstance(trio.lowlevel.current_clock(), PatientClock)
    await trio.lowlevel.checkpoint()
