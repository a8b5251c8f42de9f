"""Job `replay`: sends a range of a topic, by time or by offsets, to another topic or cluster.

Nothing is sent without `--yes`. A run that was killed is completed by one with the same `--run`;
within a run sending is at-least-once: a task that Spark repeats sends again, with the same `msgId`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.cli.options import not_empty
from aerobee.client.settings.client import name_servers
from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import (
    output_options,
    run_as_program,
    session_options,
    source_options,
)
from aerobee.spark.jobs.sending import (
    BORN,
    NEEDED,
    announce,
    outgoing,
    planned,
    send,
    sending_options,
)
from aerobee.spark.rows.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from aerobee.spark.jobs.common import Output, Session, Source
    from aerobee.spark.jobs.sending import ResendOptions


@click.command("replay", short_help="Send a range of a topic to another topic.")
@source_options
@click.option("--starting-offsets", metavar="JSON", help='{"topic":{"broker-a":{"0":23}}}.')
@click.option("--ending-offsets", metavar="JSON", help="The same; ends before these.")
@click.option(
    "--to-namesrv",
    metavar="HOST:PORT",
    callback=not_empty,
    help="Another cluster's name servers.",
)
@click.option("--keep-queues", is_flag=True, help="Each to the queue id that it came from.")
@sending_options
@output_options
@session_options
def command(
    *,
    source: Source,
    starting_offsets: str | None,
    ending_offsets: str | None,
    to_namesrv: str | None,
    keep_queues: bool,
    sending: ResendOptions,
    output: Output,
    session: Session,
) -> None:
    """Send the messages of a time or offset range again, with their ids, to another place.

    Reads a broker, a store directory or an archive. Says how many go where; sends with --yes.
    """
    target = ";".join(name_servers(to_namesrv)) if to_namesrv else source.name_server
    same_cluster = target == source.name_server and not (source.store or source.archive)
    if same_cluster and sending.to_topic is None:
        raise ConfigurationError("this would send a topic to itself: give --to-topic, --to-namesrv")
    if same_cluster and sending.to_topic in source.topics:
        raise ConfigurationError(f"--to-topic {sending.to_topic} is what --topic reads")
    # Brokers process requests of one connection in parallel: for order, one waits for the other.
    options = ({"window": "1"} if keep_queues else {}) | dict(sending.options)
    offsets = {"startingOffsets": starting_offsets, "endingOffsets": ending_offsets}
    extra = [f"{name}={value}" for name, value in offsets.items() if value is not None]
    if extra and (source.store or source.archive):
        raise ConfigurationError("offsets are for reading a broker; here say --where queueOffset …")
    # Such a body is named with the condition that leaves it out, if no condition does already.
    source = replace(source, options=("onUnreadable=keep", *source.options, *extra))
    read = source.check()
    if read is not None and not read.decompress:
        raise ConfigurationError(
            "--option decompress=false: nobody would decompress what is sent so; leave it out"
        )
    with session.opened("replay") as spark:
        output.check(spark, source.store, source.archive)
        # A condition may name any column.
        columns = (*NEEDED, BORN) if sending.condition is None else tuple(COLUMNS)
        messages = sending.chosen(source.read(spark, columns))
        if sending.again:
            messages = sending.left(messages, target, topics_of(messages, source))
        rows = goes(messages, sending, keep_queues=keep_queues)
        if sending.yes:
            announce(sending.run)
        sent = send(rows, target, options) if sending.yes else None
        # Before the table is written, which may fail: the messages are sent in any case.
        sending.tell(sent)
        output.deliver(planned(rows) if sent is None else sent)


def topics_of(messages: DataFrame, source: Source) -> Sequence[str]:
    """The topics of the messages."""
    if source.topics:
        return source.topics
    return [row["topic"] for row in messages.select("topic").distinct().collect()]


def goes(messages: DataFrame, sending: ResendOptions, *, keep_queues: bool) -> DataFrame:
    """The rows to send; rows of one queue stay together and in order."""
    if keep_queues:
        messages = messages.repartition("topic", "brokerName", "queueId").sortWithinPartitions(
            "topic", "brokerName", "queueId", "commitLogOffset"
        )
    return outgoing(messages, sending.target(), sending.run, keep_queues=keep_queues)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
