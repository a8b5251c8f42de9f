"""`aerobee message`: get, find, tail."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.bodies import FORMAT_HELP, described_message, message_writer, plain
from aerobee.cli.border import DONE, FAILED, complain
from aerobee.cli.completing import topic_names
from aerobee.cli.connection import CLI_GROUP, Connection, connection_options, tell_outages
from aerobee.cli.dead import end_without, leave_dead_out
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import JSONL, Output, echo, escaped_bytes, local_time, output_options
from aerobee.cli.surroundings import body_room
from aerobee.cli.times import time_of
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.blocking import AdminClient
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

FOUND_MAX = 10_000
READ_AT_ONCE = 4
"""Messages that are read together for a program, which has room for the bodies of few."""
format_option = click.option(
    "--format", "style", default="line", show_default=True, help=FORMAT_HELP
)


@click.group(cls=CommandGroup, short_help="Find and show messages.")
def message() -> None:
    """Find messages by id, key, place and time, and show the newest."""


@message.command()
@click.argument("identity", metavar="ID|QUEUE@OFFSET")
@click.option("--topic", help="Where to look for the id that a client gave.")
@connection_options
@output_options
def get(identity: str, topic: str | None, connection: Connection, output: Output) -> None:
    """Show one message: by its id, either kind, or by its place.

    Examples: aerobee message get 7F000001… --topic Orders;
    aerobee message get Orders/broker-a/3@17
    """
    from aerobee.errors import MessageNotFoundError

    with connection.admin() as admin:
        try:
            received = by_place(admin, identity) or admin.view_message(identity, topic)
        except MessageNotFoundError as error:
            if topic is None:
                raise
            why = shlex.join(["aerobee", "why", identity, "--topic", topic])
            text = f"{error}; where it waits for its time or transaction, this finds it: {why}"
            raise MessageNotFoundError(text) from error
    if output.for_programs:
        output.record(described_message(received))
    else:
        output.record(members(received))


def by_place(admin: AdminClient, identity: str) -> ReceivedMessage | None:
    """The message at TOPIC/BROKER/QUEUE@OFFSET; None for another form."""
    from aerobee.client.send_result import MessageQueue

    where, _, number = identity.rpartition("@")
    topic, broker, queue = (["", "", *where.rsplit("/", 2)])[-3:]
    queue_id, offset = whole_number(queue), whole_number(number)
    if not topic or queue_id is None or offset is None:
        return None
    return admin.message_at(MessageQueue(topic, broker, queue_id), offset)


def members(message: ReceivedMessage) -> dict[str, Any]:
    """A message for people, member by member."""
    own = {f"header {name}": value for name, value in sorted(message.properties.items())}
    return {
        "id": message.message_id,
        "place": f"{message.queue}@{message.queue_offset}",
        "offset id": message.offset_message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "born": f"{local_time(message.born_at, 'milliseconds')} at {message.born_host}",
        "stored": f"{local_time(message.stored_at, 'milliseconds')} at {message.store_host}",
        "tries": message.reconsume_times,
        **own,
        "bytes": len(message.body),
        **({} if message.unreadable is None else {"body as stored": message.unreadable}),
        "body": escaped_bytes(message.body),
    }


@message.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--key", help="With this key; the newest.")
@click.option("--tag", help="Only these tags: A or 'A || B'.")
@click.option("--since", help="Stored from this time on: 2025-01-31T12:00, '10m ago', epoch ms.")
@click.option("--until", help="Stored before this time.")
@click.option(
    "--after",
    metavar="QUEUE@OFFSET",
    help="Go on behind this message, the last of those found before.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(1, FOUND_MAX),
    default=32,
    show_default=True,
    help="At most so many messages.",
)
@format_option
@connection_options
@output_options
def find(
    topic: str,
    key: str | None,
    tag: str | None,
    since: str | None,
    until: str | None,
    after: str | None,
    most: int,
    style: str,
    connection: Connection,
    output: Output,
) -> None:
    """Print messages of TOPIC by key, or by the time at which they were stored.

    Example: aerobee message find Orders --key order-17
    """
    if key is not None and (tag is not None or after is not None):
        raise click.UsageError(f"give one of --key and {'--after' if tag is None else '--tag'}")
    begin = None if since is None else time_of(since, "--since")
    end = None if until is None else time_of(until, "--until")
    if begin is not None and end is not None and begin > end:
        raise click.UsageError(f"--since {since} is after --until {until}; swap them")
    room = body_room()
    with connection.admin() as admin:
        if key is not None:
            messages = admin.query_messages(
                topic, key, max_messages=most, begin=begin, end=end, max_bytes=room
            )
        else:
            messages = admin.find_messages(
                topic,
                begin=begin,
                end=end,
                tag=tag or "*",
                after=None if after is None else last_found(admin, topic, after),
                max_messages=most,
                max_bytes=room,
            )
    if room is not None and len(messages) < most and 2 * bytes_of(messages) > room:
        complain(f"the bodies of {len(messages)} messages are large: there may be more messages")
    show(messages, style, output)


def last_found(admin: AdminClient, topic: str, place: str) -> ReceivedMessage:
    """The message at `--after`. Raises: BadParameter, MessageNotFoundError."""
    message = by_place(admin, place)
    if message is None or message.topic != topic:
        raise click.BadParameter(
            f"{place!r} is no place in {topic}, such as {topic}/broker-a/3@17", param_hint="--after"
        )
    return message


def bytes_of(messages: Iterable[ReceivedMessage]) -> int:
    """The size of all bodies together."""
    return sum(len(message.body) for message in messages)


def show(messages: Iterable[ReceivedMessage], style: str, output: Output) -> None:
    """Print messages."""
    if output.for_programs:
        output.rows(map(described_message, messages))
        return
    write = message_writer(style)
    none = True
    for message in messages:
        write(message)
        none = False
    if none:
        echo("no message was found", err=True)


@message.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, FOUND_MAX),
    default=10,
    show_default=True,
    help="So many of the newest messages.",
)
@click.option("-f", "--follow", is_flag=True, help="Then wait for new ones until Ctrl-C.")
@format_option
@connection_options
@output_options
def tail(
    topic: str, count: int, follow: bool, style: str, connection: Connection, output: Output
) -> None:
    """Print the newest messages of TOPIC, oldest of them first."""
    from aerobee.blocking import PullConsumer
    from aerobee.cli.consume import read

    with connection.admin() as admin:
        look = leave_dead_out(admin)
        description = admin.describe_topic(topic)
        bounds = description.queues
        messages: list[ReceivedMessage] = []
        for bound in bounds:
            start = max(bound.first, bound.end - count)
            most = min(count, bound.end - start)
            if most:
                messages = newest_of(admin, bound.queue, start, most, messages)
                # No more stay in memory than are printed, however many queues there are.
                del messages[:-count]
    # Objects that come one by one are in no document.
    show(messages, style, Output(JSONL) if follow and output.for_programs else output)
    if not follow:
        end_without(look, description.left_out)
        return
    outages = tell_outages()
    write = message_writer("json" if output.for_programs else style)
    options = connection.options()
    with PullConsumer(CLI_GROUP, connection.namesrv, auto_commit=False, **options) as consumer:
        consumer.assign([bound.queue for bound in bounds])
        for bound in bounds:
            consumer.seek(bound.queue, bound.end)
        try:
            for following in read(consumer, None, None, True, outages):
                write(following)
        except KeyboardInterrupt:
            pass


def newest_of(
    admin: AdminClient,
    queue: MessageQueue,
    start: int,
    most: int,
    messages: list[ReceivedMessage],
) -> list[ReceivedMessage]:
    """The given messages and so many of a queue from `start` on, by store time. A program gets the
    newest whose bodies fit into its room.
    """
    room, left = body_room(), most
    while left > 0:
        at_once = left if room is None else min(left, READ_AT_ONCE)
        following = admin.read_messages(queue, start, max_messages=at_once)
        if not following:
            break
        messages = [*messages, *following]
        messages.sort(key=lambda message: (message.stored_at, message.commit_log_offset))
        while room is not None and len(messages) > 1 and bytes_of(messages) > room:
            del messages[0]
        left -= len(following)
        start = following[-1].queue_offset + 1
    return messages


@message.command("consume")
@click.argument("identity", metavar="ID|QUEUE@OFFSET")
@click.option("--group", required=True, help="Whose handler gets it.")
@click.option("--member", metavar="CLIENT", help="Which member; else the first.")
@click.option("--topic", help="Where to look for the id that a client gave.")
@connection_options
@output_options
def consume_directly(
    identity: str,
    group: str,
    member: str | None,
    topic: str | None,
    connection: Connection,
    output: Output,
) -> int:
    """Have a running member of a group handle one message once more; no offset moves.

    Exit code 1: its handler failed.
    """
    with connection.admin() as admin:
        received = by_place(admin, identity) or admin.view_message(identity, topic)
        done = admin.consume_directly(group, received, client_id=member)
    output.record(plain(done))
    return DONE if done.succeeded else FAILED
