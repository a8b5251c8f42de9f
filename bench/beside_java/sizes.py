"""The rate with many topics, many connections and a long log, over that of an empty broker.

Brokers of ours in several sizes are up together and are measured in turn. A size is 1,000
topics of 8 queues that are all sent to, 2,000 connections with heartbeats and held pulls, 50 GiB of
log in segments of default size that are sparse but for a few records.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from aerobee.store.files.disk import Disk
from bench.beside_java.figures import AT_LEAST, AT_MOST, OURS, Row, Target
from bench.beside_java.sides import DEFAULTS, Side, attempt, take_turns
from bench.load import SENDS, Case, load
from bench.recovery import write_store
from tests.faults.scale import write_tables
from tests.kit.broker_process import BrokerProcess
from tests.kit.crowd import Crowd, Member

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Handle
    from bench.beside_java.figures import Report, Turn
    from bench.beside_java.sides import Plan

EMPTY = "empty"
TOPICS = (100, 1_000)
CONNECTIONS = (500, 2_000)
GIB = (10, 50)
KINDS = {"topics": TOPICS, "connections": CONNECTIONS, "GiB of log": GIB}
QUEUES = 8
OF_A_HUNDRED = 50
"""Topics that `write_tables` makes of each hundred."""
IDLE_TOPICS = 100
WARM_UP_S = 0.5
STOP_WITHIN_S = 120.0
FIRST_S = 3.0
"""In which all queues get their first message; the stop behind it makes and syncs their files."""


class SparseDisk(Disk):
    """Reserves nothing, so that 50 GiB of log take no room. Only for segments that are full."""

    def fill(self, handle: Handle, size: int) -> None:
        pass


def sizes(plan: Plan, report: Report) -> None:
    """A row for each kind."""
    for kind, steps in KINDS.items():
        largest = f"{steps[-1]:,} {kind}"
        targets = (
            Target("rate", AT_LEAST, 0.9, over=EMPTY, side=largest),
            Target("cpu", AT_MOST, over=EMPTY, side=largest),
        )
        row = Row(f"rate with {largest}", targets)
        attempt(plan, report, row, partial(measure, plan, kind=kind, steps=steps))


def measure(plan: Plan, row: Row, kind: str, steps: Sequence[int]) -> None:
    """An empty broker and one of each size, alternating."""
    cases: dict[str, Case] = {}
    with ExitStack() as stack:
        sides = []
        for size in (0, *steps):
            name = f"{size:,} {kind}" if size else EMPTY
            cases[name] = case_of(kind, size)
            data = plan.place() / "data"
            prepare(data, kind, size)
            broker = BrokerProcess(data=data, settings=DEFAULTS, python=plan.pythons[OURS])
            side = Side(name, stack.enter_context(broker))
            sides.append(side)
            if kind == "topics" and size:
                load(side.address, side.pid, cases[name], FIRST_S, warm_up_s=0, errors_max=inf)
                # Thousands of files are synced, on a disk that others may use as well.
                assert broker.child.stop(within_s=STOP_WITHIN_S) == 0, "no clean stop"
                broker.start()
            if kind == "connections" and size:
                crowd = stack.enter_context(Crowd(side.address, log=data.parent / "crowd.log"))
                crowd.open(members(size))
                side.crowd = crowd.child
            side.rest()

        def one(side: Side) -> Turn:
            seconds = plan.seconds
            return load(side.address, side.pid, cases[side.name], seconds, warm_up_s=WARM_UP_S)

        take_turns(plan, sides, row, one)


def case_of(kind: str, size: int) -> Case:
    """The load: 64 × 1, over all topics if topics are the kind."""
    if kind == "topics" and size:
        return Case(kind, (*SENDS, "-t", "t", "-topics", str(size), "-q", str(QUEUES)))
    return Case(kind, SENDS)


def prepare(data: Path, kind: str, size: int) -> None:
    """Make the directory as it is before the broker starts."""
    if kind == "GiB of log" and size:
        write_store(data, size, 1, SparseDisk())
        write_store(data, 2, 1)
    elif kind == "topics" and size:
        write_tables(data, size // OF_A_HUNDRED)
    elif size:
        write_tables(data, IDLE_TOPICS // OF_A_HUNDRED)


def members(count: int) -> list[Member]:
    """Consumers in groups of 20, each with a held pull on a queue that gets nothing."""
    return [
        Member(f"10.1.0.1@{n}", f"g{n // 20}", f"t{n % IDLE_TOPICS}", (n // IDLE_TOPICS % QUEUES,))
        for n in range(count)
    ]
