"""What a comparison measures and what it is held to: turns, rows, aims, and the file of results.

A turn is one measurement of one side; a row has as many turns of each side, taken by turns. An aim
compares the median of one figure with a limit: the figure itself, or its ratio to another side's.
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

__all__ = ["AT_LEAST", "AT_MOST", "OURS", "THEIRS", "Aim", "Report", "Row", "Turn"]

Turn = dict[str, float]
"""Name of a figure → its value."""

OURS, THEIRS = "aerobee", "java"
AT_LEAST, AT_MOST = "≥", "≤"

UNITS = {
    "rate": "msgs/s",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "cpu": "µs/msg",
    "late_s": "s",
    "share": "of the rate alone",
    "ready_s": "s",
    "idle_mb": "MB idle",
    "load_mb": "MB under load",
    "stall_ms": "ms, longest stall",
    "good": "of the peak stored in time",
}


class Aim(NamedTuple):
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
        cells.append("" if self.limit is None else f"{self.sense} {self.limit:g}")
        met = self.met(row)
        cells.append("" if met is None else "met" if met else "**missed**")
        return f"| {' | '.join(cells)} |"

    def value(self, row: Row) -> float | None:
        """What is compared with the limit; None where a side was not measured."""
        ours = row.median(self.side, self.figure)
        if not self.over or ours is None:
            return ours
        theirs = row.median(self.over, self.figure)
        return ours / theirs if theirs else None

    def met(self, row: Row) -> bool | None:
        """Whether it is; None without limit or value."""
        value = self.value(row)
        if value is None or self.limit is None:
            return None
        return value >= self.limit if self.sense == AT_LEAST else value <= self.limit

    def _values(self, row: Row) -> list[str]:
        ours = row.median(self.side, self.figure)
        if not self.over:
            return [number(ours), "", ""]
        value = self.value(row)
        ratio = "" if value is None else f"{value:.2f} ({row.spread(self)})"
        return [number(ours), number(row.median(self.over, self.figure)), ratio]


def number(value: float | None) -> str:
    """A figure with as many digits as mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(slots=True)
class Row:
    """One kind of work and what was seen of it."""

    name: str
    aims: Sequence[Aim]
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    failure: str = ""

    def add(self, side: str, turn: Mapping[str, float]) -> None:
        """One measurement."""
        self.turns.setdefault(side, []).append(dict(turn))

    def median(self, side: str, figure: str) -> float | None:
        """Of all turns of a side that have the figure."""
        seen = [turn[figure] for turn in self.turns.get(side, ()) if figure in turn]
        return median(seen) if seen else None

    def spread(self, aim: Aim) -> str:
        """The lowest and the highest ratio of two turns that followed each other."""
        pairs = zip(self.turns.get(aim.side, ()), self.turns.get(aim.over, ()), strict=False)
        ratios = [
            one[aim.figure] / other[aim.figure]
            for one, other in pairs
            if aim.figure in one and other.get(aim.figure)
        ]
        return f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–"


HEAD = """\
| work | Aerobee | beside it | ratio (lowest–highest turn) | aim | |
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
            for aim in row.aims:
                print(aim.line(row), flush=True)
            for aim in self._beside(row):
                print(aim.line(row, f"{row.name}, {aim.side}"), flush=True)
        self.save()

    def _beside(self, row: Row) -> Iterable[Aim]:
        """The row's aims once more for each side with another interpreter or build, and how many
        of them it meets is told apart.
        """
        for side in self.others:
            for aim in row.aims:
                if aim.side == OURS and row.median(side, aim.figure) is not None:
                    yield aim._replace(side=side)

    def save(self) -> None:
        """Write the file, whole or not at all."""
        rows = [{"name": row.name, "turns": row.turns, "failure": row.failure} for row in self.rows]
        half = self.path.with_suffix(".part")
        half.write_text(json.dumps({"facts": self.facts, "rows": rows}, indent=1) + "\n")
        half.replace(self.path)

    def verdict(self) -> str:
        """How many aims are met, by the first side and, of those rows, by each of the others."""
        failed = sum(bool(row.failure) for row in self.rows)
        told = [_count("", [aim.met(row) for row in self.rows for aim in row.aims])]
        for side in self.others:
            aims = [(row, aim) for row in self.rows for aim in self._beside(row)]
            told.append(_count(f" by {side}", [a.met(row) for row, a in aims if a.side == side]))
        return ", ".join([*told, f"{failed} rows without a figure"])


def _count(by: str, met: Sequence[bool | None]) -> str:
    known = [one for one in met if one is not None]
    return f"{known.count(True)} of {len(known)} aims met{by}"
