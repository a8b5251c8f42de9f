"""Job `stats`: throughput, sizes and store latency per window, or how late delayed messages came.

Both tables are aggregates in Spark SQL; no message body is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import (
    output_options,
    run_as_program,
    session_options,
    source_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from aerobee.spark.jobs.common import Output, Session, Source

__all__ = ["COLUMNS", "LEVELS", "command", "delays", "level_ms", "main", "rates"]

COLUMNS = ("topic", "storeSize", "bornTimestamp", "storeTimestamp", "properties")
"""What both tables are made of."""
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""A broker's messageDelayLevel, unless it has another."""
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
PARKED = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "RETRY_TOPIC")
"""Properties of messages that were stored long after they were born because somebody asked so."""
QUANTILES = (0.5, 0.9, 0.99)


def rates(messages: DataFrame, window: str) -> DataFrame:
    """Per topic and window of store time: how many, how large, how long from born to stored.

    Sizes are bytes of whole records. Latency is of messages that nobody delayed, in ms; it can be
    negative where clocks differ. Source columns: COLUMNS.
    """
    from pyspark.sql import functions as sql

    held = sql.exists(sql.map_keys("properties"), lambda name: name.isin(*PARKED, "TRAN_MSG"))
    born_ms, store_ms = sql.unix_millis("bornTimestamp"), sql.unix_millis("storeTimestamp")
    latency = sql.when(sql.coalesce(held, sql.lit(False)), None).otherwise(store_ms - born_ms)
    grouped = (
        messages.withColumn("_latency", latency)
        .groupBy("topic", sql.window("storeTimestamp", window).alias("_window"))
        .agg(
            sql.count("*").alias("messages"),
            sql.sum("storeSize").alias("bytes"),
            sql.percentile_approx("storeSize", [0.5, 0.99]).alias("_size"),
            sql.max("storeSize").alias("sizeMax"),
            sql.percentile_approx("_latency", list(QUANTILES)).alias("_late"),
            sql.max("_latency").alias("latencyMaxMs"),
        )
    )
    seconds = (sql.unix_millis("_window.end") - sql.unix_millis("_window.start")) / sql.lit(1000.0)
    return grouped.select(
        sql.col("_window.start").alias("windowStart"),
        sql.col("_window.end").alias("windowEnd"),
        "topic",
        "messages",
        "bytes",
        (sql.col("messages") / seconds).alias("messagesPerSecond"),
        (sql.col("bytes") / seconds).alias("bytesPerSecond"),
        (sql.col("bytes") / sql.col("messages")).alias("sizeMean"),
        *_places("_size", ("sizeP50", "sizeP99")),
        "sizeMax",
        *_places("_late", ("latencyP50Ms", "latencyP90Ms", "latencyP99Ms")),
        "latencyMaxMs",
    ).orderBy("windowStart", "topic")


def delays(messages: DataFrame, levels: str = LEVELS) -> DataFrame:
    """Per topic and delay: how late messages were stored, in ms behind the time asked for.

    Timers count from the time they name; levels and relative timers from the time of birth, so
    what a message took to its broker is in it. Retries are left out. Negative is too early.
    Source columns: COLUMNS. Raises: ConfigurationError for levels that are none.
    """
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    born_ms = sql.unix_millis("bornTimestamp")
    steps = sql.array(*(sql.lit(step) for step in level_ms(levels)))
    asked = {
        "timer": properties["TIMER_DELIVER_MS"].try_cast("bigint"),
        "timer ms": born_ms + properties["TIMER_DELAY_MS"].try_cast("bigint"),
        "timer s": born_ms + properties["TIMER_DELAY_SEC"].try_cast("bigint") * 1000,
    }
    level = properties["DELAY"].try_cast("int")
    kind = sql.concat(sql.lit("level "), level.cast("string"))
    due = born_ms + sql.get(steps, level - 1)
    for name, at in reversed(asked.items()):
        kind = sql.when(at.isNotNull(), sql.lit(name)).otherwise(kind)
        due = sql.coalesce(at, due)
    late = sql.unix_millis("storeTimestamp") - due
    return (
        messages.where(properties["RETRY_TOPIC"].isNull() & properties["REAL_TOPIC"].isNotNull())
        .select("topic", kind.alias("delay"), late.alias("_late_ms"))
        .where("_late_ms is not null")
        .groupBy("topic", "delay")
        .agg(
            sql.count("*").alias("messages"),
            sql.percentile_approx("_late_ms", list(QUANTILES)).alias("_late"),
            sql.min("_late_ms").alias("lateMinMs"),
            sql.max("_late_ms").alias("lateMaxMs"),
        )
        .select(
            *("topic", "delay", "messages", "lateMinMs"),
            *_places("_late", ("lateP50Ms", "lateP90Ms", "lateP99Ms")),
            "lateMaxMs",
        )
        .orderBy("topic", "delay")
    )


def level_ms(levels: str) -> list[int]:
    """The delay of each level in ms, from a broker's `messageDelayLevel`.

    Raises: ConfigurationError.
    """
    try:
        return [int(word[:-1]) * UNIT_MS[word[-1]] for word in levels.split()]
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"--levels {levels!r}: write numbers with s, m, h or d, such as {LEVELS[:9]!r}"
        ) from error


def _places(array: str, names: Sequence[str]) -> list[Column]:
    """The elements of an array as columns; null where there is no array."""
    from pyspark.sql import functions as sql

    return [sql.get(array, sql.lit(place)).alias(name) for place, name in enumerate(names)]


@click.command("stats", short_help="Throughput, sizes, latency, delay accuracy.")
@source_options
@click.option("--window", default="1 minute", metavar="LENGTH", help="Of a row; '1 minute'.")
@click.option("--delays", "wants_delays", is_flag=True, help="How late delayed messages came.")
@click.option("--levels", default=LEVELS, metavar="LIST", help="The broker's messageDelayLevel.")
@output_options
@session_options
def command(
    *,
    source: Source,
    window: str,
    wants_delays: bool,
    levels: str,
    output: Output,
    session: Session,
) -> None:
    """Throughput, record sizes and store latency per topic and window, or delay accuracy.

    Latency is store time minus born time, without delayed messages and retries.
    """
    level_ms(levels)
    with session.opened("stats") as spark:
        messages = source.read(spark, COLUMNS)
        output.deliver(delays(messages, levels) if wants_delays else rates(messages, window))


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
