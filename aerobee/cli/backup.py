"""`aerobee backup`: a copy of a running broker's store, which a broker starts on as after a kill.

A part that is copied later is newer, so that nothing in the copy promises what is not in it:

1. the checkpoint and the tables: they speak of queues and log as they were before the copy;
2. the check file of the timers, their wheel, their log: the order against that of a save;
3. the consume queues, each up to its first empty unit;
4. the log, up to the end that the broker names after that: all before it is complete, and nothing
   behind it is read, since a record may be half written there.

Left out is what a start makes anew or what vouches for files by their place: index, recovery point,
queue extents, the reserve, files made ahead. Rows of files are copied from the newest to the oldest
and end at the first that is gone, or goes meanwhile, so retention makes no gap. Blocks of the log
that the disk cannot read are zeros in the copy, and told; any other file that it cannot read ends
the backup.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

import click

from aerobee.cli.border import REFUSED, STORE_REFUSED, complain
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.output import Output, output_options, progress
from aerobee.counted import counted
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

CHUNK_BYTES = 4 << 20
UNIT_BYTES = 20
TABLES_FIRST = ("checkpoint", "abort", "savedtopics")
TABLES_WITHIN_S = 1.0
"""A change of a table is in its file after that time, unless the disk is in trouble."""
SPARED = 1.02
"""Room that the copy needs, as a multiple of what is there."""


@click.command(short_help="Copy the store of a running broker.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--broker", metavar="NAME", help="Of several; name or address.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where its data directory is seen from here; else as the broker says.",
)
@click.option(
    "--log",
    "log",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The same of storePathCommitLog.",
)
@connection_options
@output_options
def backup(
    target: Path,
    broker: str | None,
    data: Path | None,
    log: Path | None,
    connection: Connection,
    output: Output,
) -> None:
    """Copy the store of a running broker on this machine to the new directory TARGET.

    Every message that was acknowledged before the command began is in it, unless it has expired
    meanwhile. TARGET is there when it is complete. Look at it with `aerobee store verify TARGET`; a
    broker that is started on it recovers as after a kill.

    Example: aerobee backup /backup/2026-01-31
    """
    if not target.name:
        raise ConfigurationError(f"TARGET is {target}: name a directory that is to be made")
    part = target.with_name(f"{target.name}.part")
    for there in (target, part):
        if there.exists():
            raise in_the_way(there)
    with connection.admin() as admin:
        settings = admin.broker_config(broker)
        root = data or Path(settings["storePathRootDir"]).expanduser()
        segments = log or Path(settings.get("storePathCommitLog") or root / "commitlog")

        def end() -> int:
            return int(admin.broker_stats(broker)["commitLogMaxOffset"])

        try:
            place = Place(root, segments.expanduser())
            check(place, target)
            with making(part), progress(None, "bytes") as advance:
                # A topic made just now is in its table, then; it is written as soon as it changes.
                sleep(TABLES_WITHIN_S)
                copy = Copy(place, part, advance)
                copied = copy.run(end)
                part.rename(target)
                sync_folder(target.absolute().parent)
        except OSError as error:
            complain(f"no backup: {error}")
            click.get_current_context().exit(REFUSED if isinstance(error, PermissionError) else 1)
    if output.for_programs:
        output.record({"target": str(target), **copied._asdict()})
    output.say(
        f"{target}: the log from {copied.log_begin} to {copied.log_end}, "
        f"{counted(copied.files, 'file')}, {copied.copied_bytes} bytes; "
        f"see aerobee store verify {quote(str(target))}"
    )
    for name, begin, stop in copy.unread:
        complain(f"{name}: bytes {begin} to {stop} cannot be read, they are zeros in the copy")
    if copy.unread:
        click.get_current_context().exit(STORE_REFUSED)


def in_the_way(there: Path) -> ConfigurationError:
    """The error about a directory that a backup would make, and that is there."""
    return ConfigurationError(f"{there} exists: name a directory that is to be made")


@contextmanager
def making(part: Path) -> Iterator[None]:
    """Make the directory of a backup that is not complete; an error removes it.

    Raises: ConfigurationError where another backup has made it, OSError.
    """
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise in_the_way(part) from None
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            shutil.rmtree(part)
        raise


class Place(NamedTuple):
    """Where the store is."""

    root: Path
    log: Path


class CopySummary(NamedTuple):
    """The content of a copy."""

    log_begin: int
    log_end: int
    files: int
    copied_bytes: int
    unread_bytes: int
    """Of the log, that the disk cannot read."""


class Unread(NamedTuple):
    """Bytes of a segment that the disk cannot read."""

    path: str
    begin: int
    end: int


def check(place: Place, target: Path) -> None:
    """Refuse what is no running store, a target in it, or a disk without room.

    Raises: ConfigurationError.
    """
    if not (place.root / "abort").exists() or not place.log.is_dir():
        raise ConfigurationError(
            f"no broker runs on {place.root} as seen from here: name its directory with --data"
        )
    for part in (place.root, place.log):
        if target.resolve().is_relative_to(part.resolve()):
            raise ConfigurationError(f"{target} is in the store: name a place outside of {part}")
    needed = sum(map(on_disk, {place.root, place.log}))
    free = shutil.disk_usage(target.absolute().parent).free
    if needed * SPARED > free:
        raise ConfigurationError(f"{target.parent} has {free} bytes free, the store takes {needed}")


def on_disk(folder: Path) -> int:
    """The bytes that the files below a folder take."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(place, name).lstat().st_blocks * 512
    return total


class Copy:
    """One copy of a store."""

    def __init__(self, place: Place, target: Path, advance: Callable[[int], None]) -> None:
        self.place = place
        self.target = target
        self.advance = advance
        self.files = 0
        self.bytes = 0
        self.last_units: list[tuple[Path, Path, int]] = []
        """Source, copy and position of the last unit of queues that were written at that time."""
        self.unread: list[Unread] = []

    def run(self, end: Callable[[], int]) -> CopySummary:
        """Copy all of it into the target, which is there and empty. Raises: OSError."""
        root = self.place.root
        for name in TABLES_FIRST:
            self.plain(root / name)
        for file in sorted((root / "config").rglob("*")):
            if file.is_file() and file.name != "timercheck":
                self.plain(file)
        for name in ("config/timercheck", "timerwheel"):
            self.plain(root / name)
        for folder in ("timerlog", "archive"):
            self.row(root / folder, self.plain)
        for queue in sorted((root / "consumequeue").glob("*/*")):
            self.row(queue, self.queue_file)
        self.again()
        begin, log_end = self.log(end())
        self.sync()
        unread = sum(stop - start for _, start, stop in self.unread)
        return CopySummary(begin, log_end, self.files, self.bytes, unread)

    # ── Files ──

    def row(self, folder: Path, copy: Callable[[Path], bool]) -> None:
        """The files of a folder, newest first, until one is gone."""
        if folder.is_dir():
            for file in sorted(folder.iterdir(), reverse=True):
                if not copy(file):
                    return

    def plain(self, file: Path) -> bool:
        """A whole file; whether it is there."""
        try:
            with file.open("rb") as source:
                size = os.fstat(source.fileno()).st_size
                self.written(file, chunks(source, size))
        except FileNotFoundError:
            return False
        return True

    def queue_file(self, file: Path) -> bool:
        """A file of a consume queue up to its first empty unit; whether it is there."""
        try:
            with file.open("rb") as source:
                data = b"".join(chunks(source, os.fstat(source.fileno()).st_size))
        except FileNotFoundError:
            return False
        used = units_end(data)
        copy = self.written(file, iter([data[:used]]), size=len(data))
        if 0 < used < len(data):
            self.last_units.append((file, copy, used - UNIT_BYTES))
        return True

    def again(self) -> None:
        """Read last units once more: one that was being written may have been read in part."""
        for file, copy, position in self.last_units:
            try:
                with file.open("rb") as source:
                    unit = os.pread(source.fileno(), UNIT_BYTES, position)
            except FileNotFoundError:
                continue
            with copy.open("r+b") as to:
                os.pwrite(to.fileno(), unit, position)

    def log(self, end: int) -> tuple[int, int]:
        """The segments of the log before its end, newest first; where the copy begins and ends."""
        begin = end
        # A log without a message has this directory, too: without it the copy is no store.
        place = self.target / "commitlog"
        place.mkdir(mode=0o700)
        for file in sorted(self.place.log.iterdir(), reverse=True):
            if not file.name.isdigit() or int(file.name) >= end:
                continue
            start = int(file.name)
            try:
                with file.open("rb") as source:
                    size = os.fstat(source.fileno()).st_size
                    pieces = chunks(source, min(size, end - start), self.unread)
                    copy = self.written(file, pieces, size=size, to=place / file.name)
            except FileNotFoundError:
                break
            if not file.exists():
                # Its broker shortens what it has deleted, so that parts of it may be missing here.
                copy.unlink()
                break
            begin = start
        return begin, end

    def written(
        self,
        file: Path,
        pieces: Iterator[bytes],
        *,
        size: int | None = None,
        to: Path | None = None,
    ) -> Path:
        """Write and sync a copy, at the same place below the target; `size`: with zeros behind."""
        to = to or self.target / file.relative_to(self.place.root)
        mode = file.stat().st_mode & 0o777
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with to.open("xb") as target:
            os.fchmod(target.fileno(), mode)
            for piece in pieces:
                # A block of zeros is left out, as it is in the file itself.
                if piece.count(0) == len(piece):
                    target.seek(len(piece), os.SEEK_CUR)
                else:
                    target.write(piece)
                    self.bytes += len(piece)
                self.advance(len(piece))
            target.truncate(target.tell() if size is None else size)
            target.flush()
            os.fsync(target.fileno())
        self.files += 1
        return to

    def sync(self) -> None:
        """Have the names on disk, too."""
        for folder, _, _ in os.walk(self.target):
            sync_folder(Path(folder))


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def chunks(source: BinaryIO, end: int, unread: list[Unread] | None = None) -> Iterator[bytes]:
    """The bytes of a file up to `end`; zeros for blocks that the disk cannot read, which are added
    to `unread`. Raises: OSError, without that also for those.
    """
    from aerobee.store.files.read_around import read_around

    def pread(size: int, at: int) -> bytes:
        try:
            return os.pread(source.fileno(), size, at)
        except OSError as error:
            raise OSError(error.errno, f"byte {at}: {error.strerror}", source.name) from error

    position = 0
    for piece, failed in read_around(pread, 0, end, CHUNK_BYTES):
        stop = position + len(piece)
        if failed is not None:
            if unread is None:
                raise failed
            begin = position
            if unread and (unread[-1].path, unread[-1].end) == (source.name, position):
                begin = unread.pop().begin
            unread.append(Unread(source.name, begin, stop))
        position = stop
        yield piece


def units_end(data: bytes) -> int:
    """The end of the units in a file of a consume queue: the place of the first empty one."""
    for position in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
        if not any(data[position + 8 : position + 12]):
            return position
    return len(data)
