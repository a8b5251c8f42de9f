"""Prints the tables of bench/README.md from a file of results of `bench.beside_java`.

    python -m bench.tables RESULT

In the order of that page: throughput, latency, memory, start, worst case. A row is one figure of
one kind of work; the first column of figures is Java's, or that of the empty broker in rows that
compare two brokers of ours. With a second interpreter or build in the file each has a column.
Servers of another kind have a table of their own, beside both.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.arguments import program, results
from bench.beside_java.__main__ import rows_of
from bench.beside_java.figures import OURS, STRANGERS, THEIRS, UNITS, Row, Target, current, number
from bench.beside_java.sides import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

THROUGHPUT, LATENCY, MEMORY, START, WORST = (
    "Throughput",
    "Latency",
    "Memory",
    "Start",
    "Worst case",
)
ORDER = (THROUGHPUT, LATENCY, MEMORY, START, WORST)
PARTS = {
    "rate": THROUGHPUT,
    "cpu": THROUGHPUT,
    "p50": LATENCY,
    "p99": LATENCY,
    "idle_mb": MEMORY,
    "load_mb": MEMORY,
    "ready_s": START,
}


def known() -> list[Row]:
    """Every row of a whole comparison."""
    plan = Plan(
        runs=0,
        seconds=0,
        warm_up_s=0,
        quick=False,
        java=False,
        pythons={OURS: ""},
        directory=Path(),
        ends_at=0,
    )
    return rows_of(plan)


def tables(document: Mapping[str, Any]) -> Iterator[str]:
    """Line by line."""
    measured = {current(one["name"]): one for one in document["rows"]}
    sides = [OURS, *document["facts"].get("others", ())]
    parts: dict[str, list[str]] = {name: [] for name in ORDER}
    scale: list[str] = []
    for row in known():
        found = measured.get(row.name)
        if found is None:
            continue
        row.turns, row.failure = found["turns"], found["failure"]
        for target in row.targets:
            part = WORST if target.side != OURS else PARTS.get(target.figure, WORST)
            parts[part].append(line(row, target, sides))
        if any(side in row.turns for side in STRANGERS):
            scale += [scale_line(row, target.figure, sides) for target in row.targets]
    for name, rows in parts.items():
        if rows:
            yield from ("", f"### {name}", "", *head(name, sides), *rows)
    if scale:
        cells = ["work", "Java", *(title(side, sides) for side in sides), "Redis", "NATS"]
        yield from ("", "### Scale", "", f"| {' | '.join(cells)} |", "|" + "---|" * len(cells))
        yield from scale


def scale_line(row: Row, figure: str, sides: Sequence[str]) -> str:
    """One figure of brokers of RocketMQ and of servers of another kind."""
    medians = [row.median(side, figure) for side in (THEIRS, *sides, *STRANGERS)]
    cells = [f"{row.name}: {UNITS[figure]}", *map(number, medians)]
    return f"| {' | '.join(cells)} |"


def head(part: str, sides: Sequence[str]) -> tuple[str, str]:
    """Of the table of a part."""
    base = "empty broker" if part == WORST else "Java"
    shown = [cell for side in sides for cell in (title(side, sides), "ratio (pairs)")]
    met = "met" if len(sides) == 1 else "met by"
    cells = ["work", base, *shown, "target", met]
    return f"| {' | '.join(cells)} |", "|" + "---|" * len(cells)


def title(side: str, sides: Sequence[str]) -> str:
    """`Aerobee` alone; of several sides `pure`, `compiled`, or the interpreter's name."""
    if side == OURS:
        return "Aerobee" if len(sides) == 1 else "pure"
    return "compiled" if "compiled" in side else side


def line(row: Row, target: Target, sides: Sequence[str]) -> str:
    """One figure of all sides."""
    if row.failure:
        return f"| {row.name} | {row.failure} |" + " |" * (2 * len(sides) + 2)
    own = [target] if target.side != OURS else [target._replace(side=side) for side in sides]
    base = row.median(target.over or "java", target.figure)
    cells = [f"{row.name}: {UNITS[target.figure]}", "" if base is None else number(base)]
    for one in own:
        value = row.median(one.side, one.figure)
        cells += ["" if value is None else number(value), one.ratio(row) if base else ""]
    cells += ["", ""] * (len(sides) - len(own))
    return f"| {' | '.join([*cells, target.said(), verdict(row, own, sides)])} |"


def verdict(row: Row, own: Sequence[Target], sides: Sequence[str]) -> str:
    """Which sides meet the target."""
    told = {one.side: one.met(row) for one in own if one.met(row) is not None}
    if not told:
        return ""
    if len(sides) == 1 or len(told) == 1:
        return "met" if all(told.values()) else "**missed**"
    met = [title(side, sides) for side, said in told.items() if said]
    return "**neither**" if not met else "both" if len(met) == len(told) == 2 else ", ".join(met)


@program
def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables")
    parser.add_argument("result", type=results)
    print(*tables(parser.parse_args().result), sep="\n")


if __name__ == "__main__":
    main()
