"""Commands `aerobee store verify`, `dump`, `stats` and `repair`, for use without the broker."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import STORE_REFUSED
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import echo, escaped, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.tools.findings import Finding
    from aerobee.store.tools.repair import Plan
    from aerobee.store.tools.stats import StoreSummary
    from aerobee.store.tools.verify import Verification

__all__ = ["store"]


def one_store(_ctx: click.Context, _param: click.Parameter, directory: Path) -> Path:
    """The directory, if it is that of one broker. Raises: BadParameter, which names those in it."""
    inside = sorted(path.parent for path in directory.glob("broker-*/commitlog"))
    if inside and not (directory / "commitlog").exists():
        names = ", ".join(map(str, inside))
        raise click.BadParameter(
            f"{directory} has the stores of several brokers, name one: {names}"
        )
    return directory


directory_argument = click.argument(
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    callback=one_store,
)
json_option = click.option("--json", "--jsonl", "as_json", is_flag=True, help="One JSON object.")


@click.group(cls=CommandGroup, short_help="Verify, show and repair a data directory.")
def store() -> None:
    """Verify, show and repair a data directory, ours or that of a Java broker.

    verify, dump and stats change nothing and work beside a running broker.
    Exit codes: 0 clean, 2 wrong usage, 3 damage found or the directory refused.
    """


@store.command()
@directory_argument
@json_option
def verify(directory: Path, as_json: bool) -> None:
    """Look for damage in DIRECTORY: log, queues, index, checkpoint and configuration."""
    from aerobee.store.tools.verify import verify as verified

    with refusing(), progress("verifying", as_json) as on_progress:
        found = verified(directory, read_json=read_json, progress=on_progress)
    if as_json:
        write_json(found)
    else:
        echo(described(found))
    if not found.sound:
        sys.exit(STORE_REFUSED)


@store.command()
@directory_argument
@click.option("--topic", help="Only this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue id.")
@click.option("--from-offset", type=click.IntRange(0), default=0, help="Queue offset to begin at.")
@click.option("--max", "most", type=click.IntRange(1), help="End after so many messages.")
@click.option("--json", "--jsonl", "as_json", is_flag=True, help="One JSON object per line.")
def dump(
    directory: Path,
    topic: str | None,
    queue_id: int | None,
    from_offset: int,
    most: int | None,
    as_json: bool,
) -> None:
    """Print the messages of DIRECTORY in the order of the log."""
    from aerobee.store.tools.dump import Wanted
    from aerobee.store.tools.dump import dump as dumped
    from aerobee.store.tools.findings import Findings

    findings = Findings()
    sound = True
    with refusing():
        for message in dumped(directory, Wanted(topic, queue_id, from_offset, most), findings):
            sound = sound and message["body_sound"]
            if as_json:
                write_json(message)
            else:
                echo(line_of(message))
    for one in (*findings.damage, *findings.notes):
        echo(f"aerobee: {line_of_finding(one)}", err=True)
    if findings.counts or not sound:
        sys.exit(STORE_REFUSED)


@store.command()
@directory_argument
@json_option
def stats(directory: Path, as_json: bool) -> None:
    """Count the messages of DIRECTORY by topic and queue."""
    from aerobee.store.tools.stats import summarise

    with refusing(), progress("counting", as_json) as on_progress:
        summary = summarise(directory, progress=on_progress)
    if as_json:
        write_json(summary)
    else:
        echo(table_of(summary))


def read_json(data: bytes) -> Any:
    """A configuration file, as Java brokers write it too. Raises: ValueError."""
    from aerobee.remoting.errors import BodyError
    from aerobee.remoting.wire.relaxed_json import decode

    try:
        return decode(data)
    except BodyError as error:
        raise ValueError(str(error)) from error


@store.command()
@directory_argument
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
@json_option
def repair(directory: Path, yes: bool, as_json: bool) -> None:
    """Cut the log of DIRECTORY in front of damage, and have queues and index built again."""
    from aerobee.store.files.system_clock import SystemClock
    from aerobee.store.tools.repair import plan, repair

    with refusing():
        wanted = plan(directory, read_json)
        if yes and wanted.needed:
            wanted.kept_in = str(repair(directory, wanted, SystemClock().now_ms()))
    if as_json:
        write_json(wanted)
    else:
        echo(remedy(wanted))
    if wanted.left or (wanted.needed and not yes):
        sys.exit(STORE_REFUSED)


# ── Output ──


def remedy(wanted: Plan) -> str:
    """What a repair does, or did, in words."""
    lines = [f"cannot be mended, restore it from a copy: {text}" for text in wanted.left]
    if wanted.cut_at is not None:
        lines.append(f"cut the log at {wanted.cut_at}: {wanted.cut_messages} whole messages go")
    if wanted.needed:
        lines.append("the next start builds from the whole log what is missing")
    done = "done; what was cut is in " + wanted.kept_in if wanted.kept_in else "not done: say --yes"
    return "\n".join([*lines, done if wanted.needed else "nothing to do"])


def state_of(found: Verification | StoreSummary) -> str:
    """The state in which the directory was left."""
    if found.live:
        return "in use by a running broker"
    return "stopped cleanly" if found.clean_stop else "not stopped cleanly"


def described(found: Verification) -> str:
    """Findings as lines, then a summary of what was checked."""
    lines = [f"damage: {line_of_finding(one)}" for one in found.damage]
    listed = len(found.damage)
    everything = sum(found.counts.values())
    if everything > listed:
        lines.append(f"damage: {everything - listed} more")
    lines += [f"note: {line_of_finding(one)}" for one in found.notes]
    lines.append(
        f"{found.path}: {state_of(found)}; {found.messages} messages in {counted(found.segments)} "
        f"and {found.queues} queues, log {found.min_offset} to {found.end_offset}, "
        f"{found.index_entries} entries in {found.index_files} index files"
    )
    lines.append("sound" if found.sound else f"{everything} kinds or places of damage")
    return "\n".join(lines)


def line_of(message: dict[str, Any]) -> str:
    """A message for people."""
    place = f"{escaped(message['topic'])}-{message['queue_id']} {message['queue_offset']}"
    texts = [place, f"at {message['physical_offset']}", message["store_time"]]
    texts += [f"tags={escaped(message['tags'])}"] if message["tags"] else []
    texts += [f"keys={escaped(','.join(message['keys']))}"] if message["keys"] else []
    texts += [] if message["body_sound"] else ["BODY DAMAGED"]
    body = message.get("body")
    texts.append(repr(body) if body is not None else f"base64:{message['body_base64']}")
    return " ".join(texts)


def line_of_finding(one: Finding) -> str:
    """A finding on one line: it may quote what stands in the store."""
    return f"{escaped(one.place)}{at_offset(one.physical_offset)}: {escaped(one.text)}"


def at_offset(physical_offset: int | None) -> str:
    """The physical offset in the log, if there is one."""
    return "" if physical_offset is None else f" at {physical_offset}"


def counted(segments: int) -> str:
    """So many segments, in words."""
    return f"{segments} segment{'' if segments == 1 else 's'}"


def table_of(summary: StoreSummary) -> str:
    """Totals, the sizes, then a line per queue."""
    lines = [
        f"{summary.path}: {state_of(summary)}",
        f"log: {counted(summary.segments)} of {summary.segment_bytes} bytes, "
        f"{summary.min_offset} to {summary.end_offset}; {summary.queue_files} queue files",
        f"messages: {summary.messages}, {summary.record_bytes} bytes, "
        f"{iso(summary.first_store_timestamp)} to {iso(summary.last_store_timestamp)}",
        *(f"  up to {size} bytes: {count}" for size, count in summary.sizes.items()),
        *(f"note: {note}" for note in summary.notes),
    ]
    for queue in summary.queues:
        offsets = f"{queue.min_queue_offset} to {queue.max_queue_offset}"
        half = f", {queue.half_messages} half messages" if queue.half_messages else ""
        lines.append(
            f"{queue.topic}-{queue.queue_id}: {queue.messages} messages ({offsets}){half}, "
            f"{queue.bytes} bytes, {iso(queue.first_store_timestamp)} to "
            f"{iso(queue.last_store_timestamp)}"
        )
    return "\n".join(lines)


def iso(timestamp_ms: int) -> str:
    """A time in UTC, to the millisecond; the plain number if it is outside of the calendar."""
    from aerobee.store.tools.dump import iso_time

    return iso_time(timestamp_ms)


@contextmanager
def refusing() -> Iterator[None]:
    """Convert a refusal of the store to one line and exit code 3."""
    from aerobee.cli.border import complain
    from aerobee.store.errors import StoreRefused

    try:
        yield
    except (StoreRefused, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(str(error))
        sys.exit(STORE_REFUSED)


@contextmanager
def progress(what: str, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, on a terminal only."""
    if as_json or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), DownloadColumn()),
        *(TransferSpeedColumn(), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
