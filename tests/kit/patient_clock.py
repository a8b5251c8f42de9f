"""A clock for tests with short limits of time: what passes while the process stands still is cut.

A test has it by `pytest.mark.trio(run=run_patiently)`, or as the value of a fixture that it names
as an argument: pytest-trio passes over a clock of `usefixtures`.

It goes as the real one, but a look at it finds at most `STEP_S` more than the look before. A loop
that the machine gives no core for a second has lost a twentieth of one, so a lease of two seconds
lasts as many turns of the loop as on a machine of its own.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.abc import Clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STEP_S: Final = 0.05
"""What one look adds at most."""
SLEEP_S: Final = 0.02
"""How long the loop sleeps at most: a longer sleep would be taken for a pause of the process."""


class PatientClock(Clock):
    """Threads may ask it."""

    def __init__(self, real: Callable[[], float] = time.perf_counter) -> None:
        self._real = real
        self._looked = real()
        self._now = 0.0
        self._lock = Lock()

    def start_clock(self) -> None:
        """What passed before the loop runs does not count either."""
        self._looked = self._real()

    def current_time(self) -> float:
        """Seconds, from 0 on."""
        with self._lock:
            looked = self._real()
            self._now += min(looked - self._looked, STEP_S)
            self._looked = looked
            return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop may sleep for a deadline, in seconds."""
        return min(deadline - self.current_time(), SLEEP_S)


def run_patiently(
    main: Callable[[], Awaitable[Any]], clock: Clock | None = None, **more: Any
) -> Any:
    """Run a test by this clock, unless it has another one."""
    return trio.run(main, clock=clock or PatientClock(), **more)
