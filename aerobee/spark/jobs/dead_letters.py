"""Job `dead-letters`: counts the dead letters of consumer groups, and sends them again.

Dead letters of a group are in `%DLQ%group`. Brokers do not store the reason; known are the origin,
the number of tries, and the times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aerobee.cli.border import DONE, FAILED, complain
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.common import (
    cluster_at,
    gathered,
    is_there,
    output_options,
    run_as_program,
    session_options,
    source_options,
)
from aerobee.spark.jobs.sending import (
    BORN,
    NEEDED,
    REPLAY,
    new_run,
    not_sent_yet,
    outgoing,
    planned,
    send,
)
from aerobee.spark.rows.columns import ddl_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from aerobee.spark.jobs.common import Output, Session, Source

PREFIX = "%DLQ%"
COLUMNS = (
    *("topic", "tags", "keys", "properties"),
    *("reconsumeTimes", "bornTimestamp", "storeTimestamp"),
)
"""The columns of an analysis; a re-drive also reads those that it sends."""
PLACE = ("topic", "brokerName", "queueId", "queueOffset")
"""The columns that identify a dead letter for good."""
PERM_HINT = (
    "make it readable: mqadmin updateTopicPerm -n '{namesrv}' -c DefaultCluster -t '{topic}' -p 6"
    " (your cluster's name behind -c), or: aerobee topic create -n '{namesrv}' --queues 1 '{topic}'"
)


# ── Analysis ──


def origin() -> Column:
    """The topic that a dead letter came from; null if it does not say.

    RocketMQ 5.x defines DLQ_ORIGIN_TOPIC for it, which is used if it is set. Messages that a
    consumer sent back for another try carry RETRY_TOPIC.
    """
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    named = (properties[name] for name in ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "REAL_TOPIC"))
    return sql.coalesce(
        *(sql.when(~sql.startswith(name, sql.lit("%RETRY%")), name) for name in named)
    )


def analysed(messages: DataFrame) -> DataFrame:
    """Per group, origin, tags and number of tries: how many dead letters, and since when.

    `why` separates those given up at the first try (the consumer asked for it, or its limit is 1)
    from those that used up their tries. `ageP50Ms` is from birth to death. Source columns: COLUMNS.
    """
    from pyspark.sql import functions as sql

    tried = sql.col("reconsumeTimes")
    why = sql.when(tried <= 1, "given up at the first try").otherwise("tries used up")
    age = sql.unix_millis("storeTimestamp") - sql.unix_millis("bornTimestamp")
    group = sql.regexp_replace("topic", f"^{PREFIX}", "")
    keys = {"group": group, "origin": origin(), "tags": sql.col("tags"), "why": why, "tries": tried}
    return (
        messages.select(
            *(value.alias(name) for name, value in keys.items()),
            "storeTimestamp",
            age.alias("_age"),
        )
        .groupBy(*keys)
        .agg(
            sql.count("*").alias("messages"),
            sql.min("storeTimestamp").alias("first"),
            sql.max("storeTimestamp").alias("last"),
            sql.percentile_approx("_age", 0.5).alias("ageP50Ms"),
        )
        .orderBy(sql.desc("messages"), "group", "origin")
    )


def check_groups(name_server: str, groups: Sequence[str]) -> None:
    """Check that each group is known or has dead letters. Raises: ConfigurationError."""
    from aerobee.spark.lag.read import check
    from aerobee.spark.options import lag_options

    there = set(cluster_at(name_server).topics())
    if unsure := [group for group in groups if f"{PREFIX}{group}" not in there]:
        check(lag_options({"nameserver": name_server, "groups": ",".join(unsure)}))


def readable_topics(name_server: str, wanted: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Topics of dead letters that can be read, and those without a readable queue.

    By default all of the cluster; named topics that do not exist are in neither list.
    Raises: NoNameServerError, TransportError.
    """
    cluster = cluster_at(name_server)
    there = {name for name in cluster.topics() if name.startswith(PREFIX)}
    there &= set(wanted or there)
    readable = {queue.topic for queue, _addresses in cluster.queues(sorted(there))}
    return sorted(readable), sorted(there - readable)


# ── Selection ──


@dataclass(frozen=True, slots=True)
class Choice:
    """The dead letters that the user selects; an empty field selects all."""

    groups: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    condition: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The dead-letter topics of the groups."""
        return tuple(f"{PREFIX}{group}" for group in self.groups)

    def of(self, messages: DataFrame) -> DataFrame:
        """Filter messages. Raises: AnalysisException for an invalid condition."""
        from pyspark.sql import functions as sql

        found = messages.where(sql.startswith("topic", sql.lit(PREFIX)))
        if self.topics:
            found = found.where(sql.col("topic").isin(*self.topics))
        if self.origins:
            found = found.where(origin().isin(*self.origins))
        if self.tags:
            found = found.where(sql.col("tags").isin(*self.tags))
        if self.keys:
            has = sql.split(sql.coalesce("keys", sql.lit("")), " ")
            found = found.where(sql.arrays_overlap(has, sql.array(*map(sql.lit, self.keys))))
        return found.where(self.condition) if self.condition is not None else found


def _choice(tags: tuple[str, ...], keys: tuple[str, ...], **rest: Any) -> Choice:
    """The selection of the command line.

    Raises: ConfigurationError for a key or a tag that no message can have.
    """
    for key in keys:
        if not key or key != "".join(key.split()):
            raise ConfigurationError(
                f"--key {key!r}: a key has no spaces; give --key once for each"
            )
    each = tuple(word.strip() for tag in tags for word in tag.split("||"))
    if not all(each):
        # Without this check an empty tag, as of a script, would select the messages of every tag.
        raise ConfigurationError(f"--tag {tags[-1]!r}: a tag is missing; give 'a' or 'a||b'")
    return Choice(tags=each, keys=keys, **rest)


choice_options = gathered(
    (
        click.option("--group", "groups", multiple=True, help="Of this consumer group."),
        click.option("--origin", "origins", multiple=True, help="That came from this topic."),
        click.option("--tag", "tags", multiple=True, help="With this tag, or 'a||b'."),
        click.option("--key", "keys", multiple=True, help="With this key."),
        click.option(
            "--where", "condition", metavar="SQL", help="Any condition: 'reconsumeTimes < 3'."
        ),
    ),
    "choice",
    _choice,
    ("groups", "origins", "tags", "keys", "condition"),
)


# ── Re-drive ──


def not_sent_before(messages: DataFrame, record: str | None) -> DataFrame:
    """Leave out the messages whose locations are in the record of earlier runs."""
    spark = messages.sparkSession
    if record is None or not is_there(spark, record):
        return messages
    done = spark.read.schema(ddl_of(PLACE)).parquet(record)
    return messages.join(done, list(PLACE), "left_anti")


def redriven(
    letters: DataFrame, target: Column, name_server: str, *, record: str | None, run: str
) -> DataFrame:
    """Send these dead letters; returns one row with what was sent.

    With a record each is noted there after it is sent: the letters of a run that dies between the
    two are sent again.
    Raises: AerobeeError if one does not say where it came from.
    """
    # Read once, so that exactly the letters that are sent are noted, even if new ones arrive.
    letters = letters.persist()
    try:
        if not letters.where(target.isNull()).isEmpty():
            raise AerobeeError(
                "some of these dead letters do not say where they came from; name it by --to-topic"
            )
        noted = letters.select(*PLACE, "msgId")
        if record is not None:
            # A record that cannot be written is an error before anything is sent.
            noted.limit(0).write.mode("append").parquet(record)
        sent = send(outgoing(letters, target, run, keep_queues=False), name_server, {})
        if record is not None:
            noted.write.mode("append").parquet(record)
    finally:
        letters.unpersist()
    return sent


@click.command("dead-letters", short_help="Who gave up what; send it again.")
@source_options
@choice_options
@click.option("--redrive", is_flag=True, help="Send them to where they came from.")
@click.option("--to-topic", metavar="TOPIC", help="Send them there instead.")
@click.option("--record", metavar="PATH", help="Parquet: what was sent is never sent again.")
@click.option(
    "--run", metavar="NAME", help="Name of the run; what one of that name has sent is left out."
)
@click.option("--yes", is_flag=True, help="Send; without, only say what would be sent.")
@output_options
@session_options
def command(
    *,
    source: Source,
    choice: Choice,
    redrive: bool,
    to_topic: str | None,
    record: str | None,
    run: str | None,
    yes: bool,
    output: Output,
    session: Session,
) -> int:
    """Count dead letters by group, origin, tag and tries; with --redrive --yes send them again.

    Exit code 1 if a topic of dead letters cannot be read; how to open it is said on stderr.
    """
    if not redrive and (yes or to_topic or record or run):
        raise ConfigurationError("--yes, --to-topic, --record and --run are for --redrive")
    with session.opened("dead-letters") as spark:
        output.check(spark)
        letters, closed = found(spark, source, choice, (*COLUMNS, *NEEDED) if redrive else COLUMNS)
        for topic in closed:
            hint = PERM_HINT.format(namesrv=source.name_server, topic=topic)
            complain(f"{topic} cannot be read; {hint}")
        if not redrive:
            output.deliver(analysed(letters))
        else:
            again(
                letters,
                source.name_server,
                output,
                to_topic=to_topic,
                record=record,
                run=run,
                yes=yes,
            )
    return FAILED if closed else DONE


def found(
    spark: SparkSession, source: Source, choice: Choice, names: Sequence[str]
) -> tuple[DataFrame, list[str]]:
    """The selected dead letters, and the topics that cannot be read.

    A cluster without dead letters gives a table without rows.
    """
    columns = tuple(dict.fromkeys(names))
    if source.store or source.archive:
        return choice.of(source.read(spark, columns)), []
    if source.pattern:
        raise ConfigurationError("--topic-pattern: name groups by --group")
    check_groups(source.name_server, choice.groups)
    readable, closed = readable_topics(source.name_server, source.topics or choice.topics)
    if not readable:
        return spark.createDataFrame([], ddl_of(columns)), closed
    return choice.of(replace(source, topics=tuple(readable)).read(spark, columns)), closed


def again(
    letters: DataFrame,
    name_server: str,
    output: Output,
    *,
    to_topic: str | None,
    record: str | None,
    run: str | None,
    yes: bool,
) -> None:
    """Print what would be sent, or send it and print what was sent."""
    from pyspark.sql import functions as sql

    target = origin() if to_topic is None else sql.lit(to_topic)
    # Without the time of birth: a message that is sent again gets a new one.
    letters = not_sent_before(letters, record).drop(BORN)
    if run is not None:
        rows = letters.select(target.alias("to")).distinct().collect()
        targets = [row["to"] for row in rows if row["to"] is not None]
        letters = not_sent_yet(letters, name_server, targets, run)
    if not yes:
        output.deliver(planned(outgoing(letters, target, "", keep_queues=False)))
        click.echo("nothing sent: say --yes", err=True)
        return
    run = run or new_run()
    click.echo(
        f"sending with {REPLAY}={run}; where it is interrupted, repeat --run {run}", err=True
    )
    sent = redriven(letters, target, name_server, record=record, run=run)
    # Before the table is written, which may fail: the messages are sent in any case.
    click.echo(f"sent with {REPLAY}={run}", err=True)
    output.deliver(sent)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
