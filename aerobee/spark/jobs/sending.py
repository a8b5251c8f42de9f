"""Messages that were stored once, made ready to be sent again: what a broker added is taken off.

Used by every job that sends: the ids and the users' properties are kept, delays and retries do not
happen twice, and `AB_REPLAY` says which run sent the message.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aerobee.message import RESERVED_PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BORN", "NEEDED", "REPLAY", "is_ours_to_send", "new_run", "outgoing", "planned", "send"]

REPLAY = "AB_REPLAY"
"""Property with the name of the run that sent a message again."""
NEEDED = (
    *("topic", "brokerName", "queueId", "queueOffset"),
    *("body", "tags", "keys", "properties", "msgId", "flag"),
)
"""The columns of a read that `outgoing` wants."""
BORN = "bornTimestamp"
"""Beside them, for messages that are to keep the time of their birth."""
SPENT = r"^(AB_|INNER_|TIMER_|__CRC32#)"
"""Properties of an earlier way of the message, beside the reserved ones."""


def is_ours_to_send(name: Column) -> Column:
    """Whether a property of this name is the user's."""
    return ~name.isin(*sorted(RESERVED_PROPERTIES)) & ~name.rlike(SPENT)


def outgoing(messages: DataFrame, topic: Column, run: str, *, keep_queues: bool) -> DataFrame:
    """Rows for `format("aerobee")`, from rows with NEEDED; born when they were if they have BORN.

    `keep_queues` sends each to the queue id that it had; else its sharding key, if any, decides.
    The key is kept either way.
    """
    from pyspark.sql import functions as sql

    given = sql.coalesce("properties", sql.create_map().cast("map<string,string>"))
    kept = sql.map_filter(given, lambda name, _value: is_ours_to_send(name))
    return messages.select(
        topic.alias("topic"),
        *("body", "tags", "keys"),
        sql.map_concat(kept, sql.create_map(sql.lit(REPLAY), sql.lit(run))).alias("properties"),
        *("msgId", "flag"),
        given["__SHARDINGKEY"].alias("shardingKey"),
        *(["queueId"] if keep_queues else []),
        *([BORN] if BORN in messages.columns else []),
    )


def planned(rows: DataFrame) -> DataFrame:
    """What rows of `outgoing` come to: messages and bytes of bodies per target topic."""
    return rows.groupBy("topic").agg(*_amount()).orderBy("topic")


def send(rows: DataFrame, name_server: str, options: dict[str, str]) -> DataFrame:
    """Write rows of `outgoing` to a cluster; returns after every acknowledgement.

    The answer is one row: messages and bytes of bodies sent. They are counted on the way, since
    counting before would read everything twice, and from a topic that has grown in between.
    """
    from pyspark.sql import Observation

    amount = Observation()
    writer = rows.observe(amount, *_amount()).write.format("aerobee").mode("append")
    writer.option("nameServer", name_server).options(**options).save()
    sent = amount.get
    found = [(sent["messages"], sent["bodyBytes"])]
    return rows.sparkSession.createDataFrame(found, "messages bigint, bodyBytes bigint")


def _amount() -> tuple[Column, Column]:
    """Messages and bytes of bodies."""
    from pyspark.sql import functions as sql

    size = sql.coalesce(sql.sum(sql.length("body").cast("bigint")), sql.lit(0).cast("bigint"))
    return sql.count("*").alias("messages"), size.alias("bodyBytes")


def new_run() -> str:
    """A name for a run, from the time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
