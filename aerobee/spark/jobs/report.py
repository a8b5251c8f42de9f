"""Job `report`: throughput, latency, lag, topics, delays and dead letters on one HTML page."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import run_as_program, session_options, source_options
from aerobee.spark.jobs.dead_letters import COLUMNS as DEAD_COLUMNS
from aerobee.spark.jobs.dead_letters import Choice, analysed, found
from aerobee.spark.jobs.failures import with_code
from aerobee.spark.jobs.page import Report, render
from aerobee.spark.jobs.stats import COLUMNS, amounts, delays, measured, rates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from aerobee.spark.jobs.common import Session, Source

WINDOWS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800),
)
WINDOWS_MAX = 120
"""The most points of a line in a chart."""
EVERY_TOPIC = ".*"
OF_GROUPS = "%"
"""The prefix of topics for retries and dead letters."""

Rows = list[dict[str, Any]]


def window_s(span_s: float) -> int:
    """The shortest round window that divides a time span into at most WINDOWS_MAX."""
    return next((width for width in WINDOWS_S if span_s / width <= WINDOWS_MAX), WINDOWS_S[-1])


def gathered_report(spark: SparkSession, source: Source, title: str) -> Report:
    """Collect the data of the page. Messages are read once, the rest is queried separately."""
    from pyspark.sql import functions as sql

    messages = source.read(spark, COLUMNS)
    if not (source.topics or source.pattern):
        messages = messages.where(is_of_users())
    sizes = measured(messages).persist()
    try:
        [ends] = sizes.agg(
            sql.unix_millis(sql.min("storeTimestamp")).alias("first"),
            sql.unix_millis(sql.max("storeTimestamp")).alias("last"),
        ).collect()
        width_s = window_s(((ends["last"] or 0) - (ends["first"] or 0)) / 1_000)
        window = f"{width_s} seconds"
        report = Report(
            title=title,
            place=source.place,
            made_at=datetime.now(UTC),
            window_ms=width_s * 1_000,
            rates=rows_of(rates(sizes, window)),
            totals=rows_of(rates(sizes, window, by_topic=False)),
            topics=rows_of(amounts(sizes, "topic").orderBy(sql.desc("messages"), "topic")),
            delays=rows_of(delays(sizes)),
        )
    finally:
        sizes.unpersist()
    return with_groups(spark, source, report)


def is_of_users() -> Column:
    """Whether a topic is neither a system topic nor one of a group, which holds copies."""
    from pyspark.sql import functions as sql

    from aerobee.client.system_names import SYSTEM_PREFIXES, SYSTEM_TOPICS

    others = sql.col("topic").isin(*sorted(SYSTEM_TOPICS))
    for prefix in (*SYSTEM_PREFIXES, OF_GROUPS):
        others |= sql.startswith("topic", sql.lit(prefix))
    return ~others


def with_groups(spark: SparkSession, source: Source, report: Report) -> Report:
    """Add lag and dead letters to the report, if there is a cluster to query."""
    if source.archive:
        return report
    notes = list(report.notes)
    everything = replace(source, topics=(), pattern=None)
    letters, closed = found(spark, everything, Choice(), DEAD_COLUMNS)
    notes += [f"{topic} cannot be read: its dead letters are not counted." for topic in closed]
    report = replace(report, dead_letters=rows_of(analysed(letters)))
    if not source.store:
        lag = spark.read.format("aerobee.lag").option("nameServer", source.name_server).load()
        report = replace(report, lag=rows_of(behind(lag)))
    return replace(report, notes=tuple(notes))


def behind(lag: DataFrame) -> DataFrame:
    """Rows of `format("aerobee.lag")` per group and topic, the largest lag first."""
    from pyspark.sql import functions as sql

    return (
        lag.groupBy("group", "topic")
        .agg(
            sql.sum("lag").alias("lag"),
            sql.max("timeLagMs").alias("timeLagMs"),
            sql.count("*").alias("queues"),
        )
        .orderBy(sql.desc("lag"), "group", "topic")
    )


def rows_of(table: DataFrame) -> Rows:
    """Collect a small table as dicts."""
    return [row.asDict(recursive=True) for row in table.collect()]


@click.command("report", short_help="One HTML page with pictures.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@source_options
@click.option("--overwrite", is_flag=True, help="Replace FILE where it is there already.")
@click.option("--title", default="Messages", help="Heading of the page.")
@session_options
def command(*, file: Path, source: Source, overwrite: bool, title: str, session: Session) -> None:
    """Write FILE, an HTML page: throughput, latency, topics, sizes, lag, dead letters, delays.

    Of all topics of users unless some are named. The page needs nothing beside itself.
    """
    if not (source.topics or source.pattern or source.store or source.archive):
        source = replace(source, pattern=EVERY_TOPIC)
    if not file.absolute().parent.is_dir():
        raise ConfigurationError(f"{file}: there is no directory {file.absolute().parent}")
    if file.exists() and not overwrite:
        raise ConfigurationError(f"{file} is there already: say --overwrite, or give another name")
    source.check()
    with session.opened("report") as spark:
        page = render(gathered_report(spark, source, title))
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise with_code(f"{file}: {error.strerror}") from error
    click.echo(f"{file}: {len(page)} bytes", err=True)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
