"""Prepares stored messages for sending again, for example by removing the broker's properties.

Used by every job that sends: ids and users' properties are kept, delays and retries are not
repeated. `AB_REPLAY` names the run that sent a message and `AB_REPLAY_FROM` the location that it
was read from, so that a run of the same name completes a killed one without duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.output import echo
from aerobee.client.compression import COMPRESSED
from aerobee.client.message import RESERVED_PROPERTIES
from aerobee.spark.jobs.common import cluster_at, gathered, pairs
from aerobee.spark.jobs.waiting import DUE
from aerobee.store.format.record import CRC_MASK
from aerobee.store.format.system_names import WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

__all__ = [
    "BORN",
    "NEEDED",
    "PLACE",
    "REPLAY",
    "ResendOptions",
    "announce",
    "body_as_sent",
    "has_stored_crc",
    "is_as_stored",
    "is_compressed",
    "is_ours_to_send",
    "new_run",
    "not_sent_yet",
    "outgoing",
    "place",
    "planned",
    "send",
    "sending_options",
]

REPLAY = "AB_REPLAY"
"""Property with the name of the run that sent a message again."""
FROM = "AB_REPLAY_FROM"
"""Property with the location that it was read from: what `place` makes."""
CLOCK_SLACK_MS = 3_600_000
"""How far the clocks of brokers may be behind the clock that named a run."""
AS_SENT = "(sysFlag & 1 = 1) <> (crc32(body) & 2147483647 = bodyCRC)"
"""The condition of a body that is as its producer had sent it: one that was compressed is not the
one that was stored any more, and each other one still is.
"""
NOT_AS_SENT = (
    " has a body that is damaged, or was read as it is stored and is still compressed; "
    f'leave such messages out: --where "{AS_SENT}"'
)
RUN_FORMAT = "%Y%m%dT%H%M%S.%fZ"
NEEDED = (
    *("topic", "brokerName", "queueId", "queueOffset", "commitLogOffset"),
    *("body", "tags", "keys", "properties", "msgId", "flag", "sysFlag", "bodyCRC"),
)
"""The columns of a read that `outgoing` needs."""
BORN = "bornTimestamp"
"""A further column, for messages that keep their born time."""
PLACE = "_place"
"""A further column with the location that a message was read from, where its columns do not say."""
SPENT = r"^(AB_|INNER_|TIMER_|__CRC32#)"
"""Properties of an earlier delivery of the message, in addition to the reserved ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendOptions:
    """The options of sending again: which messages, where to, the run's name, and `--yes`."""

    condition: str | None
    to_topic: str | None
    run: str
    again: bool
    """Whether the user named the run, so that an earlier run may have had the name."""
    options: Mapping[str, str]
    yes: bool

    def chosen(self, messages: DataFrame) -> DataFrame:
        """The messages that match the condition. Raises: AnalysisException for an invalid one."""
        return messages if self.condition is None else messages.where(self.condition)

    def target(self) -> Column:
        """The target topic of each message."""
        from pyspark.sql import functions as sql

        return sql.col("topic") if self.to_topic is None else sql.lit(self.to_topic)

    def left(self, messages: DataFrame, name_server: str, topics: Sequence[str]) -> DataFrame:
        """The messages that no run of this name has sent; `topics` are their source topics.

        Raises: NoNameServerError and its subclasses.
        """
        if not self.again:
            return messages
        targets = topics if self.to_topic is None else (self.to_topic,)
        return not_sent_yet(messages, name_server, targets, self.run)

    def tell(self, sent: DataFrame | None) -> None:
        """Print the result of the run on stderr; `sent` is the result of `send`, if it ran."""
        outcome = "nothing to send" if self.yes else "nothing sent: say --yes"
        echo(outcome if sent is None else f"sent with {REPLAY}={self.run}", err=True)


def announce(run: str) -> None:
    """Print the name of the run, for the case that it is interrupted."""
    echo(f"sending with {REPLAY}={run}; if it is interrupted: --run {run}", err=True)


def _sending(run: str | None, to_option: tuple[str, ...], **rest: Any) -> ResendOptions:
    """The options of the command line as one object. Raises: ConfigurationError."""
    again = run is not None
    return ResendOptions(
        run=run or new_run(), again=again, options=pairs(to_option, "--to-option"), **rest
    )


sending_options = gathered(
    (
        click.option(
            "--where", "condition", metavar="SQL", help="Only these rows: \"tags = 'a'\"."
        ),
        click.option(
            "--to-topic", metavar="TOPIC", help="Where they go; else where they came from."
        ),
        click.option(
            "--run",
            metavar="NAME",
            help="Name of the run, else the time; what one of that name has sent is left out.",
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
    """Whether a property of this name belongs to the user."""
    return ~name.isin(*sorted(RESERVED_PROPERTIES)) & ~name.rlike(SPENT)


def outgoing(messages: DataFrame, topic: Column, run: str, *, keep_queues: bool) -> DataFrame:
    """Rows for `format("aerobee")`, from rows with NEEDED; with BORN they keep their born time.

    With DUE, those whose time has not come are sent as timers. `keep_queues` sends each to the same
    queue id; otherwise its sharding key, if any, decides. The key is kept in any case.
    """
    from pyspark.sql import functions as sql

    properties = sql.coalesce("properties", sql.create_map().cast("map<string,string>"))
    kept = sql.map_filter(properties, lambda name, _value: is_ours_to_send(name))
    return messages.select(
        topic.alias("topic"),
        body_as_sent(messages).alias("body"),
        *("tags", "keys"),
        sql.map_concat(
            kept, sql.create_map(sql.lit(REPLAY), sql.lit(run), sql.lit(FROM), place_of(messages))
        ).alias("properties"),
        *("msgId", "flag"),
        properties["__SHARDINGKEY"].alias("shardingKey"),
        *(["queueId"] if keep_queues else []),
        *([BORN] if BORN in messages.columns else []),
        *([_not_past(DUE)] if DUE in messages.columns else []),
    )


def is_compressed() -> Column:
    """Whether the body of a message was compressed by its producer."""
    from pyspark.sql import functions as sql

    return sql.col("sysFlag").bitwiseAND(COMPRESSED) != 0


def has_stored_crc() -> Column:
    """Whether a body is byte by byte that of its record."""
    from pyspark.sql import functions as sql

    return sql.crc32("body").bitwiseAND(CRC_MASK) == sql.col("bodyCRC")


def is_as_stored() -> Column:
    """Whether the body of a row is compressed: it could not be decompressed, or nobody tried."""
    return is_compressed() & has_stored_crc()


def body_as_sent(messages: DataFrame) -> Column:
    """The bodies, each as it was sent: a copy of a damaged one, or of one that is still compressed,
    would look whole.

    Where one is not, the query fails with the place of its message.
    """
    from pyspark.sql import functions as sql

    why = sql.concat(sql.lit("the message at "), place_of(messages), sql.lit(NOT_AS_SENT))
    return sql.when(sql.expr(AS_SENT), sql.col("body")).otherwise(sql.raise_error(why))


def _not_past(name: str) -> Column:
    """A column of times, with null for those that have passed."""
    from pyspark.sql import functions as sql

    return sql.when(sql.col(name) > sql.current_timestamp(), sql.col(name)).alias(name)


def place() -> Column:
    """The location of a message in the source: broker, topic, queue, offset, and place in the log.

    The last makes it unique: a log also has what was in a topic before it was deleted, and made
    anew it begins again at offset 0.
    """
    from pyspark.sql import functions as sql

    broker = sql.coalesce("brokerName", sql.lit(""))
    numbers = ("queueId", "queueOffset", "commitLogOffset")
    return sql.concat_ws("/", broker, "topic", *map(sql.col, numbers))


def place_of(messages: DataFrame) -> Column:
    """The location of each message in the source: PLACE, or what its columns say."""
    from pyspark.sql import functions as sql

    return sql.col(PLACE) if PLACE in messages.columns else place()


def not_sent_yet(
    messages: DataFrame, name_server: str, targets: Sequence[str], run: str
) -> DataFrame:
    """Leave out the messages that this run has already sent to the target topics.

    The target topics are read from the time in the name of the run, if it has one. Raises:
    NoNameServerError and its subclasses.
    """
    from pyspark.sql import functions as sql

    # Of messages that wait again, the timers are in a topic of the broker.
    holders = (WHEEL_TOPIC,) if DUE in messages.columns else ()
    cluster = cluster_at(name_server)
    present = [topic for topic in (*targets, *holders) if cluster.has_topic(topic)]
    if not present:
        return messages
    options = {"nameServer": name_server, "subscribe": ",".join(present), "columns": "properties"}
    try:
        began = datetime.strptime(run, RUN_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        # A name of the user's: the run may be of any age.
        pass
    else:
        options["startingTimestamp"] = str(int(began.timestamp() * 1000) - CLOCK_SLACK_MS)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    read = messages.sparkSession.read.format("aerobee").options(**options).load()
    properties = read["properties"]
    sent = read.where(properties[REPLAY] == run).select(properties[FROM].alias("_from"))
    return messages.join(sent, place_of(messages) == sql.col("_from"), "left_anti")


def planned(rows: DataFrame) -> DataFrame:
    """The totals of rows of `outgoing`: messages and bytes of bodies per target topic."""
    return rows.groupBy("topic").agg(*_amount()).orderBy("topic")


def send(rows: DataFrame, name_server: str, options: Mapping[str, str]) -> DataFrame:
    """Write rows of `outgoing` to a cluster; returns after every acknowledgement.

    Returns one row: messages and bytes of bodies sent. They are counted during the write, since a
    count before it would read everything twice, and from a topic that has grown in between.
    """
    from pyspark.sql import Observation

    amount = Observation()
    writer = rows.observe(amount, *_amount()).write.format("aerobee").mode("append")
    writer.option("nameServer", name_server).options(**options).save()
    sent = amount.get
    total = [(sent["messages"], sent["bodyBytes"])]
    return rows.sparkSession.createDataFrame(total, "messages bigint, bodyBytes bigint")


def _amount() -> tuple[Column, Column]:
    """The aggregates: messages and bytes of bodies."""
    from pyspark.sql import functions as sql

    size = sql.coalesce(sql.sum(sql.length("body").cast("bigint")), sql.lit(0).cast("bigint"))
    return sql.count("*").alias("messages"), size.alias("bodyBytes")


def new_run() -> str:
    """A name for a run, from the time."""
    return datetime.now(UTC).strftime(RUN_FORMAT)
