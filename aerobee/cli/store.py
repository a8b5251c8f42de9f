"""Commands `aerobee store verify`, `dump`, `stats`, `export`, `repair`, `cut`: without a broker."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aerobee.cli.border import STORE_REFUSED
from aerobee.cli.config import config_option, or_problems, read_config
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import echo, escaped, write_json
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.recovery.cut import Cut
    from aerobee.store.tools.export import Export
    from aerobee.store.tools.findings import Finding
    from aerobee.store.tools.locations import StoreLocation
    from aerobee.store.tools.repair import Plan
    from aerobee.store.tools.stats import StoreSummary
    from aerobee.store.tools.verify import Verification


class StoreChoice(NamedTuple):
    """The stores that a command is for: one, or those of several brokers."""

    stores: list[StoreLocation]
    several: bool


def choose(directory: Path | None, log: Path | None, file: Path | None) -> StoreChoice:
    """The stores below DIRECTORY, or those of a configuration.

    Raises: UsageError, StoreUnusable where a log is elsewhere than the tool looks.
    """
    from aerobee.store.files.disk import Disk
    from aerobee.store.tools.locations import locations

    if (directory is None) == (file is None):
        raise click.UsageError("name a DIRECTORY, or the --config of its broker")
    if file is not None:
        if log is not None:
            raise click.UsageError("--log belongs to a DIRECTORY; --config says where its log is")
        paths = or_problems(lambda: read_config(file)).store
        directory = Path(paths.store_path_root_dir).expanduser()
        set_log = paths.store_path_commit_log
        log = Path(set_log).expanduser() if set_log else None
    assert directory is not None
    stores = locations(directory, log, Disk())
    return StoreChoice(stores, stores[0].root != directory)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add DIRECTORY, --log and --config; the command gets `chosen`, called where refusals are
    reported.
    """

    @click.argument(
        "directory",
        required=False,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
    )
    @click.option(
        "--log",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory of the log (storePathCommitLog), where it is not below DIRECTORY.",
    )
    @config_option
    @wraps(command)
    def run(
        *args: Any, directory: Path | None, log: Path | None, file: Path | None, **named: Any
    ) -> Any:
        with refusing():
            chosen = choose(directory, log, file)
        return command(*args, chosen=chosen, **named)

    return run


json_option = click.option("--json", "--jsonl", "as_json", is_flag=True, help="One JSON object.")


filter_options = (
    click.option("--topic", help="Only this topic."),
    click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue id."),
    click.option(
        "--from-offset", type=click.IntRange(0), default=0, help="Queue offset to begin at."
    ),
    click.option(
        "--behind",
        type=click.IntRange(0),
        default=0,
        help="Physical offset in the log to begin at.",
    ),
)


def filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose messages."""
    for option in reversed(filter_options):
        command = option(command)
    return command


@click.group(cls=CommandGroup, short_help="Verify, show, export and repair a data directory.")
def store() -> None:
    """Verify, show, export and repair a data directory, ours or that of a Java broker.

    Each takes DIRECTORY, with --log where the log has a directory of its own, or the --config of
    the broker. Below one directory there may be the stores of several brokers: then it is for all.

    verify, dump, stats and export change nothing and work beside a running broker.
    Exit codes: 0 clean, 2 wrong usage, 3 damage found or the directory refused.
    """


@store.command()
@store_options
@json_option
def verify(chosen: StoreChoice, as_json: bool) -> None:
    """Look for damage in DIRECTORY: log, queues, index, checkpoint and configuration."""
    from aerobee.store.tools.verify import verify as verified

    sound = True
    for root, log in chosen.stores:
        with refusing(), progress("verifying", as_json) as on_progress:
            audit = verified(root, log=log, read_json=read_json, progress=on_progress)
        sound = sound and audit.sound
        if as_json:
            write_json(audit)
        else:
            echo(described(audit))
    if not sound:
        sys.exit(STORE_REFUSED)


@store.command()
@store_options
@filtered
@click.option("--max", "most", type=click.IntRange(1), help="End after so many messages.")
@click.option("--json", "--jsonl", "as_json", is_flag=True, help="One JSON object per line.")
def dump(
    chosen: StoreChoice,
    topic: str | None,
    queue_id: int | None,
    from_offset: int,
    behind: int,
    most: int | None,
    as_json: bool,
) -> None:
    """Print the messages of DIRECTORY in the order of the log."""
    from aerobee.store.tools.dump import DumpFilter
    from aerobee.store.tools.dump import dump as dumped
    from aerobee.store.tools.findings import Findings

    findings = Findings()
    sound = True
    wanted = DumpFilter(topic, queue_id, from_offset, most, behind)
    for root, log in chosen.stores:
        of_store = {"store": str(root)} if chosen.several else {}
        with refusing():
            for message in dumped(root, wanted, findings, log):
                sound = sound and message["body_sound"]
                if as_json:
                    write_json(of_store | message)
                else:
                    echo(" ".join((*of_store.values(), line_of(message))))
    for finding in (*findings.damage, *findings.notes):
        echo(f"aerobee: {line_of_finding(finding)}", err=True)
    if findings.counts or not sound:
        sys.exit(STORE_REFUSED)


@store.command()
@store_options
@json_option
def stats(chosen: StoreChoice, as_json: bool) -> None:
    """Count the messages of DIRECTORY by topic and queue."""
    from aerobee.store.tools.stats import summarise

    for root, log in chosen.stores:
        with refusing(), progress("counting", as_json) as on_progress:
            summary = summarise(root, log=log, progress=on_progress)
        if as_json:
            write_json(summary)
        else:
            echo(table_of(summary))


@store.command()
@store_options
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the files, one per topic.",
)
@filtered
@json_option
def export(
    chosen: StoreChoice,
    output: Path,
    topic: str | None,
    queue_id: int | None,
    from_offset: int,
    behind: int,
    as_json: bool,
) -> None:
    """Write the readable messages of DIRECTORY, behind damage too, to files of JSON lines.

    `aerobee produce TOPIC --format json --file FILE` sends such a file.
    """
    from aerobee.store.tools.dump import DumpFilter
    from aerobee.store.tools.export import export as exported

    wanted = DumpFilter(topic, queue_id, from_offset, behind=behind)
    sound = True
    for root, log in chosen.stores:
        place = output / root.name if chosen.several else output
        with refusing():
            result = exported(root, place, wanted, unpack=unpacked, log=log)
        sound = sound and not result.counts
        if as_json:
            write_json(result)
        else:
            echo(exported_lines(result))
    if not sound:
        sys.exit(STORE_REFUSED)


def unpacked(body: bytes, sys_flag: int) -> bytes:
    """A body as it was sent. Raises: ValueError."""
    from aerobee.client.compression import unpack
    from aerobee.errors import AerobeeError

    try:
        return unpack(body, sys_flag)
    except AerobeeError as error:
        raise ValueError(str(error)) from error


def read_json(data: bytes) -> Any:
    """A configuration file, as Java brokers write it too. Raises: ValueError."""
    from aerobee.remoting.errors import BodyError
    from aerobee.remoting.wire.relaxed_json import decode

    try:
        return decode(data)
    except BodyError as error:
        raise ValueError(str(error)) from error


@store.command()
@store_options
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
@json_option
def repair(chosen: StoreChoice, yes: bool, as_json: bool) -> None:
    """Cut the log of DIRECTORY in front of damage, and have queues and index built again."""
    from aerobee.store.files.system_clock import SystemClock
    from aerobee.store.tools.repair import plan, repair

    done = True
    for root, log in chosen.stores:
        with refusing():
            wanted = plan(root, read_json, log=log)
            if yes and wanted.needed:
                wanted.kept_in = str(repair(root, wanted, SystemClock().now_ms()))
        done = done and not (wanted.left or (wanted.needed and not yes))
        if as_json:
            write_json(wanted)
        else:
            echo(remedy(wanted, named=chosen.several))
    if not done:
        sys.exit(STORE_REFUSED)


@store.command()
@store_options
@click.option(
    "--to",
    "offset",
    type=click.IntRange(1),
    required=True,
    help="Physical offset where the log is to end: the end of a message.",
)
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
@json_option
def cut(chosen: StoreChoice, offset: int, yes: bool, as_json: bool) -> None:
    """End the log of DIRECTORY at an offset, and keep what was behind it in DIRECTORY/cut.

    For a copy that has other messages there than its master; the broker is stopped. A kill leaves
    the log as it was, or one that the next start ends there.
    """
    from aerobee.store.files.disk import Disk
    from aerobee.store.format.names import CUT
    from aerobee.store.recovery.cut import cut_locked, look

    if chosen.several:
        raise click.UsageError("name the directory of one broker")
    root, log = chosen.stores[0]
    with refusing():
        if yes:
            made = cut_locked(root, log, offset, keep_in=root / CUT / str(offset))
        else:
            made = look(Disk(), log, offset)
    if as_json:
        write_json(made)
    else:
        echo(cut_words(root, made))
    if not yes:
        sys.exit(STORE_REFUSED)


# ── Output ──


def cut_words(root: Path, made: Cut) -> str:
    """The loss by a cut, in words."""
    what = f"{counted(made.messages, 'message')}, {made.size_bytes} bytes, behind {made.offset}"
    if not made.kept_in:
        return f"{what} would be cut off the log of {root}; not done: say --yes"
    kept = ["aerobee", "store", "export", str(root / made.kept_in), "--behind", str(made.offset)]
    return f"{what} were cut off; to write them to files: {shlex.join(kept)} --output DIR"


def remedy(wanted: Plan, *, named: bool = False) -> str:
    """The effect of a repair, in words."""
    lines = [f"{wanted.path}:"] if named else []
    lines += [f"cannot be mended, restore it from a copy: {text}" for text in wanted.left]
    if wanted.lost_messages:
        to = "that consume queues lead to"
        lost = counted(wanted.lost_messages, f"message {to} is", f"messages {to} are")
        lines.append(f"{lost} not in the log: only a copy of it has them")
    if wanted.starts_unrepaired and not wanted.kept_in:
        lines.append(
            "a broker starts without this repair: consumers are given everything but what is "
            "damaged, in front of it and behind"
        )
    if wanted.cut_at is not None:
        lines.append(cut_line(wanted))
    if wanted.needed:
        lines.append("the next start builds from the whole log what is missing")
    if wanted.kept_in:
        lines.append("done; what was cut is in " + wanted.kept_in)
    else:
        lines.append("not done: say --yes" if wanted.needed else "nothing to do")
    if wanted.left and not wanted.needed:
        lines.pop()
    return "\n".join(lines)


def cut_line(wanted: Plan) -> str:
    """The loss by a cut, and how to save it."""
    line = f"cut the log at {wanted.cut_at}: {wanted.cut_messages} whole messages go"
    if not wanted.cut_messages:
        return line
    where = [wanted.kept_in or wanted.path]
    if not wanted.kept_in and Path(wanted.log_path) != Path(wanted.path, "commitlog"):
        where += ["--log", wanted.log_path]
    save = shlex.join(["aerobee", "store", "export", *where, "--behind", str(wanted.cut_at)])
    return f"{line}, {wanted.cut_bytes} bytes, which can be written to files: {save} --output DIR"


def exported_lines(result: Export) -> str:
    """The records that were exported, and those that were left out and where."""
    lines = [f"left out: {line_of_finding(finding)}" for finding in result.damage]
    listed, every = len(result.damage), sum(result.counts.values())
    lines += [f"left out: {every - listed} places more"] if every > listed else []
    lines += [f"note: {line_of_finding(note)}" for note in result.notes]
    lines += [
        f"{result.output}/{name}: {counted(count, 'message')}"
        for name, count in result.topics.items()
    ]
    lines.append(
        f"{counted(result.messages, 'message')} exported, "
        f"{result.damaged_bodies} with damaged bodies left out, "
        f"{result.unreadable_bytes} bytes of the log cannot be read"
    )
    return "\n".join(lines)


def state_of(result: Verification | StoreSummary) -> str:
    """The state in which the directory was left."""
    if result.live:
        return "in use by a running broker"
    return "stopped cleanly" if result.clean_stop else "not stopped cleanly"


def described(audit: Verification) -> str:
    """Findings as lines, then a summary of what was checked."""
    lines = [f"damage: {line_of_finding(finding)}" for finding in audit.damage]
    listed = len(audit.damage)
    everything = sum(audit.counts.values())
    if everything > listed:
        lines.append(f"damage: {everything - listed} more")
    lines += [f"note: {line_of_finding(note)}" for note in audit.notes]
    lines.append(
        f"{audit.path}: {state_of(audit)}; {counted(audit.messages, 'message')} in "
        f"{counted(audit.segments, 'segment')} and {counted(audit.queues, 'queue')}, "
        f"log {audit.min_offset} to {audit.end_offset}, "
        f"{counted(audit.index_entries, 'entry', 'entries')} in "
        f"{counted(audit.index_files, 'index file')}"
    )
    lost = (
        f"; {counted(audit.lost_messages, 'message is', 'messages are')} lost"
        if audit.lost_messages
        else ""
    )
    lines.append("sound" if audit.sound else f"{everything} kinds or places of damage{lost}")
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


def line_of_finding(finding: Finding) -> str:
    """A finding on one line: it may quote what stands in the store."""
    return f"{escaped(finding.place)}{at_offset(finding.physical_offset)}: {escaped(finding.text)}"


def at_offset(physical_offset: int | None) -> str:
    """The physical offset in the log, if there is one."""
    return "" if physical_offset is None else f" at {physical_offset}"


def table_of(summary: StoreSummary) -> str:
    """Totals, the sizes, then a line per queue."""
    lines = [
        f"{summary.path}: {state_of(summary)}",
        f"log: {counted(summary.segments, 'segment')} of {summary.segment_bytes} bytes, "
        f"{summary.min_offset} to {summary.end_offset}; {summary.queue_files} queue files",
        f"messages: {summary.messages}, {summary.record_bytes} bytes, "
        f"{iso(summary.first_store_timestamp)} to {iso(summary.last_store_timestamp)}",
        *(f"  up to {size} bytes: {count}" for size, count in summary.sizes.items()),
        *(f"note: {note}" for note in summary.notes),
    ]
    for queue in summary.queues:
        offsets = f"{queue.min_queue_offset} to {queue.max_queue_offset}"
        half = f", {queue.half_messages} half messages" if queue.half_messages else ""
        plural = "" if queue.messages == 1 else "s"
        lines.append(
            f"{queue.topic}-{queue.queue_id}: {queue.messages} message{plural} ({offsets}){half}, "
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
    """Convert a refusal of the store, or of its disk, to one line and exit code 3.

    Files that may not be read, and an output that cannot be written, are no fault of the store.
    """
    from aerobee.cli.border import complain
    from aerobee.store.errors import StoreRefused, Unreadable

    try:
        yield
    except (StoreRefused, Unreadable, NotADirectoryError, IsADirectoryError) as error:
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
