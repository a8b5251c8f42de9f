"""100,000 delays, and 100,000 timers, due at once while 64 producers send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench.beside_java.figures import AT_LEAST, AT_MOST, Row, Target
from bench.beside_java.sides import DEFAULTS, attempt
from bench.timers import DELAYED, burst, delays, produce
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.beside_java.figures import Report
    from bench.beside_java.sides import Plan
    from bench.timers import Delivered

COUNT = 100_000


def due_at_once(plan: Plan, report: Report) -> None:
    """Both rows. The figures are absolute, so Java is not asked."""
    targets = (Target("late_s", AT_MOST, 5, over=""), Target("share", AT_LEAST, 0.8, over=""))
    for name, deliver in (("delays", delays), ("timers", burst)):
        row = Row(f"{COUNT:,} {name} due at once, 64 producers sending", targets)
        attempt(plan, report, row, partial(measure, plan, deliver=deliver))


def measure(plan: Plan, row: Row, deliver: Callable[..., Delivered]) -> None:
    """Each interpreter and build on a broker of its own, one turn after the other."""
    for side, python in plan.pythons.items():
        data = plan.place() / "data"
        with BrokerProcess(data=data, settings=DELAYED | DEFAULTS, python=python) as broker:
            produce(broker)
            for _ in range(1 if plan.quick else 2):
                seen = deliver(broker, COUNT, beside=True)
                turn = {"late_s": seen.late_s, "share": seen.rate / seen.alone, "rate": seen.rate}
                row.add(side, turn)
