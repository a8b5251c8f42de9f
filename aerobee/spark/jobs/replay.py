"""Job `replay`: a range of a topic, by time or by offsets, sent to another topic or cluster.

Nothing is sent without `--yes`. Sending is at-least-once: a task that Spark repeats sends again,
with the same `msgId`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.config import name_servers
from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import (
    output_options,
    pairs,
    run_as_program,
    session_options,
    source_options,
)
from aerobee.spark.jobs.sending import BORN, NEEDED, new_run, outgoing, planned, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aerobee.spark.jobs.common import Output, Session, Source

__all__ = ["command", "goes", "main", "read"]


@click.command("replay", short_help="Send a range of a topic to another topic.")
@source_options
@click.option("--starting-offsets", metavar="JSON", help='{"topic":{"broker-a":{"0":23}}}.')
@click.option("--ending-offsets", metavar="JSON", help="The same; ends before these.")
@click.option("--where", "condition", metavar="SQL", help="Only these rows: \"tags = 'a'\".")
@click.option("--to-topic", metavar="TOPIC", help="Where they go; else where they came from.")
@click.option("--to-namesrv", metavar="HOST:PORT", help="Another cluster's name servers.")
@click.option("--keep-queues", is_flag=True, help="Each to the queue id that it came from.")
@click.option("--run", metavar="NAME", help="Value of the property AB_REPLAY; else the time.")
@click.option(
    "--to-option", multiple=True, metavar="KEY=VALUE", help="A write option of format aerobee."
)
@click.option("--yes", is_flag=True, help="Send; without, only say what would be sent.")
@output_options
@session_options
def command(
    *,
    source: Source,
    starting_offsets: str | None,
    ending_offsets: str | None,
    condition: str | None,
    to_topic: str | None,
    to_namesrv: str | None,
    keep_queues: bool,
    run: str | None,
    to_option: tuple[str, ...],
    yes: bool,
    output: Output,
    session: Session,
) -> None:
    """Send the messages of a time or offset range again, with their ids, to another place.

    Reads a broker, a store directory or an archive. Says how many go where; sends with --yes.
    """
    target = ";".join(name_servers(to_namesrv)) if to_namesrv else source.name_server
    same_cluster = target == source.name_server and not (source.store or source.archive)
    if same_cluster and to_topic is None:
        raise ConfigurationError("this would send a topic to itself: give --to-topic, --to-namesrv")
    if same_cluster and to_topic in source.topics:
        raise ConfigurationError(f"--to-topic {to_topic} is what --topic reads")
    # Brokers serve the requests of one connection side by side: in order, one waits for the other.
    options = ({"window": "1"} if keep_queues else {}) | pairs(to_option, "--to-option")
    run = run or new_run()
    offsets = {"startingOffsets": starting_offsets, "endingOffsets": ending_offsets}
    extra = [f"{name}={value}" for name, value in offsets.items() if value is not None]
    if extra and (source.store or source.archive):
        raise ConfigurationError("offsets are for reading a broker; here say --where queueOffset …")
    with session.opened("replay") as spark:
        messages = read(spark, source, extra, condition)
        rows = goes(messages, to_topic, run, keep_queues=keep_queues)
        output.deliver(send(rows, target, options) if yes else planned(rows))
    click.echo(f"sent with AB_REPLAY={run}" if yes else "nothing sent: say --yes", err=True)


def read(spark: SparkSession, source: Source, extra: list[str], condition: str | None) -> DataFrame:
    """The messages of the range, in the order of their queues."""
    source = replace(source, options=(*source.options, *extra))
    messages = source.read(spark, (*NEEDED, BORN))
    return messages.where(condition) if condition is not None else messages


def goes(messages: DataFrame, to_topic: str | None, run: str, *, keep_queues: bool) -> DataFrame:
    """The rows to send; those of a queue stay together and in order."""
    from pyspark.sql import functions as sql

    topic = sql.col("topic") if to_topic is None else sql.lit(to_topic)
    if keep_queues:
        messages = messages.repartition("topic", "brokerName", "queueId").sortWithinPartitions(
            "topic", "brokerName", "queueId", "queueOffset"
        )
    return outgoing(messages, topic, run, keep_queues=keep_queues)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
