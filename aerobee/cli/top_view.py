"""The view of `aerobee top`: which rows it shows, and how keys change it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aerobee.cli.output import GAP, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

SORTED_BY = {"groups": "lag", "topics": "in_per_s", "connections": "group"}
"""The views, with the default column for sorting."""
VIEW_KEYS = {name[0]: name for name in SORTED_BY}
COLUMN_KEYS = {"<": -1, "\x1b[D": -1, ">": 1, "\x1b[C": 1}
"""Arrow keys, as terminals send them."""
ENTER, ESCAPE, RUBBED_OUT = ("\r", "\n"), "\x1b", ("\x7f", "\b")
HELP = "q quit · g groups · t topics · c connections · < > sort by · r reverse · / filter"

LEAST = ("cluster", "version", "id", "language", "model", "in_today", "topics", "address")
"""Columns that a narrow screen leaves out, in this order, and then those at the right."""
TEXT_WIDTH = 24
"""Characters of a text that a column has room for before another column is left out for it."""

Row = dict[str, Any]


def column_width(name: str, rows: Sequence[Row]) -> int:
    """How many characters a column needs: its numbers whole, its texts up to a bound."""
    values = (shown(row[name]) for row in rows)
    return max(len(name), min(TEXT_WIDTH, max(map(len, values), default=0)))


@dataclass(slots=True)
class View:
    """The selection and the order of the rows."""

    name: str = "groups"
    column: str = ""
    """The column for sorting; empty for the default of SORTED_BY."""
    reverse: bool = False
    """Reverses the order: by default numbers are descending and texts ascending."""
    pattern: str = ""
    """Show only rows with this text in one of their cells."""
    typing: bool = False
    """Whether keys are added to the filter, until Enter."""

    @property
    def sorted_by(self) -> str:
        """The column that is sorted by."""
        return self.column or SORTED_BY[self.name]

    def press(self, key: str, columns: Sequence[str]) -> bool:
        """Process a key; returns false for quit. `columns` are those on the screen."""
        if self.typing:
            self._type(key)
        elif key in ("q", "Q"):
            return False
        elif key in VIEW_KEYS:
            self.name, self.column, self.reverse = VIEW_KEYS[key], "", False
        elif key in COLUMN_KEYS and columns:
            at = columns.index(self.sorted_by) if self.sorted_by in columns else 0
            self.column = columns[(at + COLUMN_KEYS[key]) % len(columns)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.typing, self.pattern = True, ""
        elif key == ESCAPE:
            self.pattern = ""
        return True

    def _type(self, key: str) -> None:
        if key in ENTER:
            self.typing = False
        elif key == ESCAPE:
            self.typing, self.pattern = False, ""
        elif key in RUBBED_OUT:
            self.pattern = self.pattern[:-1]
        elif key.isprintable():
            self.pattern += key

    def arranged(self, rows: Sequence[Row]) -> list[Row]:
        """The selected rows in their order; rows without a value come last."""
        wanted = [row for row in rows if self.wants(row)]
        by = self.sorted_by
        if all(row.get(by) is None for row in wanted):
            # With a dead broker there is only the least that a lag can be.
            by = f"{by}_at_least"
        known = [row for row in wanted if row.get(by) is not None]
        unknown = [row for row in wanted if row.get(by) is None]
        numbers = all(isinstance(row[by], int | float) for row in known)
        known.sort(
            key=lambda row: row[by] if numbers else shown(row[by]),
            reverse=numbers != self.reverse,
        )
        return known + unknown

    def wants(self, row: Row) -> bool:
        """Whether a row matches the filter."""
        pattern = self.pattern.lower()
        return not pattern or any(pattern in shown(value).lower() for value in row.values())

    def fitting(self, rows: Sequence[Row], width: int) -> list[Row]:
        """The rows with as many columns as a screen of this width shows whole; the name and
        the one that is sorted by stay.
        """
        names = list(rows[0]) if rows else []
        widths = {name: column_width(name, rows) + GAP for name in names}
        stay = {"broker" if "broker" in names else names[0], self.sorted_by} if names else set()
        less = (*LEAST, *reversed(names))
        for name in less:
            if name in widths and name not in stay and sum(widths.values()) > width:
                del widths[name]
        return [{name: row[name] for name in widths} for row in rows]

    @property
    def line(self) -> str:
        """The help line, or the text that is being typed."""
        if self.typing:
            return f"filter: {self.pattern}▏ (Enter: done, Esc: none)"
        filtered = f" · only '{self.pattern}' (Esc: all)" if self.pattern else ""
        turned = " reversed" if self.reverse else ""
        return f"{self.name} by {self.sorted_by}{turned}{filtered} · {HELP}"
