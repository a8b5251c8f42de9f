"""Job `stats`: throughput, sizes and store latency per window, or the lateness of delayed messages.

Both tables are aggregates in Spark SQL; no message body is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import (
    output_options,
    run_as_program,
    session_options,
    source_options,
)
from aerobee.spark.jobs.sending import REPLAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from aerobee.spark.jobs.common import Output, Session, Source

COLUMNS = ("topic", "storeSize", "bornTimestamp", "storeTimestamp", "properties")
"""The source columns of both tables."""
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The default of the broker's messageDelayLevel."""
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WINDOW_UNITS = {
    **dict.fromkeys(("ms", "millisecond"), "milliseconds"),
    **dict.fromkeys(("s", "sec", "second"), "seconds"),
    **dict.fromkeys(("m", "min", "minute"), "minutes"),
    **dict.fromkeys(("h", "hour"), "hours"),
    **dict.fromkeys(("d", "day"), "days"),
    **dict.fromkeys(("w", "week"), "weeks"),
}
"""Spark's name of each unit, without its plural."""
HELD = (
    *("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
    *("RETRY_TOPIC", "TRAN_MSG", REPLAY),
)
"""Properties of messages that were stored long after they were born because of a delay."""
QUANTILES = (0.5, 0.9, 0.99)


def measured(messages: DataFrame, levels: str = LEVELS) -> DataFrame:
    """One row per message: size, store time, latency and lateness.

    `latencyMs` is from born to stored, null for messages with a delay; it is negative where clocks
    differ. `delay` and `lateMs` are of delayed messages: the delay that they asked for, and how
    long after it they were stored. Timers count from the time they name, levels and relative timers
    from birth, so the way to the broker is included. Source columns: COLUMNS.
    Raises: ConfigurationError for invalid levels.
    """
    from pyspark.sql import functions as sql

    held = sql.exists(sql.map_keys("properties"), lambda name: name.isin(*HELD))
    store_ms = sql.unix_millis("storeTimestamp")
    latency = store_ms - sql.unix_millis("bornTimestamp")
    delay, due_ms = _asked(levels)
    properties = sql.col("properties")
    delivered = properties["RETRY_TOPIC"].isNull() & properties["REAL_TOPIC"].isNotNull()
    return messages.select(
        *("topic", "storeSize", "storeTimestamp"),
        sql.when(sql.coalesce(held, sql.lit(False)), None).otherwise(latency).alias("latencyMs"),
        sql.when(delivered, delay).alias("delay"),
        sql.when(delivered, store_ms - due_ms).alias("lateMs"),
    )


def _asked(levels: str) -> tuple[Column, Column]:
    """The name of the delay of a message, and its due time in ms; or nulls."""
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    born_ms = sql.unix_millis("bornTimestamp")
    steps = sql.array(*(sql.lit(step) for step in level_ms(levels)))
    level = properties["DELAY"].try_cast("int")
    name, due_ms = sql.concat(sql.lit("level "), level), born_ms + sql.get(steps, level - 1)
    for kind, at_ms in (
        ("timer s", born_ms + properties["TIMER_DELAY_SEC"].try_cast("bigint") * 1000),
        ("timer ms", born_ms + properties["TIMER_DELAY_MS"].try_cast("bigint")),
        ("timer", properties["TIMER_DELIVER_MS"].try_cast("bigint")),
    ):
        name = sql.when(at_ms.isNotNull(), sql.lit(kind)).otherwise(name)
        due_ms = sql.coalesce(at_ms, due_ms)
    return name, due_ms


def amounts(sizes: DataFrame, *keys: Column | str) -> DataFrame:
    """Aggregates of `measured` per keys: number, sizes (of whole records), latencies."""
    from pyspark.sql import functions as sql

    grouped = sizes.groupBy(*keys).agg(
        sql.count("*").alias("messages"),
        sql.sum("storeSize").alias("bytes"),
        sql.avg("storeSize").alias("sizeMean"),
        sql.percentile_approx("storeSize", [0.5, 0.99]).alias("_size"),
        sql.max("storeSize").alias("sizeMax"),
        sql.percentile_approx("latencyMs", list(QUANTILES)).alias("_late"),
        sql.max("latencyMs").alias("latencyMaxMs"),
    )
    made = ("_size", "sizeMax", "_late", "latencyMaxMs")
    return grouped.select(
        *(name for name in grouped.columns if name not in made),
        *_places("_size", ("sizeP50", "sizeP99")),
        "sizeMax",
        *_places("_late", ("latencyP50Ms", "latencyP90Ms", "latencyP99Ms")),
        "latencyMaxMs",
    )


def rates(sizes: DataFrame, window: str) -> DataFrame:
    """`amounts` per window of store time and topic, and per second."""
    from pyspark.sql import functions as sql

    totals = amounts(sizes, sql.window("storeTimestamp", window).alias("_window"), "topic")
    start, end = sql.col("_window.start"), sql.col("_window.end")
    seconds = (sql.unix_millis(end) - sql.unix_millis(start)) / sql.lit(1000.0)
    first = ("topic", "messages", "bytes")
    return totals.select(
        *(start.alias("windowStart"), end.alias("windowEnd"), *first),
        (sql.col("messages") / seconds).alias("messagesPerSecond"),
        (sql.col("bytes") / seconds).alias("bytesPerSecond"),
        *(name for name in totals.columns if name not in ("_window", *first)),
    ).orderBy("windowStart", "topic")


def delays(sizes: DataFrame) -> DataFrame:
    """Aggregates of `measured` per topic and delay: the lateness of storing; negative is early."""
    from pyspark.sql import functions as sql

    return (
        sizes.where("lateMs is not null")
        .groupBy("topic", "delay")
        .agg(
            sql.count("*").alias("messages"),
            sql.percentile_approx("lateMs", list(QUANTILES)).alias("_late"),
            sql.min("lateMs").alias("lateMinMs"),
            sql.max("lateMs").alias("lateMaxMs"),
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


def window_of(text: str) -> str:
    """Convert a length such as `10s` or `1 hour` for Spark. Raises: ConfigurationError."""
    parts = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]+)\s*", text)
    word = parts[2].lower() if parts else ""
    unit = WINDOW_UNITS.get(word) or WINDOW_UNITS.get(word.removesuffix("s"))
    if parts is None or unit is None or int(parts[1]) == 0:
        raise ConfigurationError(f"--window {text!r}: write 10s, 5m, 1h, 1d or 500ms")
    return f"{int(parts[1])} {unit}"


def _places(array: str, names: Sequence[str]) -> list[Column]:
    """The elements of an array as columns; null without an array."""
    from pyspark.sql import functions as sql

    return [sql.get(array, sql.lit(place)).alias(name) for place, name in enumerate(names)]


@click.command("stats", short_help="Throughput, sizes, latency, delay accuracy.")
@source_options
@click.option("--window", default="1m", metavar="LENGTH", help="Of a row: 10s, 5m, 1h.")
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
    # Checked before a JVM is started.
    level_ms(levels)
    window = window_of(window)
    source.check()
    with session.opened("stats") as spark:
        output.check(spark, source.store, source.archive)
        sizes = measured(source.read(spark, COLUMNS), levels)
        output.deliver(delays(sizes) if wants_delays else rates(sizes, window))


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
