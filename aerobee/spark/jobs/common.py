"""The common parts of all jobs: options, Spark session, errors and output table.

A job is a click command in a module of this package. The same command runs as `aerobee spark JOB`
and as a file under `spark-submit`. This module loads pyspark only when a session is opened, so
`--help` works without it.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import reduce, wraps
from operator import or_
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import click

from aerobee.cli.arguments import only_texts
from aerobee.cli.border import exit_code_of
from aerobee.cli.options import namesrv_option
from aerobee.cli.output import echo, escaped, write_json
from aerobee.client.settings.client import name_servers
from aerobee.client.system_names import SYSTEM_PREFIXES, SYSTEM_TOPICS
from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.failures import plainly
from aerobee.spark.jobs.places import check_apart, literal
from aerobee.store.format.record import NOT_QUEUED
from aerobee.whole_number import epoch_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.options import ReadOptions, StoreOptions

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = ("parquet", "json", "csv")
MODES = ("error", "append", "overwrite")
ROWS_MAX = 1_000
CELL_MAX = 60
"""The most characters of a cell in a printed table."""
CSV = {
    "header": "true",
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
"""As in RFC 4180: Spark alone escapes quotes by backslashes, and strips texts."""
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a session that a job starts; `--conf` overrides them."""
INSTALL_HINT = "install it with: pip install 'aerobee[spark]'"
JAVA_HINT = "Spark 4 needs Java 17 or later: install a JRE and have `java` on PATH or set JAVA_HOME"


# ── Options ──


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Parse `KEY=VALUE` words to a dict. Raises: ConfigurationError."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"{option} {word!r}: write KEY=VALUE")
        pairs[key] = value
    return pairs


def instant_ms(text: str | None, option: str) -> int | None:
    """Parse milliseconds since 1970, or an ISO 8601 text (local time without a zone).

    Raises: ConfigurationError.
    """
    try:
        if text is None or (since_1970 := epoch_ms(text)) is not None:
            return None if text is None else since_1970
    except ValueError as error:
        raise ConfigurationError(f"{option} {text}: {error}") from None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{option} {text!r}: write 2025-01-31T12:00, or milliseconds since 1970"
        ) from error


def window_ms(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Both ends of what is read, in ms. Raises: ConfigurationError, also where they are swapped."""
    begin, end = instant_ms(since, "--since"), instant_ms(until, "--until")
    if begin is not None and end is not None and begin > end:
        raise ConfigurationError(f"--since {since} is after --until {until}; swap them")
    return begin, end


def gathered(
    options: Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]],
    name: str,
    make: Callable[..., Any],
    keys: Sequence[str],
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A decorator that adds options to a command and passes their values as one object `name`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def called(**values: Any) -> R:
            values[name] = make(**{key: values.pop(key) for key in keys})
            return function(**values)

        decorated: Callable[..., R] = called
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session of a job: a master (None: Spark's own choice) and settings."""

    master: str | None = None
    conf: tuple[str, ...] = ()

    @contextmanager
    def opened(self, job: str) -> Iterator[SparkSession]:
        """A session with the project's formats; a session that existed before stays open.

        Errors of Spark are raised as AerobeeError, those of the data sources as they were.
        Raises: ConfigurationError without PySpark or Java.
        """
        spark, ours = self._started(job)
        try:
            with plainly():
                yield spark
        finally:
            if ours:
                spark.stop()

    def _started(self, job: str) -> tuple[SparkSession, bool]:
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise ConfigurationError(f"PySpark is not here ({error}); {INSTALL_HINT}") from error
        from aerobee.spark import register

        there = SparkSession.getActiveSession()
        if there is not None:
            return there, False
        spark = self._new(job)
        with plainly():
            register(spark)
        return spark, True

    def _new(self, job: str) -> SparkSession:
        """Start a session. Raises: ConfigurationError."""
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        settings = QUIET | pairs(self.conf, "--conf")
        _refuse_connect(self.master, settings)
        builder = SparkSession.builder.appName(f"aerobee {job}")
        if self.master is not None:
            builder = builder.master(self.master)
        if self.master is None or self.master.startswith("local"):
            # Otherwise Spark uses the `python3` of PATH, which may lack Aerobee.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _require_java()
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise ConfigurationError(f"Spark did not start: {error}; {JAVA_HINT}") from error


session_options = gathered(
    (
        click.option("--master", metavar="URL", help="Spark master, such as local[4]."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
    ),
    "session",
    Session,
    ("master", "conf"),
)


def _refuse_connect(master: str | None, settings: Mapping[str, str]) -> None:
    """Refuse a session of Spark Connect, which has no driver in this process.

    Raises: ConfigurationError.
    """
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if (master or "").startswith("sc://"):
        remote = master
    if remote:
        raise ConfigurationError(
            f"jobs need a Spark driver in their own process, and {remote} is Spark Connect: unset "
            "SPARK_REMOTE and spark.remote, and give --master"
        )


def _require_java() -> None:
    """Check that Spark can start a Java. Raises: ConfigurationError."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(program) is None:
        raise ConfigurationError(f"{program} is not there; {JAVA_HINT}")


# ── Input ──


@dataclass(frozen=True, slots=True)
class Source:
    """The source of messages: a broker, a store directory, or Parquet files of an archive."""

    namesrv: str | None = None
    store: str | None = None
    archive: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    since: str | None = None
    until: str | None = None
    options: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """A description of the source for messages."""
        return self.store or self.archive or self.name_server

    @property
    def name_server(self) -> str:
        """The name servers, from option, environment or default. Raises: ConfigurationError."""
        return ";".join(name_servers(self.namesrv))

    def read(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """These columns of the messages stored in [since, until). Raises: ConfigurationError."""
        since_ms, until_ms = window_ms(self.since, self.until)
        wanted = dict.fromkeys([*columns, "storeTimestamp"])
        messages = self._loaded(spark, tuple(wanted), since_ms, until_ms)
        if since_ms is not None:
            messages = messages.where(f"storeTimestamp >= timestamp_millis({since_ms})")
        if until_ms is not None:
            messages = messages.where(f"storeTimestamp < timestamp_millis({until_ms})")
        return messages.select(*columns)

    def check(self) -> ReadOptions | StoreOptions | None:
        """The options of the read, None for an archive, before Spark is started.

        Raises: ConfigurationError for wrong ones.
        """
        if self.store is not None and self.archive is not None:
            raise ConfigurationError("--store and --archive: give one of them")
        if self.archive is not None:
            return None
        from aerobee.spark.options import read_options, store_options

        options = self._options(*window_ms(self.since, self.until))
        if self.store is not None:
            return store_options(options)
        return read_options(options, stream=False)

    def _loaded(
        self,
        spark: SparkSession,
        columns: Sequence[str],
        since_ms: int | None,
        until_ms: int | None,
    ) -> DataFrame:
        self.check()
        if self.archive is not None:
            return self._archived(spark)
        options = {"columns": ",".join(columns)} | self._options(since_ms, until_ms)
        name = "aerobee" if self.store is None else "aerobee.store"
        return spark.read.format(name).options(**options).load()

    def _options(self, since_ms: int | None, until_ms: int | None) -> dict[str, str]:
        """The options of the read, except its columns. Raises: ConfigurationError."""
        options = self._bounds(since_ms, until_ms)
        if self.store is not None:
            options["path"] = self.store
            if self.topics:
                options["topics"] = ",".join(self.topics)
            if self.pattern is not None:
                raise ConfigurationError("--topic-pattern reads a broker; with --store say --topic")
            return self._with_own(options)
        if bool(self.topics) == bool(self.pattern):
            raise ConfigurationError("give --topic or --topic-pattern")
        options["nameServer"] = self.name_server
        if since_ms is not None:
            # A queue without newer messages has nothing to read, which is no error.
            options["startingOffsetsByTimestampStrategy"] = "latest"
        options |= {"subscribe": ",".join(self.topics)} if self.topics else {}
        options |= {"subscribePattern": self.pattern} if self.pattern else {}
        return self._with_own(options)

    def _with_own(self, options: Mapping[str, str]) -> dict[str, str]:
        """Add the options of `--option`, which override the given ones in any spelling."""
        both = dict(options) | pairs(self.options, "--option")
        return {name.lower(): text for name, text in both.items()}

    def _archived(self, spark: SparkSession) -> DataFrame:
        """The messages that a read of the store would have, too: an archive has all records."""
        messages = spark.read.parquet(literal(str(self.archive)))
        if "sysFlag" in messages.columns:
            messages = messages.where(messages.sysFlag.bitwiseAND(NOT_QUEUED) == 0)
        if self.topics:
            return messages.where(messages.topic.isin(*self.topics))
        messages = messages.where(~of_system(messages.topic))
        return messages.where(messages.topic.rlike(self.pattern)) if self.pattern else messages

    @staticmethod
    def _bounds(since_ms: int | None, until_ms: int | None) -> dict[str, str]:
        bounds = {"startingTimestamp": since_ms, "endingTimestamp": until_ms}
        return {name: str(value) for name, value in bounds.items() if value is not None}


def of_system(topic: Column) -> Column:
    """Whether a topic is a system topic, as `is_system`."""
    begins = [topic.startswith(prefix) for prefix in SYSTEM_PREFIXES]
    return reduce(or_, begins, topic.isin(*sorted(SYSTEM_TOPICS)))


def cluster_at(name_server: str) -> Cluster:
    """The driver's own connection to the cluster, with the account and TLS of the environment."""
    from aerobee.spark.brokers import cluster_of
    from aerobee.spark.cluster_options import cluster_options

    options = cluster_options(name_server)
    return cluster_of(options.name_servers, options.access)


topic_option = click.option("--topic", multiple=True, help="A topic, several with ',' or repeated.")
since_option = click.option("--since", metavar="TIME", help="Stored at or after: ISO 8601, or ms.")
until_option = click.option("--until", metavar="TIME", help="Stored before: ISO 8601, or ms.")


def named(words: Sequence[str]) -> tuple[str, ...]:
    """The names in words that may hold several, separated by commas."""
    return tuple(name for word in words for name in word.split(",") if name)


def _source(topic: tuple[str, ...], option: tuple[str, ...], **rest: Any) -> Source:
    """The source that the options name. Raises: ConfigurationError for an invalid time."""
    window_ms(rest["since"], rest["until"])
    return Source(topics=named(topic), options=option, **rest)


source_options = gathered(
    (
        namesrv_option,
        click.option("--store", metavar="DIR", help="Read a store directory, not a broker."),
        click.option("--archive", metavar="PATH", help="Read Parquet files of `archive`."),
        topic_option,
        click.option("--topic-pattern", "pattern", metavar="REGEX", help="Topics by their names."),
        since_option,
        until_option,
        click.option("--option", multiple=True, metavar="KEY=VALUE", help="Of the data source."),
    ),
    "source",
    _source,
    ("namesrv", "store", "archive", "topic", "pattern", "since", "until", "option"),
)


# ── Output ──


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether a path, in Spark's notation, names a file or a directory."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(context.hadoopConfiguration()).exists(place))


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a job: files for dashboards, and lines on stdout."""

    path: str | None = None
    form: str = "parquet"
    mode: str = "error"
    as_json: bool = False
    rows_max: int = ROWS_MAX

    def check(self, spark: SparkSession, *read: str | None) -> None:
        """Refuse a path that exists already, or is not apart from the directories that are read,
        before anything is done, above all before a send.

        Raises: ConfigurationError.
        """
        if self.path is None:
            return
        check_apart(spark, self.path, *read)
        if self.mode == MODES[0] and is_there(spark, self.path):
            raise ConfigurationError(
                f"--output {self.path} is there already: say --mode append or --mode overwrite, "
                "or give another path"
            )

    def deliver(self, table: DataFrame) -> list[dict[str, Any]]:
        """Write the table to `--output`, and print up to `rows_max` rows of it.

        It is computed once. Returns the printed rows.
        """
        table = table.persist()
        try:
            if self.path is not None:
                writer = table.write.mode(self.mode)
                options = CSV if self.form == "csv" else {}
                writer.format(self.form).options(**options).save(self.path)
            rows = [row.asDict(recursive=True) for row in table.limit(self.rows_max + 1).collect()]
        finally:
            table.unpersist()
        self.show(rows[: self.rows_max], table.columns)
        if len(rows) > self.rows_max:
            echo(f"aerobee: only the first {self.rows_max} rows are shown", err=True)
        return rows[: self.rows_max]

    def show(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print rows on stdout: a JSON object per line, or a table for people."""
        rows = [{name: _zoned(value) for name, value in row.items()} for row in rows]
        if self.as_json:
            for row in rows:
                write_json(row)
        else:
            echo(table_text(rows, columns))


output_options = gathered(
    (
        click.option("--output", "path", metavar="PATH", help="Write the table there too."),
        click.option(
            "--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], help="Of --output."
        ),
        click.option(
            "--mode", type=click.Choice(MODES), default=MODES[0], help="Where --output exists."
        ),
        click.option(
            "--json", "--jsonl", "as_json", is_flag=True, help="One JSON object per line."
        ),
        click.option(
            "--rows", "rows_max", type=click.IntRange(1), default=ROWS_MAX, help="Rows printed."
        ),
    ),
    "output",
    Output,
    ("path", "form", "mode", "as_json", "rows_max"),
)


def _zoned(value: Any) -> Any:
    """A time with its zone: Spark gives the local time of this process without one."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.astimezone()
    return value


def table_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Format rows as aligned columns under their names, numbers to the right."""
    if not rows:
        return "no rows"
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [isinstance(rows[0][column], int | float) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in ([*columns], *cells)
    ]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """Format a value for people; null is a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        # Small numbers keep two digits: 0.0 messages per second would look like none.
        return f"{value:,.1f}" if not value or abs(value) >= 1 else f"{value:.2g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    text = escaped(str(value))
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


# ── Running ──


def run_as_program(command: click.Command, arguments: list[str] | None = None) -> NoReturn:
    """The `main` of a job: run its command and exit with its code, errors in a line on stderr."""
    only_texts(command)

    def run(arguments: list[str] | None) -> Any:
        return command.main(args=arguments, standalone_mode=False)

    sys.exit(exit_code_of(run, arguments))
