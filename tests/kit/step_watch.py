"""The real broker with a clock on each step of its loop, the CPU clock of the loop's own thread.

`python -m tests.kit.step_watch FILE broker run …` is `aerobee broker run …` that writes, when it
ends, one line per step of at least KEEP_MS to FILE: monotonic seconds, CPU ms, the task. A step is
what a task of the loop does between two of its waits; nobody else gets a turn meanwhile. What
others do to the machine does not count in it, only what the loop itself computed or made the kernel
do; the collector of cyclic garbage runs inside of steps and is told apart by its own lines.

The CPU clock of a virtual machine goes on while the host runs others: a loop that does nothing but
read it sees jumps of 70 ms. `StolenTime` beside it knows when that was, and how much.
"""

import gc
import os
import signal
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import trio

from tests.kit.broker_process import BrokerProcess
from tests.kit.odd_broker import ODD_BROKER, become

KEEP_MS = 2.0
"""Shorter steps are not worth a line."""
SAMPLE_S = 0.001
"""How often the stack is looked at, when `STACKS` asks for it."""
STACKS = "STEP_WATCH_STACKS"
"""In the environment: also say where the long steps were."""
STACK_AFTER_MS = 5.0
LOOK_S = 0.01
"""How often the stolen time is read."""
LATE_S = 0.02
"""By how much the kernel may be late to account for it: two ticks."""
FRAMES = 6


class Step(NamedTuple):
    """One long step of the loop."""

    at_s: float
    """Monotonic seconds of its end."""
    cpu_ms: float
    task: str
    """The task, or `gc` with the generation for a collection inside a step."""


def steps_in(path: Path) -> list[Step]:
    """The steps a broker has written. Raises: OSError before it has ended."""
    lines = (line.split(" ", 2) for line in path.read_text().splitlines())
    return [Step(float(at), float(cpu), task) for at, cpu, task in lines]


def stolen_s() -> float:
    """What the host kept from all processors so far: the eighth number of the first line."""
    with Path("/proc/stat").open() as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class StolenTime(threading.Thread):
    """Looks how much time the host takes from this machine, until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.looks: list[tuple[float, float]] = [(time.monotonic(), stolen_s())]
        """When it looked, and how much was taken so far. Of looks that saw the same only the first
        and the last are kept: in an hour there are many."""

    def run(self) -> None:
        while not self.over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Once more."""
        look = time.monotonic(), stolen_s()
        if len(self.looks) > 1 and self.looks[-2][1] == self.looks[-1][1] == look[1]:
            self.looks[-1] = look
        else:
            self.looks.append(look)

    def within(self, step: Step) -> float:
        """Milliseconds that were taken while this step ran, or shortly before or after."""
        first = bisect_left(self.looks, (step.at_s - step.cpu_ms / 1_000 - LATE_S,))
        last = bisect_left(self.looks, (step.at_s + LATE_S,))
        _, before = self.looks[max(0, first - 1)]
        _, after = self.looks[min(last, len(self.looks) - 1)]
        return (after - before) * 1_000


@dataclass(slots=True, kw_only=True)
class SteppedBroker(BrokerProcess):
    """A broker process whose long steps can be read after it has stopped."""

    @property
    def steps_path(self) -> Path:
        """Where the steps of the last run are."""
        return self.data.parent / f"{self.data.name}.steps"

    def command(self) -> list[str]:
        """As `BrokerProcess`, through this module."""
        python, _, _, *rest = super(SteppedBroker, self).command()
        return [python, "-m", "tests.kit.step_watch", str(self.steps_path), *rest]


class _StepClock(trio.abc.Instrument):
    """Notes the steps. One line costs a tuple; a short step two readings of the clock."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.stacks: Counter[tuple[str, str]] = Counter()
        self.began = 0.0
        self.collected = 0.0
        self.task = ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.task = task.name
        self.began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        cpu_ms = (time.thread_time() - self.began) * 1_000
        if cpu_ms >= KEEP_MS:
            self.steps.append(Step(time.monotonic(), cpu_ms, task.name))

    def collector(self, phase: str, info: dict[str, int]) -> None:
        """For `gc.callbacks`."""
        if phase == "start":
            self.collected = time.thread_time()
            return
        cpu_ms = (time.thread_time() - self.collected) * 1_000
        if cpu_ms >= KEEP_MS:
            self.steps.append(Step(time.monotonic(), cpu_ms, f"gc {info['generation']}"))

    def sample(self, number: int, frame: FrameType | None) -> None:
        """For SIGPROF: where a step is that has lasted long already."""
        if (time.thread_time() - self.began) * 1_000 < STACK_AFTER_MS:
            return
        names: list[str] = []
        while frame is not None and len(names) < FRAMES:
            code = frame.f_code
            names.append(f"{code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        self.stacks[self.task, " < ".join(names)] += 1

    def write(self, path: Path) -> None:
        """All of it."""
        lines = [f"{at:.6f} {cpu:.3f} {task}\n" for at, cpu, task in self.steps]
        path.write_text("".join(lines))
        if self.stacks:
            told = [f"{n} {task}: {where}\n" for (task, where), n in self.stacks.most_common(60)]
            path.with_suffix(".stacks").write_text("".join(told))


def main() -> None:
    """Patch the runner and run the command line."""
    from aerobee.cli.main import main as aerobee

    path = Path(sys.argv.pop(1))
    if way := os.environ.get(ODD_BROKER):
        become(way)
    clock = _StepClock()
    run = trio.run

    def watched(*args: Any, **kwargs: Any) -> object:
        gc.callbacks.append(clock.collector)
        if STACKS in os.environ:
            signal.signal(signal.SIGPROF, clock.sample)
            signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
        try:
            return run(*args, instruments=[clock], **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            clock.write(path)

    setattr(trio, "run", watched)  # noqa: B010 - the broker looks it up when it starts
    aerobee()


if __name__ == "__main__":
    main()
