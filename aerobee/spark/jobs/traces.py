"""Job `traces`: traces of producers and consumers, one row per message and try of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.errors import AerobeeError, RouteNotFoundError
from aerobee.spark.jobs.common import (
    output_options,
    run_as_program,
    session_options,
    source_options,
)
from aerobee.store.format.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aerobee.spark.jobs.common import Output, Session, Source

TRACE_HINT = "a broker has it with traceTopicEnable=true; clients fill it when they trace"


def summary(table: DataFrame) -> DataFrame:
    """Rows of `trace.joined` per topic and consumer group: number, durations, failures.

    Times are ms. `pending` tries have begun and not ended; a null group is of messages whose
    consumption was not traced.
    """
    from pyspark.sql import functions as sql

    begun = sql.col("consumeTime").isNotNull()
    return (
        table.groupBy("topic", "consumerGroup")
        .agg(
            sql.count_distinct("msgId").alias("messages"),
            sql.count_if(begun).alias("tries"),
            sql.count_if(sql.col("consumeSuccess") == sql.lit(False)).alias("failed"),
            sql.count_if(begun & sql.col("contextCode").isNull()).alias("pending"),
            sql.percentile_approx("latencyMs", 0.5).alias("latencyP50Ms"),
            sql.percentile_approx("latencyMs", 0.99).alias("latencyP99Ms"),
            sql.percentile_approx("consumeCostMs", 0.5).alias("consumeP50Ms"),
            sql.percentile_approx("consumeCostMs", 0.99).alias("consumeP99Ms"),
        )
        .orderBy("topic", "consumerGroup")
    )


@click.command("traces", short_help="Message traces: sends joined with consumption.")
@source_options
@click.option("--summary", "wants_summary", is_flag=True, help="A row per topic and group.")
@click.option("--of", "of_topic", metavar="TOPIC", help="Traces of this topic's messages only.")
@output_options
@session_options
def command(
    *, source: Source, wants_summary: bool, of_topic: str | None, output: Output, session: Session
) -> None:
    """Read RMQ_SYS_TRACE_TOPIC (or --topic) and join each send with its consumption."""
    if not (source.topics or source.pattern):
        source = replace(source, topics=(TRACE_TOPIC,))
    try:
        deliver(source, of_topic, output, session, wants_summary=wants_summary)
    except RouteNotFoundError as error:
        raise AerobeeError(f"{error}; {TRACE_HINT}") from error


def deliver(
    source: Source, of_topic: str | None, output: Output, session: Session, *, wants_summary: bool
) -> None:
    """Read, join and print. Raises: RouteNotFoundError without a trace topic."""
    # Anybody can send there what is no trace.
    source = replace(source, options=("onUnreadable=keep", *source.options))
    source.check()
    with session.opened("traces") as spark:
        output.check(spark, source.store, source.archive)
        from aerobee.spark.trace import joined, parse

        # Sends, and both ends of tries, are three scans of the same records.
        records = parse(source.read(spark, ["body"])).persist()
        try:
            table = joined(records)
            if of_topic is not None:
                table = table.where(table.topic == of_topic)
            output.deliver(summary(table) if wants_summary else table.orderBy("sendTime", "msgId"))
        finally:
            records.unpersist()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
