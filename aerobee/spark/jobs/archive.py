"""Job `archive`: copies full segments of a log into a table, before the broker deletes them.

        full segments that the manifest does not have
          → rows of `aerobee.store`, bodies checked against their CRCs → the table, by segment
          → read back and counted → entry in the manifest → mark in the store root

Invariant: segments of another log never get into the archive (`same_log`), and a shorter copy never
replaces a longer one. Each step is durable before the next one begins, and may be repeated: the
next run completes or replaces what a killed run left. So every record of a marked segment is in the
table exactly once. Source: spark §9.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from zlib import crc32

import click

from aerobee.cli.output import echo
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.common import (
    Output,
    run_as_program,
    session_options,
)
from aerobee.spark.jobs.failures import plain
from aerobee.spark.jobs.manifest import (
    MANIFEST,
    Entry,
    Manifest,
    make_marks,
    mark,
    marked,
)
from aerobee.spark.jobs.places import Place, alone, check_apart, sync, sync_tree
from aerobee.spark.jobs.same_log import (
    OF_A_RECORD,
    SegmentMatch,
    compared,
    ends_of,
    holds,
    id_of_log,
    id_of_store,
    keep_id,
)
from aerobee.spark.jobs.sending import has_stored_crc, is_as_stored, is_compressed
from aerobee.spark.jobs.tables import KINDS, SEGMENT, check_kind
from aerobee.spark.rows.columns import COLUMNS
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import BLANK_MAGIC, START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from aerobee.spark.jobs.common import Session
    from aerobee.spark.storefiles.files import SegmentFile
    from aerobee.spark.storefiles.segments import Segment

LOCK = ".lock"
STAGING = ".spark-staging-"
SEGMENTS_PER_WRITE = 4
PIECE_BYTES = 8 << 20
LEFT_AS_STORED = "bodies cannot be decompressed, and are archived as they are stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The parameters of an archive run: the store, the table, and the mode."""

    store: Path
    output: str
    kind: str = "parquet"
    manifest: str | None = None
    """The directory of the manifest entries; below `output` by default."""
    broker_name: str | None = None
    marks: bool = True
    """Whether to write marks for the broker and a lock against other runs into the store root."""
    tail: bool = False
    """Whether to archive the growing end of the log, too; every later run replaces it."""
    replace: bool = False
    """Whether to replace segments that begin as the archived ones and continue differently."""
    log_id: str = ""
    """The id of the log, for a store that has lost it; empty: that of the store, or a new one."""
    segments_per_write: int = SEGMENTS_PER_WRITE
    job: str = ""

    @property
    def manifest_path(self) -> str:
        """The directory of the manifest. Raises: ConfigurationError for a table in a catalog."""
        if self.manifest is not None:
            return self.manifest
        if not KINDS[self.kind].is_path:
            raise ConfigurationError(f"--format {self.kind} needs --manifest DIR for its entries")
        return f"{self.output.rstrip('/')}/{MANIFEST}"


class Outcome(NamedTuple):
    """The result of a run: the new entries, and the error text of each failed segment, by name."""

    entries: list[Entry]
    failed: dict[str, str]


def archive(spark: SparkSession, task: Archive) -> Outcome:
    """Archive the segments that are not archived yet; if one fails, the others continue.

    Raises: ConfigurationError, AerobeeError if the run cannot start.
    """
    from aerobee.spark.storefiles.files import segments_of

    check_kind(spark, task.kind)
    run = Run(spark, task)
    # Checked first, so that a directory without a store gets no marks.
    segments_of(task.store)
    with ExitStack() as held:
        if task.marks:
            lock = make_marks(task.store) / LOCK
            held.enter_context(alone(spark, lock, f"an archive job of {task.store}"))
            run.clear()
        segments = segments_of(task.store)
        missing = run.missing(segments)
        tail = [segment for segment in missing if segment == segments[-1]]
        work = deque(grouped(missing[: len(missing) - len(tail)], task.segments_per_write))
        if task.tail and tail:
            work.append(tail)
        return run.through(work, last=segments[-1] if segments else None)


class Run:
    """One run of the job."""

    def __init__(self, spark: SparkSession, task: Archive) -> None:
        self.spark = spark
        self.task = task
        self.kind = KINDS[task.kind]
        self.manifest = Manifest(Place(spark, task.manifest_path))
        self.place = Place(spark, task.output) if self.kind.is_path else None
        self.known: dict[int, Entry] = {}
        """The entries of the archive."""
        self.log_id = ""

    def clear(self) -> None:
        """Remove the unfinished files of a killed run. Only while no other run is active."""
        if self.place is not None:
            for name in self.place.names():
                if name.startswith(STAGING):
                    self.place.remove(name)

    def missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments to archive; missing marks of archived ones are written.

        Raises: AerobeeError, if segments of another log or longer copies would be replaced.
        """
        task = self.task
        self.known = self.manifest.load()
        log_id = id_of_store(task.store, task.log_id, self.known, task.output)
        matches = compared(segments, self.known, log_id, task.output)
        self.log_id = id_of_log(log_id, self.known)
        if task.marks:
            keep_id(task.store, self.log_id)
        missing = []
        for segment in segments:
            # A segment that was deleted since it was compared is asked for no more.
            with suppress(FileNotFoundError):
                entry, match = self.known.get(segment.start), matches.get(segment.start)
                if entry is None or (match and not self.is_archived(segment, entry, match)):
                    missing.append(segment)
        return missing

    def is_archived(self, segment: Segment, entry: Entry, match: SegmentMatch) -> bool:
        """Whether a segment is archived already; a missing mark is written.

        Raises: AerobeeError, if the archive has another segment of that name; FileNotFoundError.
        """
        task = self.task
        same = match is SegmentMatch.SAME
        if same and (not entry.sealed or not task.marks or marked(task.store, entry)):
            return entry.sealed
        if same and is_whole_of(segment, entry):
            mark(task.store, entry)
            return True
        if not task.replace:
            raise AerobeeError(
                f"segment {segment.name} of {task.store} is not the one that is archived in "
                f"{task.output} by {entry.job}: give each store its own --output; or, where a "
                "crash took back the end of this log, replace what is archived with --replace"
            )
        return False

    def refuse_unknown(self, group: Sequence[Segment]) -> None:
        """Check rows without an entry: a killed run left them, or another log.

        Raises: AerobeeError, if they are not of this log.
        """
        from pyspark.sql import functions as sql

        there = set(self.place.names()) if self.place is not None else set()
        for segment in group:
            if segment.start in self.known or f"{SEGMENT}={segment.start}" not in there:
                continue
            rows = self.kind.read(self.spark, self.task.output, [segment.start])
            rows = rows.withColumn("storeTimestamp", sql.unix_millis("storeTimestamp"))
            row = rows.orderBy("commitLogOffset").select("commitLogOffset", *OF_A_RECORD).first()
            if row is not None and not holds(segment, row.asDict()):
                raise AerobeeError(
                    f"{self.task.output} has rows of segment {segment.name} that no entry of "
                    f"{self.task.manifest_path} knows, and that are not of this store: give each "
                    "store its own --output, or remove them"
                )

    def through(self, work: deque[list[Segment]], last: Segment | None) -> Outcome:
        """Archive all groups; the segments of a group that fails are retried one by one."""
        from pyspark.errors import PySparkException

        done: list[Entry] = []
        failed: dict[str, str] = {}
        while work:
            group = work.popleft()
            try:
                done += self.group(group, sealed=group[-1] != last)
            except (AerobeeError, PySparkException, OSError) as error:
                if len(group) > 1:
                    work.extendleft([segment] for segment in reversed(group))
                else:
                    cause = error if isinstance(error, AerobeeError) else plain(str(error))
                    failed[group[0].name] = str(cause)
        return Outcome(done, failed)

    def group(self, group: Sequence[Segment], *, sealed: bool) -> list[Entry]:
        """Archive adjacent segments. Raises: AerobeeError, PySparkException, OSError."""
        from aerobee.spark.storefiles.files import SegmentFile

        task = self.task
        starts = [segment.start for segment in group]
        self.refuse_unknown(group)
        with ExitStack() as held:
            # A segment that its broker deletes when it is in the table is compared all the same.
            files = [held.enter_context(SegmentFile(segment)) for segment in group]
            self.kind.write(self.rows(group, sealed=sealed), task.output, starts)
            written = self.kind.read(self.spark, task.output, starts)
            counts = {row[SEGMENT]: row for row in counted(written)}
            for file in files:
                check(file, counts.get(file.segment.start), sealed=sealed)
                if unreadable := counts[file.segment.start]["unreadable"]:
                    echo(f"segment {file.segment.name}: {unreadable} {LEFT_AS_STORED}", err=True)
            entries = [
                entry_of(file, counts[file.segment.start], task.job, self.log_id, sealed=sealed)
                for file in files
            ]
        self.make_durable(starts)
        for entry in entries:
            self.manifest.put(entry)
            if task.marks and sealed:
                mark(task.store, entry)
        return entries

    def rows(self, group: Sequence[Segment], *, sealed: bool) -> DataFrame:
        """All records of the segments, including system topics, with the segment of each."""
        from pyspark.sql import functions as sql

        options = {
            "path": str(self.task.store),
            "excludeSystem": "false",
            "startingPhysicalOffset": str(group[0].start),
            "endingPhysicalOffset": str(group[-1].end),
            "verifyCrc": "true",
            "onCorrupt": "fail",
            "onUnreadable": "keep",
            "sealedOnly": str(sealed).lower(),
            "columns": ",".join(COLUMNS),
        }
        if self.task.broker_name is not None:
            options["brokerName"] = self.task.broker_name
        rows = self.spark.read.format("aerobee.store").options(**options).load()
        segment = sql.lit(group[-1].start)
        for earlier in reversed(group[:-1]):
            at = sql.lit(earlier.start)
            segment = sql.when(rows["commitLogOffset"] < earlier.end, at).otherwise(segment)
        return rows.withColumn(SEGMENT, segment.cast("bigint"))

    def make_durable(self, starts: Sequence[int]) -> None:
        """Sync the files if they are on this machine; other file systems do that by themselves."""
        folder = self.kind.folder(self.spark, self.task.output)
        local = Place(self.spark, folder).local
        if local is not None:
            for part in self.kind.parts(starts):
                sync_tree(local / part)
            sync(local)


def grouped(segments: Sequence[Segment], most: int) -> Iterator[list[Segment]]:
    """Split into runs of adjacent segments, at most `most` in each."""
    group: list[Segment] = []
    for segment in segments:
        if group and (len(group) == most or group[-1].end != segment.start):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


# ── The audit ──


def counted(rows: DataFrame) -> list[Any]:
    """Aggregates of the table per segment, for a comparison with the layout of the log."""
    from pyspark.sql import functions as sql

    plainly = ~is_compressed()
    spoilt = plainly & (~has_stored_crc())
    return (
        rows.groupBy(SEGMENT)
        .agg(
            sql.count("*").alias("records"),
            sql.count_distinct("commitLogOffset").alias("places"),
            sql.sum(sql.col("storeSize").cast("bigint")).alias("bytes"),
            sql.min("commitLogOffset").alias("first"),
            sql.max("commitLogOffset").alias("last"),
            sql.max(sql.col("commitLogOffset") + sql.col("storeSize")).alias("end"),
            sql.sum(spoilt.cast("int")).alias("spoilt"),
            sql.sum(is_as_stored().cast("int")).alias("unreadable"),
            sql.unix_millis(sql.min("storeTimestamp")).alias("oldest"),
            sql.unix_millis(sql.max("storeTimestamp")).alias("newest"),
        )
        .collect()
    )


def check(file: SegmentFile, counts: Any, *, sealed: bool) -> None:
    """Compare the table with the file, whose records follow each other without gaps up to its end.

    All records are there exactly once if there are as many distinct offsets as rows, if the sizes
    add up to the distance from the first offset to the end of the last record, and if only a blank
    follows. Raises: AerobeeError, OSError.
    """
    segment = file.segment
    if counts is None:
        raise AerobeeError(f"segment {segment.name}: nothing of it was written")
    problems = []
    if counts["places"] != counts["records"]:
        problems.append(f"{counts['records']} rows for {counts['places']} records")
    if counts["first"] != segment.start or counts["bytes"] != counts["end"] - segment.start:
        problems.append(
            f"records of {counts['bytes']} bytes between {counts['first']} and {counts['end']}"
        )
    if counts["spoilt"]:
        problems.append(f"{counts['spoilt']} bodies that do not fit their CRC")
    if sealed and not ends_at(file, counts["end"]):
        problems.append(f"a segment that goes on behind {counts['end']}")
    if problems:
        raise AerobeeError(f"segment {segment.name}: read back were {', '.join(problems)}")


def ends_at(file: SegmentFile, end: int) -> bool:
    """Whether the records of a full segment end at `end`: at the end of the file, or at a blank."""
    rest = file.segment.end - end
    if rest == 0:
        return True
    head = file.read(end, end + START.size)
    return len(head) == START.size and START.unpack_from(head) == (rest, BLANK_MAGIC)


def entry_of(file: SegmentFile, counts: Any, job: str, log_id: str, *, sealed: bool) -> Entry:
    """The manifest entry of a segment that was read back. Raises: OSError."""
    segment = file.segment
    first, last = ends_of(file, counts["last"])
    return Entry(
        segment=segment_name(segment.start),
        bytes=segment.size if sealed else counts["bytes"],
        records=counts["records"],
        crc32=crc_of(file) if sealed else 0,
        job=job,
        sealed=sealed,
        min_store_timestamp=counts["oldest"],
        max_store_timestamp=counts["newest"],
        log=log_id,
        first_crc32=first,
        last_offset=counts["last"],
        last_crc32=last,
    )


def is_whole_of(segment: Segment, entry: Entry) -> bool:
    """Whether a segment is byte by byte the one of an entry. Raises: FileNotFoundError, OSError."""
    from aerobee.spark.storefiles.files import SegmentFile

    # A broker that deletes it meanwhile frees nothing of a segment that is held open.
    with SegmentFile(segment) as file:
        return segment.size == entry.bytes and crc_of(file) == entry.crc32


def crc_of(file: SegmentFile) -> int:
    """CRC-32 of a whole segment. Raises: OSError."""
    value, at = 0, file.segment.start
    while piece := file.read(at, min(at + PIECE_BYTES, file.segment.end)):
        value = crc32(piece, value)
        at += len(piece)
    return value


# ── Running ──


def new_job() -> str:
    """A name for a run, from the time and the process."""
    return f"{datetime.now(UTC):archive-%Y%m%dT%H%M%SZ}-{os.getpid()}"


@click.command("archive", short_help="Full log segments into a table, in time.")
@click.option("--store", required=True, metavar="DIR", help="The store root; it may be in use.")
@click.option("--output", required=True, metavar="PATH", help="The table: a path, or its name.")
@click.option("--format", "kind", type=click.Choice(list(KINDS)), default="parquet", help="Of it.")
@click.option("--manifest", metavar="PATH", help="Where the entries are; else below --output.")
@click.option("--broker-name", metavar="NAME", help="Value of the column brokerName.")
@click.option("--mark/--no-mark", "marks", default=True, help="Tell the broker (waitForArchive).")
@click.option("--tail", is_flag=True, help="Take the growing end of the log as well, unmarked.")
@click.option("--replace", is_flag=True, help="Replace what a crash took back.")
@click.option("--log-id", default="", metavar="ID", help="For a store without one: its log's id.")
@click.option(
    "--segments-per-write", type=click.IntRange(1), default=SEGMENTS_PER_WRITE, help="At once."
)
@click.option("--json", "--jsonl", "as_json", is_flag=True, help="One JSON object per line.")
@session_options
def command(*, store: str, output: str, as_json: bool, session: Session, **options: Any) -> None:
    """Archive the full segments of a store that are not archived yet, and tell the broker.

    Every segment is read back and compared with the log before it is marked. A run that was killed
    is repeated by the next one; nothing is lost by it, and nothing is there twice.
    """
    task = Archive(store=Path(store), output=output, job=new_job(), **options)
    with session.opened("archive") as spark:
        if KINDS[task.kind].is_path:
            check_apart(spark, output, store)
        outcome = archive(spark, task)
    shown = [
        {
            "segment": entry.segment,
            "records": entry.records,
            "bytes": entry.bytes,
            "sealed": entry.sealed,
        }
        for entry in outcome.entries
    ]
    Output(as_json=as_json).show(shown, ["segment", "records", "bytes", "sealed"])
    for name, why in outcome.failed.items():
        echo(f"aerobee: segment {name} is not archived: {why}", err=True)
    if outcome.failed:
        raise AerobeeError(f"{len(outcome.failed)} segments are not archived; the others are")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
