"""Lists as they are shown: filtered, sorted, and a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.console.looks.viewers import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LIMIT: Final = 100
"""Rows of a page where a query names no other number."""
LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 1_000_000
FILTER_MAX: Final = 255
"""Characters of a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The part of a list that is shown: rows with a text, in an order, and from which row on."""

    filter: str = ""
    """Only rows with this text in any column, in any case."""
    sort: str = ""
    """A column; with `-` in front the largest is the first."""
    offset: int = 0
    limit: int = LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list. `total`: rows that pass the filter."""

    rows: Sequence[Mapping[str, Any]]
    total: int
    query: Query


def query_of(fields: Mapping[str, str]) -> Query:
    """A query from parameters; those of other names are not looked at. Raises: Failure."""
    text = fields.get("filter", "")
    if len(text) > FILTER_MAX:
        most = {"most": FILTER_MAX}
        raise Failure(400, "usage", "filter has at most {most} characters", most)
    return Query(
        filter=text,
        sort=fields.get("sort", ""),
        offset=number(fields, "offset", 0, OFFSET_MAX, default=0),
        limit=number(fields, "limit", 1, LIMIT_MAX, default=LIMIT),
    )


def number(fields: Mapping[str, str], name: str, least: int, most: int, *, default: int) -> int:
    """A whole number of a query. Raises: Failure."""
    text = fields.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise out_of_range(name, least, most)
    value = int(text)
    if not least <= value <= most:
        raise out_of_range(name, least, most)
    return value


def out_of_range(name: str, least: int, most: int) -> Failure:
    """The failure of a number that is none, or is too small or large."""
    about = {"name": name, "least": least, "most": most}
    return Failure(400, "usage", "{name} is a number from {least} to {most}", about)


def arranged(rows: Sequence[Mapping[str, Any]], query: Query) -> Page:
    """A page of rows that have the same columns.

    Rows with an unknown value are the last in either direction; equal ones keep their order.
    Raises: Failure for a column that there is not.
    """
    column = query.sort.removeprefix("-")
    if column and rows and column not in rows[0]:
        columns = {"columns": ", ".join(rows[0])}
        raise Failure(400, "usage", "sort: the columns are {columns}", columns)
    part = query.filter.casefold()
    shown = [row for row in rows if not part or part in "\n".join(texts(row)).casefold()]
    if column:
        known = [row for row in shown if row[column] is not None]
        unknown = [row for row in shown if row[column] is None]
        known.sort(key=lambda row: sort_key(row[column]), reverse=query.sort.startswith("-"))
        shown = [*known, *unknown]
    end = query.offset + query.limit
    return Page(rows=shown[query.offset : end], total=len(shown), query=query)


def texts(row: Mapping[str, Any]) -> Iterator[str]:
    """The columns in which a filter looks."""
    for value in row.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, str))


def sort_key(value: Any) -> tuple[int, Any]:
    """Numbers by value, everything else by its text."""
    if isinstance(value, (int, float)):
        return 0, value
    return 1, str(value).casefold()
