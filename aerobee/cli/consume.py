"""The command `aerobee consume`."""

from __future__ import annotations

import select
import sys
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

import click

from aerobee.cli.bodies import FORMAT_HELP, message_writer
from aerobee.cli.completing import topic_names
from aerobee.cli.connection import CLI_GROUP, Connection, connection_options, tell_outages
from aerobee.cli.options import COUNT, SECONDS_MAX, Number
from aerobee.cli.times import position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.blocking import PullConsumer
    from aerobee.cli.connection import Outages
    from aerobee.client.filters import Filter
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

POLL_S = 0.5
AT_ONCE_S = 0.05
POLL_AT_ONCE = 32


@click.command(short_help="Print the messages of a topic.")
@click.argument("topic", shell_complete=topic_names)
@click.option("--group", help="Share the topic with this group, and remember how far it is.")
@click.option(
    "--from",
    "start",
    default="first",
    help="first, last, offset:N, or a time as 2025-01-31T12:00, '10m ago' or epoch ms; "
    "a group goes on where it was.",
)
@click.option("--tag", help="Only these tags: A or 'A || B'.")
@click.option("--filter", "sql", metavar="SQL", help='Only what this says of headers: "a > 5".')
@click.option("--max", "most", type=COUNT, help="End after so many messages.")
@click.option(
    "--timeout", type=Number(0, SECONDS_MAX), help="End after so many seconds of silence."
)
@click.option(
    "--follow/--no-follow",
    "-f/-F",
    default=True,
    help="Wait for new messages, or end at today's end.",
)
@click.option("--format", "style", default="line", show_default=True, help=FORMAT_HELP)
@click.option("--json", "--jsonl", "as_json", is_flag=True, help="The same as --format json.")
@connection_options
def consume(
    topic: str,
    group: str | None,
    start: str,
    tag: str | None,
    sql: str | None,
    most: int | None,
    timeout: float | None,
    follow: bool,
    style: str,
    as_json: bool,
    connection: Connection,
) -> None:
    """Print the messages of TOPIC until Ctrl-C.

    Without --group it reads all queues and commits nothing; with it, it is a member of the group:
    the queues are shared, and printed messages are committed. Bodies are unchanged in a pipe; on a
    terminal control characters are shown as escapes.

    Example: aerobee consume Orders --from '1h ago' --no-follow --format body
    """
    from aerobee.blocking import PullConsumer
    from aerobee.client.settings.client import ConsumeFrom
    from aerobee.errors import RouteNotFoundError
    from aerobee.remoting.wire.codes import ResponseCode

    write = message_writer("json" if as_json else style)
    expression = wanted(tag, sql)
    position = position_of(start, "--from")
    if group is not None and isinstance(position, int):
        raise click.UsageError("--from offset:N is for reading without --group")
    outages = tell_outages()
    start_from = ConsumeFrom.FIRST if isinstance(position, int) else position
    if start_from is ConsumeFrom.LAST:
        # Of a group that is the begin of a young queue; of a time that nothing has, it is the end.
        start_from = datetime.now(UTC) + timedelta(days=1)
    with PullConsumer(
        group or CLI_GROUP,
        connection.namesrv,
        start_from=start_from,
        auto_commit=group is not None,
        **connection.options(),
    ) as consumer:
        if group is not None:
            consumer.subscribe(topic, expression)
        else:
            queues = consumer.queues(topic)
            if not queues:
                refused = RouteNotFoundError(f"no queue of topic {topic} can be read")
                refused.code = ResponseCode.NO_PERMISSION
                raise refused
            consumer.assign(queues, expression)
            for queue in consumer.assignment:
                consumer.seek(queue, position)
        try:
            for message in read(consumer, most, timeout, follow, outages):
                write(message)
        except KeyboardInterrupt:
            pass


def wanted(tag: str | None, sql: str | None) -> str | Filter:
    """The selected messages. Raises: UsageError for contradicting options."""
    if tag is not None and sql is not None:
        raise click.UsageError("give one of --tag and --filter")
    if sql is None:
        return tag or "*"
    from aerobee.client.filters import Filter

    return Filter.sql(sql)


def read(
    consumer: PullConsumer,
    most: int | None,
    silence_s: float | None,
    follow: bool,
    outages: Outages,
) -> Iterator[ReceivedMessage]:
    """Messages until `most`, silence, or today's end; each is done when the next is asked for.

    Ends as well when nobody reads the output any more. Raises: PermissionDeniedError when nothing
    was read and the group or the topic was refused.
    """
    ends = {} if follow else consumer.end_offsets()
    seen = 0
    last_at = monotonic()
    while follow or not reached(consumer, ends):
        count = POLL_AT_ONCE if most is None else min(POLL_AT_ONCE, most - seen)
        messages = polled(consumer, count, POLL_S if follow else AT_ONCE_S)
        for message in messages:
            yield message
            consumer.done(message)
            seen += 1
        if messages:
            last_at = monotonic()
        elif outages.refused is not None and not seen:
            raise outages.refused
        elif output_is_closed():
            return
        if seen == most or (silence_s is not None and monotonic() - last_at >= silence_s):
            return
    if outages.refused is not None and not seen:
        # A refused group has no share of the queues, which looks like an end.
        raise outages.refused


def polled(consumer: PullConsumer, most: int, timeout_s: float) -> list[ReceivedMessage]:
    """The next messages; one whose body cannot be decompressed comes alone."""
    from aerobee.errors import MessageUnreadableError

    try:
        return consumer.poll(max_messages=most, timeout=timeout_s)
    except MessageUnreadableError as error:
        return [error.message]


def output_is_closed() -> bool:
    """Whether the pipe behind stdout has lost its reader, or the terminal has gone."""
    poller = select.poll()
    try:
        poller.register(sys.stdout, 0)
    except (OSError, ValueError):
        return False
    return bool(poller.poll(0))


def reached(consumer: PullConsumer, ends: dict[MessageQueue, int]) -> bool:
    """Whether every assigned queue has been read up to its end."""
    ours = consumer.assignment & ends.keys()
    return all(consumer.position(queue) >= ends[queue] for queue in ours)
