"""A crash test that runs at any size: the same code in `make test` and for hours on end.

    def kills(run: Run) -> None:
        broker = ...
        for cycle in run.cycles():          # or: while run.more: ...; run.done()
            ...cycle.rng draws what happens in this cycle, and nothing else does...
            run.counts["acknowledged"] += ...
            run.worst("slowest start ms", ...)

    R1 = Campaign(key="R1", title="kill -9 under load", unit="kills", t1=20, t2=1_000, run=kills)

Everything random in a cycle comes from the seed and the number of the cycle, so that one which
failed can be repeated alone: `python -m tests.torture --only R1 --seed S --first N --cycles 1`.
What a campaign finds wrong it raises; a run that executed fewer cycles than asked has failed, too.
Campaigns are registered in `tests/faults/campaigns.py`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One kind of fault, injected again and again. `key` is its name in the list of targets."""

    key: str
    title: str
    unit: str
    """What a cycle is, in the plural: kills, power cuts, seeds."""
    t1: int
    """Cycles in every test run: seconds."""
    t2: int
    """Cycles of a recorded run."""
    run: Callable[[Run], None]
    java: bool = False
    """Whether it runs Java's brokers; where they cannot run it is skipped."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle: its number, and the source of all that is random in it."""

    number: int
    rng: random.Random


@dataclass(slots=True, kw_only=True)
class Run:
    """What a campaign is given, and where it says what it did."""

    key: str
    seed: int
    directory: Path
    """Empty at the start, and all its own."""
    wanted: int
    """Cycles to execute, at least."""
    first: int = 0
    """The number of the first cycle; others than 0 repeat what failed."""
    until: float = 0.0
    """Cycles go on beyond what is wanted until this time of the monotonic clock."""
    heard: Callable[[Run], None] | None = None
    """Called after every cycle, for whoever shows progress."""
    executed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """What was seen, by name: acknowledged, lost, altered, …"""
    rng: random.Random = field(init=False)
    """For what belongs to no cycle."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.key} {self.seed}")

    @property
    def more(self) -> bool:
        """Whether another cycle is wanted."""
        return self.executed < self.wanted or time.monotonic() < self.until

    @property
    def number(self) -> int:
        """Of the cycle that is being executed."""
        return self.first + self.executed

    def cycle(self, ahead: int = 0) -> Cycle:
        """The cycle that comes now, or so many later; it counts once `done` was called."""
        number = self.number + ahead
        return Cycle(number, random.Random(f"{self.key} {self.seed} {number}"))

    def cycles(self) -> Iterator[Cycle]:
        """All that are wanted; each counts as executed when the next one is asked for."""
        while self.more:
            yield self.cycle()
            self.done()

    def done(self, cycles: int = 1) -> None:
        """So many more were executed, and nothing was wrong."""
        self.executed += cycles
        if self.heard is not None:
            self.heard(self)

    def worst(self, name: str, value: int) -> None:
        """Count the largest value seen."""
        self.counts[name] = max(self.counts[name], value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run went."""

    campaign: Campaign
    seed: int
    wanted: int
    executed: int
    counts: Counter[str]
    duration_s: float
    failure: Exception | None
    """What was wrong; it carries a note that says how to repeat the cycle."""

    def check(self) -> None:
        """Raises: what the run found wrong."""
        if self.failure is not None:
            raise self.failure

    def summary(self) -> str:
        """The counts, for people."""
        return ", ".join(f"{name} {count:,}" for name, count in self.counts.items())


class _Verdict:
    """Keeps what went wrong inside its block, in any thread; what no test may survive goes through.

    What a thread failed with comes first: the rest is mostly its consequence.
    """

    failure: Exception | None = None

    def __enter__(self) -> _Verdict:
        self._others = threading.excepthook
        threading.excepthook = self._heard
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        threading.excepthook = self._others
        if isinstance(error, Exception):
            self.failure = self.failure or error
            return True
        return False

    def _heard(self, seen: threading.ExceptHookArgs) -> None:
        if isinstance(seen.exc_value, Exception):
            self.failure = self.failure or seen.exc_value


def execute(
    campaign: Campaign,
    cycles: int,
    seed: int,
    directory: Path,
    *,
    first: int = 0,
    minutes: float = 0.0,
    heard: Callable[[Run], None] | None = None,
) -> Outcome:
    """Run so many cycles in `directory`, and more until `minutes` are over.

    A skip of pytest goes through, as Ctrl-C does.
    """
    began = time.monotonic()
    run = Run(
        key=campaign.key,
        seed=seed,
        directory=directory,
        wanted=cycles,
        first=first,
        until=began + minutes * 60,
        heard=heard,
    )
    with _Verdict() as verdict:
        campaign.run(run)
        assert run.executed >= cycles, f"{run.executed} of {cycles} {campaign.unit} were executed"
    if verdict.failure is not None:
        again = f"--only {campaign.key} --seed {seed} --first {run.number} --cycles 1"
        note = f"{campaign.key}, cycle {run.number}: repeat with python -m tests.torture {again}"
        verdict.failure.add_note(note)
    return Outcome(
        campaign=campaign,
        seed=seed,
        wanted=cycles,
        executed=run.executed,
        counts=run.counts,
        duration_s=time.monotonic() - began,
        failure=verdict.failure,
    )
