"""The brokers of a comparison, up at the same time, of which one is loaded.

Starting each for each turn would take most of the time, and Java's compiler would begin anew. So
all stay up. Only a broker that a crowd of clients keeps busy stands still, with its crowd, while
others are measured: it rests by SIGSTOP.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.beside_java.figures import OURS, THEIRS, Row
from bench.beside_java.strangers import Stranger
from bench.java_peer import java_broker
from bench.load import DEFAULT_SIZES, LoadFailed
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.beside_java.figures import Report, Turn
    from tests.kit.java_server import JavaBroker
    from tests.kit.process import Child

SETTLE_S = 0.3
"""Between two turns: what the last one left to flush and to index is done meanwhile."""
DEFAULTS = DEFAULT_SIZES | {"waitTimeMillsInSendQueue": None}
"""Settings that take away those of the tests: both brokers run with Java's."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """How much is measured, and until when."""

    runs: int
    seconds: float
    warm_up_s: float
    quick: bool
    java: bool
    pythons: Mapping[str, str]
    """Name of a side → the interpreter of its broker."""
    directory: Path
    """On the file system that is measured."""
    ends_at: float
    only: str = ""
    strangers: Sequence[str] = ()
    """Servers of another kind, in rows that they can be measured in."""
    keep: bool = False
    """One broker of each for all rows of a kind, and not a fresh one for each row."""
    stall_s: float = 60.0

    @property
    def others(self) -> Sequence[str]:
        """The sides with another interpreter than the one that the targets speak of."""
        return [name for name in self.pythons if name != OURS]

    @property
    def environment(self) -> Mapping[str, str]:
        """Of our brokers: as behind an installation their modules are compiled only once, although
        the shell of the bench may say PYTHONDONTWRITEBYTECODE.
        """
        cache = str(self.directory / "bytecode")
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache}

    def place(self) -> Path:
        """A new directory."""
        return Path(tempfile.mkdtemp(dir=self.directory))

    @property
    def left_s(self) -> float:
        """Until the time is up."""
        return self.ends_at - time.monotonic()

    def wants(self, name: str) -> bool:
        """Whether this row is asked for."""
        return self.only in name


@dataclass(slots=True)
class Side:
    """One broker that is up."""

    name: str
    server: BrokerProcess | JavaBroker | Stranger
    crowd: Child | None = None
    """Clients that keep it busy: it rests with them while others are measured."""

    @property
    def broker(self) -> BrokerProcess | JavaBroker:
        """The server, which is no stranger."""
        assert not isinstance(self.server, Stranger), self.name
        return self.server

    @property
    def address(self) -> str:
        """`host:port`."""
        return self.server.address

    @property
    def pid(self) -> int:
        """Of the process that is up now."""
        return self.server.child.pid

    def rest(self) -> None:
        """Stand still, if a crowd keeps it busy."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self.crowd is not None:
            for child in (self.server.child, self.crowd):
                child.signal(number)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The time in which it is the one that is loaded."""
        self._signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        yield
        time.sleep(SETTLE_S)
        self.rest()


@contextmanager
def standing(
    plan: Plan,
    settings: Mapping[str, object] | None = None,
    *,
    start: bool = True,
    java: bool = True,
    strangers: Sequence[str] = (),
) -> Iterator[list[Side]]:
    """All brokers of the plan, and the named strangers, on empty directories; started, or not."""
    place = plan.place()
    given = DEFAULTS | dict(settings or {})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        sides = []
        for name, python in plan.pythons.items():
            data = place / name / "data"
            env = plan.environment
            ours = BrokerProcess(data=data, settings=given, python=python, env=env)
            ours.log.parent.mkdir()
            stack.callback(ours.__exit__, None, None, None)
            sides.append(Side(name, ours))
        if plan.java and java:
            theirs = stack.enter_context(java_broker(place / THEIRS, settings or {}))
            sides.append(Side(THEIRS, theirs))
        sync = given.get("flushDiskType") == "SYNC_FLUSH"
        for name in strangers:
            stranger = Stranger(name, place / name, sync)
            stack.callback(stranger.__exit__, None, None, None)
            sides.append(Side(name, stranger))
        if start:
            for side in sides:
                side.server.start()
        yield sides


def take_turns(
    plan: Plan, sides: Sequence[Side], row: Row, one: Callable[[Side], Turn], *, runs: int = 0
) -> Row:
    """Measure each side as often as planned, or until the time is up; each at least once."""
    for number in range(runs or plan.runs):
        if number and plan.left_s < 0:
            break
        for side in sides:
            with side.turn():
                try:
                    turn = one(side)
                except LoadFailed:
                    # Once more: somebody else had the machine, and sends were refused as late.
                    turn = one(side)
                row.add(side.name, turn)
    return row


def attempt(plan: Plan, report: Report, row: Row, measure: Callable[[Row], object]) -> None:
    """Measure a row that is asked for and report it; what goes wrong is that row's own failure."""
    if not plan.wants(row.name):
        return
    if plan.left_s < 0:
        row.failure = "not measured: the time was up"
    else:
        try:
            measure(row)
        except Exception as error:
            row.failure = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    report.add(row)
