"""Messages that were stored once, made ready to be sent again: what a broker added is taken off.

Used by every job that sends: the ids and the users' properties are kept, delays and retries do not
happen twice, and `AB_REPLAY` says which run sent the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from aerobee.message import RESERVED_PROPERTIES
from aerobee.spark.jobs.common import gathered, pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

__all__ = [
    "BORN",
    "NEEDED",
    "REPLAY",
    "Sending",
    "is_ours_to_send",
    "new_run",
    "outgoing",
    "planned",
    "send",
    "sending_options",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What is said of sending again: which messages, where to, under which name, and whether."""

    condition: str | None
    to_topic: str | None
    run: str
    options: Mapping[str, str]
    yes: bool

    def chosen(self, messages: DataFrame) -> DataFrame:
        """The messages that the condition is true of. Raises: AnalysisException if it is none."""
        return messages if self.condition is None else messages.where(self.condition)

    def target(self) -> Column:
        """The topic of each message."""
        from pyspark.sql import functions as sql

        return sql.col("topic") if self.to_topic is None else sql.lit(self.to_topic)

    def tell(self, sent: DataFrame | None) -> None:
        """Say on stderr what came of the run: `sent` is the answer of `send`, if it was asked."""
        told = "nothing to send" if self.yes else "nothing sent: say --yes"
        click.echo(told if sent is None else f"sent with {REPLAY}={self.run}", err=True)


def _sending(run: str | None, to_option: tuple[str, ...], **rest: Any) -> Sending:
    """Raises: ConfigurationError."""
    return Sending(run=run or new_run(), options=pairs(to_option, "--to-option"), **rest)


sending_options = gathered(
    (
        click.option(
            "--where", "condition", metavar="SQL", help="Only these rows: \"tags = 'a'\"."
        ),
        click.option(
            "--to-topic", metavar="TOPIC", help="Where they go; else where they came from."
        ),
        click.option(
            "--run", metavar="NAME", help="Value of the property AB_REPLAY; else the time."
        ),
        click.option(
            "--to-option",
            multiple=True,
            metavar="KEY=VALUE",
            help="A write option of format aerobee.",
        ),
        click.option("--yes", is_flag=True, help="Send; without, only say what would be sent."),
    ),
    "sending",
    _sending,
    ("condition", "to_topic", "run", "to_option", "yes"),
)


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


def send(rows: DataFrame, name_server: str, options: Mapping[str, str]) -> DataFrame:
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
