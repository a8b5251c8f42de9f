"""The command `aerobee why`: the history of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.bodies import described_message, plain
from aerobee.cli.border import DONE, FAILED
from aerobee.cli.completing import topic_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.output import Output, echo, escaped, output_options, shown

if TYPE_CHECKING:
    from aerobee.blocking import AdminClient
    from aerobee.diagnosis import MessageCopy, MessageHistory


@click.command(short_help="What became of a message.")
@click.argument("message_id", metavar="[ID|QUEUE@OFFSET]", required=False)
@click.option("--topic", shell_complete=topic_names, help="Where it was sent to.")
@click.option("--key", help="Instead of an id: the newest messages of --topic with this key.")
@click.option(
    "--max",
    "most",
    type=click.IntRange(1, 32),
    default=5,
    show_default=True,
    help="With --key: at most so many messages, the newest.",
)
@connection_options
@output_options
def why(
    message_id: str | None,
    topic: str | None,
    key: str | None,
    most: int,
    connection: Connection,
    output: Output,
) -> int:
    """Say where a message is, and what each consumer group did with it.

    ID is either kind, that of its client or that of its place. Exit code 1: no broker has it.

    Examples: aerobee why 7F000001… --topic Orders; aerobee why --topic Orders --key order-17;
    aerobee why Orders/broker-a/3@17
    """
    if (message_id is None) == (key is None) or (key is not None and topic is None):
        raise click.UsageError("give an id, or --topic and --key")
    with connection.admin() as admin:
        if message_id is not None:
            histories = [admin.explain_message(identity(admin, message_id), topic)]
        else:
            histories = admin.explain_messages(topic or "", key or "", max_messages=most)
    if not histories:
        raise click.ClickException(f"topic {topic} has no message with key {key}")
    if output.for_programs:
        if key is not None:
            output.rows(map(described, histories))
        else:
            output.record(described(histories[0]))
    else:
        for history in histories:
            show(history, output)
    return DONE if any(history.found for history in histories) else FAILED


def identity(admin: AdminClient, text: str) -> str:
    """The id of the message at TOPIC/BROKER/QUEUE@OFFSET; other texts are returned as they are."""
    from aerobee.cli.message import by_place

    placed = by_place(admin, text)
    return text if placed is None else placed.offset_message_id


def described(history: MessageHistory) -> dict[str, Any]:
    """A history for programs."""
    return {**plain(history), "copies": [described_copy(copy) for copy in history.copies]}


def described_copy(copy: MessageCopy) -> dict[str, Any]:
    """A copy for programs, with its message."""
    return {
        "kind": copy.kind.value,
        "group": copy.group,
        "waits": copy.waits,
        "due_at": copy.due_at,
        "physical_offset": copy.message.commit_log_offset,
        "offset_message_id": copy.message.offset_message_id,
        "size_bytes": copy.size_bytes,
        "sys_flag": copy.sys_flag,
        "flag": copy.message.flag,
        "reconsume_times": copy.message.reconsume_times,
        "born_host": copy.message.born_host,
        "store_host": copy.message.store_host,
        "message": described_message(copy.message),
    }


def show(history: MessageHistory, output: Output) -> None:
    """A history for people."""
    echo(f"message {escaped(history.message_id)} of topic {escaped(history.topic or '-')}")
    echo(f"  {escaped(history.text)}")
    output.rows(
        {
            "copy": copy.kind.value,
            "place": f"{copy.message.queue}@{copy.message.queue_offset}",
            "log": copy.message.commit_log_offset,
            "born": copy.message.born_at,
            "stored": copy.message.stored_at,
            "due": copy.due_at,
            "bytes": copy.size_bytes,
            "sys_flag": copy.sys_flag,
            "tag": copy.message.tag,
            "tries": copy.message.reconsume_times,
            "group": copy.group,
        }
        for copy in history.copies
    )
    for group in history.groups:
        until = f" (until {shown(group.until)})" if group.until else ""
        echo(f"group {escaped(group.group)}: {escaped(group.text)}{until}")
    for trace in history.traces:
        fields = " ".join(f"{name}={value}" for name, value in trace.fields.items())
        echo(f"trace {trace.kind}: {escaped(fields)}")
    for text in history.unknown:
        echo(f"not known: {escaped(text)}")
