"""The output of commands: tables for people, tab-separated lines for pipes, JSON for programs.

On a terminal a table is drawn and control characters are escaped, because anyone may have sent the
messages of a topic. In a pipe values are separated by tabs and bodies are unchanged.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.table import Table

__all__ = [
    "Output",
    "escaped",
    "escaped_bytes",
    "output_options",
    "progress",
    "shown",
    "table_of",
    "write_json",
]

TEXT, JSON, JSONL = "text", "json", "jsonl"


@dataclass(frozen=True, slots=True)
class Output:
    """The output format of a command: text, one JSON document, or one JSON object per line."""

    style: str = TEXT

    @property
    def for_programs(self) -> bool:
        """Whether it is JSON of either form."""
        return self.style != TEXT

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Print a list of objects with the same fields."""
        listed = list(rows)
        if self.style == JSON:
            write_json(listed)
        elif self.style == JSONL:
            for row in listed:
                write_json(row)
        elif listed:
            write_table(listed)

    def record(self, members: Mapping[str, Any]) -> None:
        """Print one object: a line per field, or one JSON document."""
        if self.for_programs:
            write_json(members)
            return
        titles = [title(name) for name in members]
        width = max(map(len, titles), default=0)
        for name, value in zip(titles, members.values(), strict=True):
            click.echo(f"{name:<{width}}  {shown(value)}")

    def say(self, text: str) -> None:
        """Print a remark for people."""
        if not self.for_programs:
            click.echo(text)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json and --jsonl; the command gets an `output`."""
    from functools import wraps

    @wraps(command)
    def run(*args: Any, output_style: str | None, **named: Any) -> Any:
        return command(*args, output=Output(output_style or TEXT), **named)

    as_json = click.option("--json", "output_style", flag_value=JSON, help="One JSON document.")
    as_lines = click.option(
        "--jsonl", "output_style", flag_value=JSONL, help="One JSON object per line."
    )
    return as_json(as_lines(run))


# ── Text ──


def title(name: str) -> str:
    """Format a field name for people: snake_case gets spaces, any other text is escaped."""
    return name.replace("_", " ") if name.isidentifier() else escaped(name)


def shown(value: Any) -> str:
    """Format a value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return escaped(str(value))


def escaped(text: str) -> str:
    """Text whose control characters are shown and not obeyed by a terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def escaped_bytes(body: bytes) -> str:
    """A body on a terminal: text, or escapes for other bytes."""
    return escaped(body.decode(errors="backslashreplace"))


def write_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """A drawn table on a terminal; in a pipe lines with tabs, with titles above several columns."""
    names = list(rows[0])
    if not sys.stdout.isatty():
        if len(names) > 1:
            click.echo("\t".join(names))
        for row in rows:
            click.echo("\t".join(shown(row[name]) for name in names))
        return
    from rich.console import Console

    Console(file=sys.stdout).print(table_of(rows))


def table_of(rows: Sequence[Mapping[str, Any]], *, one_line: bool = False) -> Table:
    """Draw a table of rows with the same fields.

    Long values take several lines, or with `one_line` are cut.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    names = list(rows[0])
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        number = isinstance(rows[0][name], (int, float)) and not isinstance(rows[0][name], bool)
        table.add_column(
            title(name),
            justify="right" if number else "left",
            overflow="ellipsis" if one_line else "fold",
            no_wrap=one_line,
        )
    for row in rows:
        table.add_row(*(Text(shown(row[name])) for name in names))
    return table


def write_json(value: Any) -> None:
    """One JSON document on a line."""
    import msgspec

    click.echo(msgspec.json.encode(value))


# ── Progress ──


def progress(total: int | None, what: str) -> AbstractContextManager[Callable[[int], None]]:
    """A context with a function to call with the progress; drawn on a terminal only."""
    if not sys.stderr.isatty():
        return nullcontext(lambda _done=1: None)
    return Drawn(total, what)


class Drawn:
    """A progress bar on stderr."""

    def __init__(self, total: int | None, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(what, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self.bar.start()
        return lambda done: self.bar.advance(self.task, done)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
