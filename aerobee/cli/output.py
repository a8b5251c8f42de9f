"""The output of commands: tables for people, tab-separated lines for pipes, JSON for programs.

Anyone may have sent the messages of a topic, chosen the id of a client or the words of a remark. So
every text goes through `echo`, which escapes what a terminal would obey; JSON has the escapes of
JSON for such characters. On a terminal a table is drawn; in a pipe values are separated by tabs.
Only what a program is to get as it is (bodies in a pipe) goes through `write_exactly`.
"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from aerobee.cli.surroundings import Question, surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.table import Table

TEXT, JSON, JSONL = "text", "json", "jsonl"
GAP: Final = 2
"""Cells of a drawn table that a column takes beside its text."""
WHOLE: Final = 24
"""Cells of a word that is never broken in a drawn table."""
OBEYED: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Signs that a JSON writer leaves as they are: DEL, C1, line separators, and signs without a shape.
"""


@dataclass(frozen=True, slots=True)
class Output:
    """The output format of a command: text, one JSON document, or one JSON object per line."""

    style: str = TEXT

    @property
    def for_programs(self) -> bool:
        """Whether it is JSON of either form."""
        return self.style != TEXT

    def rows(self, rows: Iterable[Mapping[str, Any]], *, none: str = "") -> None:
        """Print a list of objects with the same fields; people read `none` where it is empty."""
        listed = list(rows)
        if self.style == JSON:
            write_json(listed)
        elif self.style == JSONL:
            for row in listed:
                write_json(row)
        elif listed:
            write_table(listed)
        elif none:
            echo(none, err=True)

    def record(self, members: Mapping[str, Any]) -> None:
        """Print one object: a line per field, or one JSON document."""
        if self.for_programs:
            write_json(members)
            return
        titles = [title(name) for name in members]
        width = max(map(len, titles), default=0)
        for name, value in zip(titles, members.values(), strict=True):
            echo(f"{name:<{width}}  {shown(value)}")

    def say(self, text: str) -> None:
        """Print a remark for people."""
        kept = surroundings()
        if kept is not None:
            kept.remarks.append(text)
        elif not self.for_programs:
            echo(text)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json and --jsonl; the command gets an `output`."""
    from functools import wraps

    @wraps(command)
    def run(*args: Any, output_style: str | None, **named: Any) -> Any:
        style = output_style or (TEXT if surroundings() is None else JSON)
        return command(*args, output=Output(style), **named)

    as_json = click.option("--json", "output_style", flag_value=JSON, help="One JSON document.")
    as_lines = click.option(
        "--jsonl", "output_style", flag_value=JSONL, help="One JSON object per line."
    )
    return as_json(as_lines(run))


# ── Text ──


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text on stdout or stderr: line breaks and tabs as they are, and no other control
    characters. Whether a value may have line breaks is a matter of `escaped`.
    """
    kept = surroundings()
    if kept is not None:
        (kept.notes if err else kept.remarks).append(text.removeprefix("aerobee: "))
        return
    lines = "\n".join("\t".join(map(escaped, line.split("\t"))) for line in text.split("\n"))
    click.echo(lines, err=err, nl=nl)


def write_exactly(data: bytes) -> None:
    """Write these bytes on stdout, for a program that reads it."""
    click.echo(data, nl=False)


def title(name: str) -> str:
    """Format a field name for people: snake_case gets spaces, any other text is escaped."""
    return name.replace("_", " ") if name.isidentifier() else escaped(name)


def shown(value: Any) -> str:
    """Format a value for people."""
    if value is None or value in ([], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return local_time(value)
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return escaped(str(value))


def local_time(at: datetime, timespec: str = "seconds") -> str:
    """A time on this machine's clock, with its zone: options such as --since take it as it is."""
    return at.astimezone().isoformat(sep=" ", timespec=timespec)


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
    """A drawn table on a terminal; in a pipe lines with tabs, with titles above several columns.

    Where a terminal is so narrow that words would be broken, each field has a line of its own.
    """
    names = list(rows[0])
    if not sys.stdout.isatty():
        if len(names) > 1:
            echo("\t".join(names))
        for row in rows:
            echo("\t".join(shown(row[name]) for name in names))
        return
    from rich.console import Console

    console = Console(file=sys.stdout)
    if sum(least_width(name, rows) + GAP for name in names) <= console.width:
        console.print(table_of(rows))
        return
    for number, row in enumerate(rows):
        if number:
            echo("")
        Output().record(row)


def has_lines(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column may have cells of several lines: of several words, or of a long one."""
    cells = [shown(row[name]) for row in rows]
    title_alone = " " in title(name) and max(map(len, cells)) < len(title(name))
    return title_alone or any(" " in cell or len(cell) > WHOLE for cell in cells)


def least_width(name: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """The width of the narrowest column that reads well, in cells."""
    from rich.cells import cell_len

    texts = [title(name), *(shown(row[name]) for row in rows)]
    if not has_lines(name, rows):
        return max(map(cell_len, texts))
    return min(WHOLE, max(cell_len(word) for text in texts for word in text.split()))


def table_of(rows: Sequence[Mapping[str, Any]], *, width: int | None = None) -> Table:
    """Draw a table of rows with the same fields.

    Long texts take several lines. With a `width` they are cut, so that each row is a line and the
    numbers are whole.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    names = list(rows[0])
    numbers = {name for name in names if is_number(rows[0][name])}
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    most = None if width is None else text_width(rows, numbers, width)
    for name in names:
        table.add_column(
            title(name),
            justify="right" if name in numbers else "left",
            overflow="fold" if width is None else "ellipsis",
            no_wrap=width is not None or not has_lines(name, rows),
            max_width=None if name in numbers else most,
        )
    for row in rows:
        table.add_row(*(Text(shown(row[name])) for name in names))
    return table


def is_number(value: Any) -> bool:
    """Whether a column with this value is one of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def text_width(rows: Sequence[Mapping[str, Any]], numbers: set[str], width: int) -> int | None:
    """The most cells of a text where all columns share a width; None if all texts fit."""
    from rich.cells import cell_len

    needs = {
        name: max(cell_len(text) for text in (title(name), *(shown(row[name]) for row in rows)))
        for name in rows[0]
    }
    left = width - GAP * len(needs) - sum(needs[name] for name in numbers)
    texts = sorted(need for name, need in needs.items() if name not in numbers)
    while texts and texts[0] <= left // len(texts):
        left -= texts.pop(0)
    return max(1, left // len(texts)) if texts else None


def write_json(value: Any) -> None:
    """One JSON document on a line."""
    kept = surroundings()
    if kept is not None:
        kept.values.append(value)
        return
    import msgspec

    click.echo(json_text(msgspec.json.encode(value).decode()))


def json_text(document: str) -> str:
    """JSON without characters that a terminal would obey, or that change how it reads."""
    return OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


# ── Questions ──


def confirm(text: str) -> None:
    """Ask before a change. Raises: Abort; Question where there is no terminal to ask at."""
    if surroundings() is not None:
        raise Question(text)
    click.confirm(escaped(text), abort=True, err=True)


# ── Progress ──


def progress(total: int | None, what: str) -> AbstractContextManager[Callable[[int], None]]:
    """A context with a function to call with the progress; drawn on a terminal only."""
    if surroundings() is not None or not sys.stderr.isatty():
        return nullcontext(lambda _done=1: None)
    return ProgressBar(total, what)


class ProgressBar:
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
