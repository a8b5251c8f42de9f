"""Sends, pulls and pops by the load generator, each side in turn on brokers that stay up."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from bench.beside_java.figures import AT_LEAST, AT_MOST, STRANGERS, Row, Target
from bench.beside_java.sides import attempt, standing, take_turns
from bench.load import SENDS, Case, load
from tests.kit.broker_process import MiB
from tests.kit.health import rss_anon

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.beside_java.figures import Report, Turn
    from bench.beside_java.sides import Plan, Side

TURN_WARM_UP_S = 0.5
"""Of each turn: its connections. Before the first a side has the plan's, under that load."""
FILL_S = 2.0
"""Behind as much that is not counted, in which topics are made."""
FILLED_PER_S = 2_000


class Work(NamedTuple):
    """A row that a generator measures, and what has to lie in the broker before."""

    case: Case
    targets: tuple[Target, ...] = ()
    before: tuple[str, ...] = ()
    strangers: bool = False
    """Whether servers of another kind can do it too."""


def faster(limit: float) -> Target:
    return Target("rate", AT_LEAST, limit)


def shorter(limit: float | None = None) -> Target:
    return Target("p99", AT_MOST, limit)


def cheaper(limit: float | None = None) -> Target:
    return Target("cpu", AT_MOST, limit)


def alike(case: Case, *targets: Target) -> Work:
    """One message after the other, which every server can do."""
    return Work(case, targets, strangers=True)


def pace(name: str, *options: str) -> Case:
    return Case(f"paced: {name}", ("-pace", *options))


PULLS = ("-m", "pull", "-c", "16", "-d", "1")
BATCHES = ("-m", "batch", "-c", "8", "-d", "4", "-s", "128")
MIXED = ("-t", "Mixed", "-topics", "100", "-q", "4")
"""One message after the other to 100 topics in turn: no two neighbours are of one queue."""
POPS = ("-t", "PopBench", "-q", "4")
PIPELINED = ("-m", "produce", "-c", "8", "-d", "32", "-s", "128")

ASYNC_ROWS = (
    alike(Case("produce 128 B, 64 × 1", SENDS), faster(1.8), shorter(0.3), cheaper(0.4)),
    alike(Case("produce 128 B, 8 × 32", PIPELINED), faster(2), cheaper(0.4), shorter()),
    Work(
        Case("produce 1 KiB, 64 × 1", ("-m", "produce", "-c", "64", "-d", "1", "-s", "1024")),
        (faster(2), cheaper(), shorter()),
    ),
    Work(Case("batches of 32 × 128 B, 8 × 4", BATCHES), (faster(1.2), cheaper())),
    Work(Case("pull of 32 × 128 B, one topic, 16 × 1", PULLS), (faster(1.5), cheaper()), BATCHES),
    Work(
        Case("pull of 32 × 128 B, 100 interleaved topics, 16 × 1", (*PULLS, *MIXED)),
        (faster(1), cheaper()),
        (*PIPELINED, *MIXED),
    ),
    Work(
        Case("pop of 32 with one batch acknowledgement, 16 × 1", ("-m", "pop", "-c", "16", *POPS)),
        (faster(1.5), cheaper()),
        (*BATCHES, *POPS),
    ),
    Work(pace("produce 128 B, 512 × 1", "-c", "512"), (faster(1.8), shorter(0.3), cheaper(0.4))),
    Work(
        pace("fixed rate of 5,000/s on 1,000 connections", "-c", "1000", "-r", "5000"),
        (shorter(), cheaper()),
    ),
    Work(
        pace("2,000 connections, think time 400 ms", "-c", "2000", "-think", "400ms"),
        (shorter(), cheaper()),
    ),
)
SYNC_ROWS = (
    alike(Case("SYNC_FLUSH 128 B, 64 × 1", SENDS), faster(2), cheaper(), shorter()),
    alike(
        Case("SYNC_FLUSH 128 B, 1 × 1", ("-m", "produce", "-c", "1", "-d", "1", "-s", "128")),
        *(faster(1.2), cheaper(), shorter()),
    ),
    alike(Case("SYNC_FLUSH 128 B, 8 × 32", PIPELINED), faster(2), cheaper(), shorter()),
)
MEMORY = "private memory"
MEMORY_TARGETS = (Target("load_mb", AT_MOST, 100, over=""), Target("idle_mb", AT_MOST, 50, over=""))


def async_flush(plan: Plan, report: Report) -> None:
    """All rows under ASYNC_FLUSH, and the memory that was seen meanwhile."""
    wanted = [work for work in ASYNC_ROWS if plan.wants(work.case.name)]
    memory = Row(MEMORY, MEMORY_TARGETS)
    if wanted or plan.wants(memory.name):
        take_rows(plan, report, wanted or ASYNC_ROWS[:1], memory)
        attempt(plan, report, memory, lambda _: None)


def sync_flush(plan: Plan, report: Report) -> None:
    """All rows under SYNC_FLUSH."""
    wanted = [work for work in SYNC_ROWS if plan.wants(work.case.name)]
    take_rows(plan, report, wanted, Row(MEMORY, ()), {"flushDiskType": "SYNC_FLUSH"})


def take_rows(
    plan: Plan,
    report: Report,
    works: Sequence[Work],
    memory: Row,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Row after row, on fresh brokers or on brokers that stay up for all of them."""
    with ExitStack() as stack:
        kept = None
        if plan.keep and works:
            kept = stack.enter_context(standing(plan, settings, strangers=plan.strangers))
        for work in works:

            def measure(row: Row, work: Work = work) -> None:
                names = plan.strangers if work.strangers else ()
                fresh = standing(plan, settings, strangers=names)
                with nullcontext(kept) if kept else fresh as every:
                    sides = [side for side in every if side.name not in STRANGERS or names]
                    for side in sides:
                        memory.add(side.name, {"idle_mb": rss_anon(side.pid) / MiB})
                    turn_by_turn(plan, sides, work, row)

            row = Row(work.case.name, work.targets)
            attempt(plan, report, row, measure)
            for name, turns in row.turns.items():
                for turn in turns:
                    memory.add(name, {"load_mb": turn["rss"]})


def turn_by_turn(plan: Plan, sides: list[Side], work: Work, row: Row) -> None:
    """Fill, warm up, and then turn by turn."""
    for side in sides:
        case = spoken(work.case, side)
        with side.turn():
            if work.before:
                filling = Case(f"filling for {work.case.name}", work.before)
                seen = load(side.address, side.pid, filling, FILL_S, warm_up_s=2, errors_max=inf)
                assert seen["rate"] > FILLED_PER_S, f"{side.name} was not filled: {seen}"
            # A cold JVM answers "busy" for a while.
            load(side.address, side.pid, case, 0.1, warm_up_s=plan.warm_up_s, errors_max=inf)

    def one(side: Side) -> Turn:
        case = spoken(work.case, side)
        return load(side.address, side.pid, case, plan.seconds, warm_up_s=TURN_WARM_UP_S)

    take_turns(plan, sides, row, one)


def spoken(case: Case, side: Side) -> Case:
    """The case in the protocol of a side."""
    if side.name not in STRANGERS:
        return case
    return replace(case, options=("-speak", side.name, *case.options))
