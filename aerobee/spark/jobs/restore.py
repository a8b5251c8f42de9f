"""Job `restore`: sends messages of an archive back to topics, each to the queue that it came from.

Messages that still waited for a delay, a timer or a retry go to their own topic with the rest of
their time. Ids, keys, tags, born times and the users' properties are kept; properties of the broker
are removed, and `AB_REPLAY` names the run. Offsets and store times are new. Within a queue the
order is that of the archive: one task has all of a queue, and the sink has one request to it in
flight. Nothing is sent without `--yes`. A run that was killed is completed by one with the same
`--run`; within a run sending is at-least-once: a task that Spark repeats sends again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aerobee.cli.options import namesrv_option
from aerobee.cli.output import echo
from aerobee.client.blocking.admin import AdminClient
from aerobee.client.message import FORBIDDEN_TOPICS
from aerobee.client.settings.client import name_servers
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.cluster_options import cluster_options
from aerobee.spark.jobs.archive import Archive
from aerobee.spark.jobs.common import (
    cluster_at,
    named,
    of_system,
    output_options,
    run_as_program,
    session_options,
    since_option,
    topic_option,
    until_option,
    window_ms,
)
from aerobee.spark.jobs.manifest import Manifest
from aerobee.spark.jobs.places import Place
from aerobee.spark.jobs.sending import (
    BORN,
    PLACE,
    announce,
    body_as_sent,
    outgoing,
    place,
    send,
    sending_options,
)
from aerobee.spark.jobs.stats import LEVELS, level_ms
from aerobee.spark.jobs.tables import KINDS, SEGMENT, check_kind
from aerobee.spark.jobs.waiting import DUE, HOLDERS, waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from aerobee.spark.jobs.common import Output, Session
    from aerobee.spark.jobs.manifest import Entry
    from aerobee.spark.jobs.sending import ResendOptions

INVISIBLE = 4
"""The sysFlag bit of transactions that are not committed: no consumer ever saw those messages."""
OF_GROUPS = "%"
"""The prefix of topics for retries and dead letters."""
ORDER = ("topic", "brokerName", "queueId", DUE, "commitLogOffset")
"""Not by queue offset: a topic that was deleted and made anew begins again at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Selects messages of an archive: of these topics (none: all user topics), in a time range."""

    archive: Archive
    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    born: bool = True
    """Whether to keep the born times; then a request holds only messages with the same one."""
    levels: str = LEVELS
    """The `messageDelayLevel` of the broker whose archive it is."""


def restored(spark: SparkSession, task: Restore) -> DataFrame:
    """The messages to send. Raises: AerobeeError, if the archive has none of the time range, or has
    lost some of it.

    Only segments in the manifest are read, without leftovers of a killed run. Messages that still
    waited at the end of the archive have the time at which they are due in DUE.
    """
    from pyspark.sql import functions as sql

    source = task.archive
    check_kind(spark, source.kind)
    entries = Manifest(Place(spark, source.manifest_path)).load()
    if not entries:
        raise AerobeeError(
            f"{source.manifest_path} has no entries: give the --output of an `archive` run, and "
            "its --manifest if it had one"
        )
    wanted = [
        entry
        for entry in entries.values()
        if (task.since_ms is None or entry.max_store_timestamp >= task.since_ms)
        and (task.until_ms is None or entry.min_store_timestamp < task.until_ms)
    ]
    if not wanted:
        raise AerobeeError(f"{source.manifest_path} names no archived segment of that time")
    rows = _chosen(_whole(spark, source, wanted), task)
    rows = rows.withColumn(DUE, sql.lit(None).cast("timestamp_ltz"))
    if not rows.where(rows["topic"].isin(*HOLDERS)).isEmpty():
        # Whether a message has left, any later segment may tell.
        everything = _whole(spark, source, [*entries.values()])
        rows = rows.unionByName(_chosen(waiting(everything, level_ms(task.levels)), task))
    rows = rows.where(~rows["topic"].isin(*HOLDERS))
    if task.topics:
        rows = rows.where(rows["topic"].isin(*task.topics))
    return rows if task.born else rows.drop(BORN)


def _whole(spark: SparkSession, source: Archive, entries: Sequence[Entry]) -> DataFrame:
    """All rows of these segments with PLACE, except of transactions that are not committed.

    Raises: AerobeeError, if there are not as many as the entries say.
    """
    starts = [entry.start for entry in entries]
    rows = KINDS[source.kind].read(spark, source.output, starts)
    counts = {row[SEGMENT]: row["count"] for row in rows.groupBy(SEGMENT).count().collect()}
    for entry in entries:
        there = counts.get(entry.start, 0)
        # The growing end may have been replaced by more of it, before its entry.
        if there < entry.records or (entry.sealed and there > entry.records):
            raise AerobeeError(
                f"{source.output} has {there} rows of segment {entry.segment}, and its entry says "
                f"{entry.records}: files of it are missing, or a run replaces them just now. Where "
                "the store is still there, remove the entry and archive the segment again; "
                "`aerobee spark replay --archive` sends the rows that are there"
            )
    return rows.where(rows["sysFlag"].bitwiseAND(INVISIBLE) == 0).withColumn(PLACE, place())


def _chosen(rows: DataFrame, task: Restore) -> DataFrame:
    """The rows of the time range."""
    if task.since_ms is not None:
        rows = rows.where(f"storeTimestamp >= timestamp_millis({task.since_ms})")
    if task.until_ms is not None:
        rows = rows.where(f"storeTimestamp < timestamp_millis({task.until_ms})")
    return rows


def planned(counts: Sequence[dict[str, Any]], task: Restore) -> list[dict[str, Any]]:
    """The `counted` topics to send; system topics and those of groups only if they are named."""
    return [row for row in counts if task.topics or not _is_left_out(row["topic"])]


def left_out(counts: Sequence[Mapping[str, Any]]) -> str:
    """The messages of groups among `counted` rows, in words; empty without any."""
    named = [
        f"{row['messages']} of {row['topic']}"
        + (f" ({row['waiting']} wait for a retry)" if row["waiting"] else "")
        for row in counts
        if row["topic"].startswith(OF_GROUPS)
    ]
    return f"left out: {', '.join(named)}; --topic restores them" if named else ""


def _is_left_out(topic: str) -> bool:
    """Whether a topic is restored only if it is named."""
    from aerobee.spark.topics import is_system

    return is_system(topic) or topic.startswith(OF_GROUPS)


def counted(rows: DataFrame, task: Restore) -> list[dict[str, Any]]:
    """Per topic the number of messages, the bytes of their bodies, and the queues that they need.

    `waiting` of them waited for a delay, a timer or a retry. Bodies are checked where they are to
    be sent: dead letters are often those that no consumer could decompress.
    """
    from pyspark.sql import functions as sql

    body = body_as_sent(rows)
    if not task.topics:
        left = of_system(rows["topic"]) | rows["topic"].startswith(OF_GROUPS)
        body = sql.when(left, sql.col("body")).otherwise(body)
    plan = rows.groupBy("topic").agg(
        sql.count("*").alias("messages"),
        sql.sum(sql.length(body).cast("bigint")).alias("bodyBytes"),
        (sql.max("queueId") + 1).alias("queues"),
        sql.count(DUE).alias("waiting"),
    )
    return [row.asDict() for row in plan.orderBy("topic").collect()]


def restore(
    rows: DataFrame,
    plan: Sequence[Mapping[str, Any]],
    name_server: str,
    sending: ResendOptions,
    *,
    to_broker: str | None = None,
) -> DataFrame:
    """Send the messages of the planned topics; returns one row, messages and bytes sent.

    Missing topics are created first. Raises: ConfigurationError, if one has fewer queues than its
    messages need.
    """
    from pyspark.sql import functions as sql

    for name, queues in needed(plan, sending.to_topic).items():
        make_topic(name_server, name, queues, to_broker)
    wanted = rows.where(rows["topic"].isin(*[row["topic"] for row in plan]))
    ordered = wanted.repartition("topic", "queueId").sortWithinPartitions(*ORDER)
    sent = outgoing(ordered, sending.target(), sending.run, keep_queues=True)
    if to_broker is not None:
        sent = sent.withColumn("brokerName", sql.lit(to_broker))
    return send(sent, name_server, sending.options)


def check_topics(topics: Sequence[str], to_topic: str | None) -> None:
    """Check that clients may send messages of these topics. Raises: ConfigurationError."""
    for topic in topics:
        if topic in HOLDERS:
            raise ConfigurationError(
                f"--topic {topic}: messages that wait there are restored with their own topics; "
                "name those"
            )
        if to_topic is None and topic in FORBIDDEN_TOPICS:
            raise ConfigurationError(
                f"--topic {topic}: no client may send there; say where they go by --to-topic"
            )


def needed(plan: Sequence[Mapping[str, Any]], to_topic: str | None) -> dict[str, int]:
    """The number of queues that each target topic needs."""
    queues: dict[str, int] = {}
    for row in plan:
        name = to_topic or row["topic"]
        queues[name] = max(queues.get(name, 0), row["queues"])
    return queues


def make_topic(name_server: str, name: str, queues: int, to_broker: str | None) -> None:
    """Create a topic with `queues` queues on every broker, unless it exists.

    Raises: ConfigurationError, if its queues to be written are too few, or of several brokers.
    """
    cluster = cluster_at(name_server)
    if not cluster.has_topic(name):
        check_broker(name, to_broker, cluster.brokers())
        access = cluster_options(name_server).access
        with AdminClient(name_server, **access.client_options()) as admin:
            admin.create_topic(name, queues=queues)
        return
    lines = cluster.route(name).to_publish
    check_broker(name, to_broker, sorted({line.broker_name for line in lines}))
    most = sum(to_broker in (None, line.broker_name) for line in lines)
    if most < queues:
        raise ConfigurationError(
            f"topic {name} has {most} queues, its messages were in {queues}: make more with "
            f"`aerobee topic create {quote(name)} --queues {queues}`"
        )


def check_broker(topic: str, wanted: str | None, there: Collection[str]) -> None:
    """Check that messages of a topic go to one broker. Raises: ConfigurationError."""
    if len(there) > 1 if wanted is None else wanted not in there:
        raise ConfigurationError(
            f"--to-broker: say one of those that topic {topic} can be written to: "
            f"{', '.join(there) or 'none'}"
        )


@click.command("restore", short_help="Messages of an archive back into topics.")
@namesrv_option
@click.option("--archive", required=True, metavar="PATH", help="The --output of `archive`.")
@click.option(
    "--archive-format",
    "kind",
    type=click.Choice(list(KINDS)),
    default="parquet",
    help="The files of the archive.",
)
@click.option("--manifest", metavar="PATH", help="Where its entries are; else below --archive.")
@topic_option
@since_option
@until_option
@click.option("--to-broker", metavar="NAME", help="To its queues, where there are several brokers.")
@click.option(
    "--levels", default=LEVELS, metavar="LIST", help="The old broker's messageDelayLevel."
)
@click.option("--born/--no-born", default=True, help="Keep the time of birth; without is faster.")
@sending_options
@output_options
@session_options
def command(
    *,
    namesrv: str | None,
    archive: str,
    kind: str,
    manifest: str | None,
    topic: tuple[str, ...],
    since: str | None,
    until: str | None,
    to_broker: str | None,
    born: bool,
    levels: str,
    sending: ResendOptions,
    output: Output,
    session: Session,
) -> None:
    """Send archived messages again, each to the queue id that it came from, in order.

    Topics of users, unless --topic names others. Messages that waited for a delay, a timer or a
    retry wait for the rest of their time. Says how many go where; sends with --yes.
    """
    since_ms, until_ms = window_ms(since, until)
    task = Restore(
        archive=Archive(store=Path(), output=archive, kind=kind, manifest=manifest),
        topics=named(topic),
        since_ms=since_ms,
        until_ms=until_ms,
        born=born,
        levels=levels,
    )
    # Checked before a JVM is started.
    level_ms(levels)
    check_topics(task.topics, sending.to_topic)
    target = ";".join(name_servers(namesrv))
    with session.opened("restore") as spark:
        output.check(spark, archive if KINDS[kind].is_path else None)
        rows = sending.chosen(restored(spark, task))
        counts = counted(rows, task)
        plan = planned(counts, task)
        if missing := sorted(set(task.topics) - {row["topic"] for row in plan}):
            raise ConfigurationError(
                f"--topic: {archive} has no such messages of {', '.join(missing)}"
            )
        if sending.again:
            rows = sending.left(rows, target, [row["topic"] for row in plan])
            plan = planned(counted(rows, task), task)
        sent = None
        if sending.yes and plan:
            announce(sending.run)
            sent = restore(rows, plan, target, sending, to_broker=to_broker)
        sending.tell(sent)
        if not task.topics and (notice := left_out(counts)):
            echo(notice, err=True)
        if sent is not None:
            output.deliver(sent)
        else:
            output.show(plan, ["topic", "messages", "bodyBytes", "queues", "waiting"])


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
