"""The measurements of a comparison and their targets: turns, rows, and the file of results.

A turn is one measurement of one side; a row has as many turns of each side, alternating. A target
compares the median of one figure with a limit: the figure itself, or its ratio to another side's.
Where the limit is of the figure itself, Java's figure and the ratio are told all the same.
The file is written again after every row, so a run that is stopped leaves what it has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Turn = dict[str, float]
"""Name of a figure → its value."""

OURS, THEIRS = "aerobee", "java"
REDIS, NATS = "redis", "nats"
STRANGERS = (REDIS, NATS)
"""Servers of another kind, measured for scale."""
AT_LEAST, AT_MOST = "≥", "≤"

UNITS = {
    "rate": "msgs/s",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "cpu": "µs/msg",
    "late_s": "s until all are delivered",
    "share": "producers' rate over that without them",
    "ready_s": "s",
    "idle_mb": "MB idle",
    "load_mb": "MB under load",
    "stall_ms": "ms",
    "good": "stored in time over the peak",
}
ABSOLUTE = {"late_s": " s", "ready_s": " s", "idle_mb": " MB", "load_mb": " MB", "stall_ms": " ms"}
"""Figure → unit behind a limit that is no ratio."""
FORMER = (
    ("rate beside ", "rate with "),
    ("5,000/s by the clock on ", "fixed rate of 5,000/s on "),
    ("connections that think for 400 ms", "connections, think time 400 ms"),
    ("due at once beside 64 producers", "due at once, 64 producers sending"),
)
"""The former names of rows in older files of results, and their present ones."""


def current(name: str) -> str:
    """The name of a row, from a file of results of any age."""
    for former, now in FORMER:
        name = name.replace(former, now)
    return name


class Target(NamedTuple):
    """`figure` of `side`, over that of the side `over` unless that is empty; None: no limit."""

    figure: str
    sense: str = AT_LEAST
    limit: float | None = None
    over: str = THEIRS
    side: str = OURS

    def line(self, row: Row, name: str = "") -> str:
        """One line of the table, under the row's name unless told."""
        unit = UNITS[self.figure]
        cells = [f"{name or row.name}: {unit}", *self._values(row)]
        cells.append(self.said())
        met = self.met(row)
        cells.append("" if met is None else "met" if met else "**missed**")
        return f"| {' | '.join(cells)} |"

    def said(self) -> str:
        """The limit; that of the figure itself has its unit."""
        if self.limit is None:
            return ""
        unit = "" if self.over else ABSOLUTE.get(self.figure, "")
        return f"{self.sense} {self.limit:g}{unit}"

    def value(self, row: Row) -> float | None:
        """The value that is compared with the limit; None where a side was not measured."""
        ours = row.median(self.side, self.figure)
        if not self.over or ours is None:
            return ours
        theirs = row.median(self.over, self.figure)
        return ours / theirs if theirs else None

    def ratio(self, row: Row) -> str:
        """To the other side, or to Java where the limit is of the figure itself."""
        over = self._replace(over=self.over or THEIRS)
        value = over.value(row)
        return "" if value is None else f"{value:.2f} ({row.spread(over)})"

    def met(self, row: Row) -> bool | None:
        """Whether it is; None without limit or value."""
        value = self.value(row)
        if value is None or self.limit is None:
            return None
        return value >= self.limit if self.sense == AT_LEAST else value <= self.limit

    def _values(self, row: Row) -> list[str]:
        ours = row.median(self.side, self.figure)
        theirs = row.median(self.over or THEIRS, self.figure)
        if not self.over and theirs is None:
            return [number(ours), "", ""]
        return [number(ours), number(theirs), self.ratio(row)]


def number(value: float | None) -> str:
    """A figure with as many digits as mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(slots=True)
class Row:
    """One kind of work and what was seen of it."""

    name: str
    targets: Sequence[Target]
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    failure: str = ""

    def add(self, side: str, turn: Mapping[str, float]) -> None:
        """One measurement."""
        self.turns.setdefault(side, []).append(dict(turn))

    def median(self, side: str, figure: str) -> float | None:
        """Of all turns of a side that have the figure."""
        seen = [turn[figure] for turn in self.turns.get(side, ()) if figure in turn]
        return median(seen) if seen else None

    def spread(self, target: Target) -> str:
        """The lowest and the highest ratio of two turns that followed each other."""
        pairs = zip(self.turns.get(target.side, ()), self.turns.get(target.over, ()), strict=False)
        ratios = [
            one[target.figure] / other[target.figure]
            for one, other in pairs
            if target.figure in one and other.get(target.figure)
        ]
        return f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–"


HEAD = """\
| work | Aerobee | compared with | ratio (lowest–highest pair) | target | |
|---|---|---|---|---|---|"""


class Report:
    """Prints rows as they come, and keeps the file of results up to date."""

    def __init__(self, path: Path, facts: Mapping[str, object], others: Sequence[str] = ()) -> None:
        self.path = path
        self.facts = dict(facts)
        self.others = others
        self.rows: list[Row] = []

    def begin(self) -> None:
        """The head of the table."""
        print(HEAD, flush=True)

    def add(self, row: Row) -> None:
        """One row that is complete, or has failed."""
        self.rows.append(row)
        if row.failure:
            print(f"| {row.name} | {row.failure} | | | | |", flush=True)
        else:
            for target in row.targets:
                print(target.line(row), flush=True)
            for target in self._beside(row):
                print(target.line(row, f"{row.name}, {target.side}"), flush=True)
        self.save()

    def _beside(self, row: Row) -> Iterable[Target]:
        """The row's targets once more for each side with another interpreter or build, and how many
        of them it meets is told apart. A stranger has figures and no limits.
        """
        for side in (*self.others, *STRANGERS):
            for target in row.targets:
                if target.side == OURS and row.median(side, target.figure) is not None:
                    limit = None if side in STRANGERS else target.limit
                    yield target._replace(side=side, limit=limit)

    def save(self) -> None:
        """Write the file, whole or not at all; an earlier one stays until a row has figures."""
        if not any(row.turns for row in self.rows):
            return
        rows = [{"name": row.name, "turns": row.turns, "failure": row.failure} for row in self.rows]
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps({"facts": self.facts, "rows": rows}, indent=1) + "\n")
        half.replace(self.path)

    def verdict(self) -> str:
        """How many targets are met, by the first side and, of those rows, by each of the others."""
        failed = sum(bool(row.failure) for row in self.rows)
        told = [_count("", [target.met(row) for row in self.rows for target in row.targets])]
        for side in self.others:
            targets = [(row, target) for row in self.rows for target in self._beside(row)]
            told.append(_count(f" by {side}", [a.met(row) for row, a in targets if a.side == side]))
        return ", ".join([*told, f"{failed} rows without a figure"])


def _count(by: str, met: Sequence[bool | None]) -> str:
    known = [one for one in met if one is not None]
    return f"{known.count(True)} of {len(known)} targets met{by}"
