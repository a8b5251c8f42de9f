"""Commands `aerobee dlq`: list the dead letters of groups, and send them again."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import end_with, leave_dead_out
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import COUNT
from aerobee.cli.output import Output, output_options, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.blocking import AdminClient
    from aerobee.client.message import Message, ReceivedMessage

__all__ = ["dlq"]

REDRIVE_GROUP = "aerobee_redrive_{group}"
"""The group whose offsets record how far dead letters have been sent again."""
ORIGINS = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "REAL_TOPIC")
READ_AT_ONCE = 256
GROUP_MAX_CHARACTERS = 120


@click.group(cls=CommandGroup, short_help="Dead letters: list them, send them again.")
def dlq() -> None:
    """List dead letters, and send them to the topics that they came from again."""


@dlq.command("list")
@click.argument("group", required=False)
@click.option(
    "--max",
    "most",
    type=COUNT,
    default=100,
    show_default=True,
    help="At most so many letters.",
)
@connection_options
@output_options
def list_letters(group: str | None, most: int, connection: Connection, output: Output) -> None:
    """Print how many dead letters each group has, or the letters of GROUP."""
    from aerobee.client.system_names import DLQ_PREFIX

    with connection.admin() as admin:
        look = leave_dead_out(admin)
        if group is not None:
            if has_letters(admin, group, output):
                found = islice(letters(admin, group), most)
                output.rows(described_letter(one, connection.namespace) for one in found)
            end_with(look.dead)
            return
        rows = []
        for topic in admin.topics():
            if topic.startswith(DLQ_PREFIX):
                described = admin.describe_topic(topic)
                times = [one.last_stored_at for one in described.queues if one.last_stored_at]
                rows.append(
                    {
                        "group": topic.removeprefix(DLQ_PREFIX),
                        "letters": described.messages,
                        "last": max(times, default=None),
                    }
                )
        output.rows(rows)
    end_with(look.dead)


def described_letter(letter: ReceivedMessage, namespace: str | None) -> dict[str, Any]:
    """A dead letter on one line."""
    return {
        "place": f"{letter.queue}@{letter.queue_offset}",
        "origin": origin(letter, namespace),
        "tag": letter.tag,
        "keys": list(letter.keys),
        "tries": letter.reconsume_times,
        "born": letter.born_at,
        "died": letter.stored_at,
        "id": letter.message_id,
    }


def origin(letter: ReceivedMessage, namespace: str | None) -> str | None:
    """The topic that a dead letter came from, if known."""
    from aerobee.client.namespaces import plain
    from aerobee.client.system_names import RETRY_PREFIX

    for name in ORIGINS:
        topic = letter.properties.get(name, "")
        if topic and not topic.startswith(RETRY_PREFIX):
            return plain(topic, namespace)
    return None


def has_letters(admin: AdminClient, group: str, output: Output) -> bool:
    """Whether a group ever had dead letters; if not, it is said. Raises: GroupNotFoundError."""
    from aerobee.client.system_names import DLQ_PREFIX
    from aerobee.errors import GroupNotFoundError

    if f"{DLQ_PREFIX}{group}" in admin.topics():
        return True
    if group not in admin.groups():
        raise GroupNotFoundError(f"no broker knows group {group}")
    output.rows([])
    output.say(f"group {group} has no dead letters")
    return False


def letters(
    admin: AdminClient, group: str, after: dict[Any, int | None] | None = None
) -> Iterator[ReceivedMessage]:
    """The dead letters of a group, queue by queue, from the offsets in `after` on.

    Raises: PermissionDeniedError with what to do where the topic may not be read.
    """
    from aerobee.client.system_names import DLQ_PREFIX

    topic = f"{DLQ_PREFIX}{group}"
    described = admin.describe_topic(topic)
    if not all(one.perm & 4 for one in described.configs):
        from aerobee.cli.border import complain

        complain(f"{topic} may not be read: aerobee topic alter '{topic}' --perm rw")
    for one in described.queues:
        offset = max(one.first, (after or {}).get(one.queue) or 0)
        while offset < one.end:
            found = admin.read_messages(one.queue, offset, max_messages=READ_AT_ONCE)
            yield from found
            if not found:
                break
            offset = found[-1].queue_offset + 1


@dlq.command()
@click.argument("group")
@click.option("--to-topic", help="Send them there; else to the topic of their origin.")
@click.option("--again", is_flag=True, help="Those as well that were sent again before.")
@click.option("--max", "most", type=COUNT, help="So many at most.")
@click.option("-y", "--yes", is_flag=True, help="Send; without it only say what would be sent.")
@connection_options
@output_options
def redrive(
    group: str,
    to_topic: str | None,
    again: bool,
    most: int | None,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Send the dead letters of GROUP again, to where they came from.

    How far it came is kept as the offset of a group of its own, so a second run sends only what
    is new. A run that is killed may send its last letter twice.
    """
    from aerobee.client.system_names import DLQ_PREFIX

    keeper = REDRIVE_GROUP.format(group=group)[:GROUP_MAX_CHARACTERS]
    with connection.admin() as admin:
        topic = f"{DLQ_PREFIX}{group}"
        if not has_letters(admin, group, output):
            return
        done = {} if again else admin.committed_offsets(keeper, topic)
        found = islice(letters(admin, group, done), most)
        if not yes:
            rows = [
                {
                    "place": f"{one.queue}@{one.queue_offset}",
                    "to": to_topic or origin(one, connection.namespace),
                }
                for one in found
            ]
            output.rows(rows)
            output.say(f"{len(rows)} letters would be sent again; --yes does it")
            return
        with connection.producer() as producer, progress(None, "sending") as advance:
            sent = 0
            for letter in found:
                producer.send(copy_of(letter, to_topic or origin(letter, connection.namespace)))
                note(admin, keeper, letter, first=not sent)
                sent += 1
                advance(1)
    if output.for_programs:
        output.record({"sent": sent})
    output.say(f"{sent} letters sent again")


def note(admin: AdminClient, keeper: str, letter: ReceivedMessage, *, first: bool) -> None:
    """Commit the offset after a letter that was sent."""
    from aerobee.admin import GroupConfig

    if first:
        admin.create_group(GroupConfig(name=keeper))
    after = letter.queue_offset + 1
    admin.reset_offsets(keeper, letter.queue.topic, after, queues=[letter.queue])


def copy_of(letter: ReceivedMessage, topic: str | None) -> Message:
    """A new message with the content and properties of the letter, and its id as a property.

    Raises: ClickException for a letter without a known origin.
    """
    from aerobee.client.message import RESERVED_PROPERTIES, Message

    if topic is None:
        raise click.ClickException(
            f"the letter at {letter.queue}@{letter.queue_offset} does not say where it came from: "
            "name a topic with --to-topic"
        )
    own = {k: v for k, v in letter.properties.items() if k not in RESERVED_PROPERTIES}
    return Message(
        topic,
        letter.body,
        tag=letter.tag,
        keys=letter.keys,
        properties=own | {"aerobee_redriven_from": letter.message_id},
        flag=letter.flag,
        ordering_key=letter.ordering_key,
    )
