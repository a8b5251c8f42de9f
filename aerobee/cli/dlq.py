"""Commands `aerobee dlq`: list the dead letters of groups, send them again, edit or drop them."""

from __future__ import annotations

from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from aerobee.cli.border import DONE, FAILED, complain, explained, reason_of
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import end_with, leave_dead_out
from aerobee.cli.dead_letters import (
    Choice,
    DeadLetters,
    dead_letters,
    has_letters,
    origin,
    place_of,
)
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import COUNT, yes_option
from aerobee.cli.output import Output, confirm, output_options, progress
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.blocking import Producer
    from aerobee.client.message import Message, ReceivedMessage

TOPIC_OPTION = click.option(
    "--to-topic", help="Send them there; else to the topic of their origin."
)


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --id, --tag, --key and --origin; the command gets a `choice`."""
    from functools import wraps

    @wraps(command)
    def run(
        *args: Any,
        ids: tuple[str, ...],
        tags: tuple[str, ...],
        key: str | None,
        origin: str | None,
        **named: Any,
    ) -> Any:
        return command(*args, choice=Choice(ids, tags, key, origin), **named)

    by_id = click.option(
        "--id", "ids", multiple=True, metavar="ID|PLACE", help="Only this one; repeatable."
    )
    by_tag = click.option("--tag", "tags", multiple=True, help="Only with this tag; repeatable.")
    by_key = click.option("--key", help="Only with this key.")
    by_origin = click.option("--origin", metavar="TOPIC", help="Only those that came from there.")
    return by_id(by_tag(by_key(by_origin(run))))


@click.group(cls=CommandGroup, short_help="Dead letters: list, send again, edit, drop.")
def dlq() -> None:
    """List dead letters, send them to the topics that they came from again, edit or drop them."""


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
@click.option("--open", "only_open", is_flag=True, help="Only those that are not done with.")
@choice_options
@connection_options
@output_options
def list_letters(
    group: str | None,
    most: int,
    only_open: bool,
    choice: Choice,
    connection: Connection,
    output: Output,
) -> None:
    """Print how many dead letters each group has, or the letters of GROUP.

    A letter is done when it was sent again, edited or dropped; it stays until it expires.
    """
    from aerobee.store.format.system_names import DLQ_PREFIX

    with connection.admin() as admin:
        look = leave_dead_out(admin)
        if group is not None:
            if has_letters(admin, group, output, look):
                letters = DeadLetters(admin, group, connection.namespace)
                listed = (
                    letter
                    for letter in letters.read()
                    if choice.takes(letter, connection.namespace)
                    and not (only_open and letters.marks.covers(letter))
                )
                output.rows(
                    described_letter(
                        letter, connection.namespace, done=letters.marks.covers(letter)
                    )
                    for letter in islice(listed, most)
                )
            end_with(look.dead)
            return
        rows = []
        for topic in admin.topics():
            if topic.startswith(DLQ_PREFIX):
                described = admin.describe_topic(topic)
                times = [queue.last_stored_at for queue in described.queues if queue.last_stored_at]
                rows.append(
                    {
                        "group": topic.removeprefix(DLQ_PREFIX),
                        "letters": described.messages,
                        "last": max(times, default=None),
                    }
                )
        output.rows(rows, none="there are no dead letters")
    end_with(look.dead)


def described_letter(
    letter: ReceivedMessage, namespace: str | None, *, done: bool
) -> dict[str, Any]:
    """A dead letter on one line."""
    return {
        "place": place_of(letter),
        "done": done,
        "origin": origin(letter, namespace),
        "tag": letter.tag,
        "keys": list(letter.keys),
        "tries": letter.reconsume_times,
        "born": letter.born_at,
        "died": letter.stored_at,
        "id": letter.message_id,
    }


@dlq.command()
@click.argument("group")
@choice_options
@TOPIC_OPTION
@click.option("--again", is_flag=True, help="Those as well that were done with before.")
@click.option("--max", "most", type=COUNT, help="So many at most.")
@click.option("-y", "--yes", is_flag=True, help="Send; without it only say what would be sent.")
@connection_options
@output_options
def redrive(
    group: str,
    choice: Choice,
    to_topic: str | None,
    again: bool,
    most: int | None,
    yes: bool,
    connection: Connection,
    output: Output,
) -> int:
    """Send the dead letters of GROUP again, to where they came from.

    Which are done is kept, so a second run sends only what is new. A letter that fails stays as it
    was, and the others are sent. A run that is killed may send its last letter twice.

    Example: aerobee dlq redrive billing --tag refund --yes
    """
    namespace = connection.namespace
    with dead_letters(connection, group, output) as letters:
        if letters is None:
            return DONE
        chosen = islice(letters.chosen(choice, again=again), most)
        if not yes:
            rows = [
                {"place": place_of(letter), "to": to_topic or origin(letter, namespace)}
                for letter in chosen
            ]
            output.rows(rows)
            output.say(f"{counted(len(rows), 'letter')} would be sent again; --yes does it")
            return DONE
        results: list[dict[str, Any]] = []
        sent = failed = 0
        with connection.producer() as producer, progress(None, "sending") as advance:
            for letter in chosen:
                to = to_topic or origin(letter, namespace)
                problem = resent(producer, letters, letter, to, choice)
                sent, failed = sent + (not problem), failed + bool(problem)
                if output.for_programs:
                    results.append({"place": place_of(letter), "to": to, "problem": problem})
                elif problem:
                    complain(f"{place_of(letter)}: {problem}")
                advance(1)
    if output.for_programs:
        output.record({"sent": sent, "failed": failed, "letters": results})
    output.say(f"{counted(sent, 'letter')} sent again{f', {failed} failed' if failed else ''}")
    return FAILED if failed else DONE


def resent(
    producer: Producer,
    letters: DeadLetters,
    letter: ReceivedMessage,
    to: str | None,
    choice: Choice,
) -> str | None:
    """Send one letter again, and note that; what was wrong, where it failed.

    Raises: TransportError, NoNameServerError: the next one would fail as well; AerobeeError where
    it is sent and not marked, so that no more of them are sent.
    """
    from aerobee.errors import AerobeeError, NoNameServerError, TransportError

    try:
        check_body(letter)
        copy = copy_of(letter, to)
        letters.prepare(letter, choice)
        producer.send(copy)
    except click.ClickException as error:
        problem = error.format_message()
    except AerobeeError as error:
        if isinstance(reason_of(error), (TransportError, NoNameServerError)):
            raise
        problem = explained(error)
    else:
        settle(letters, letter, choice)
        return None
    letters.leave(letter)
    return problem


def check_body(letter: ReceivedMessage) -> None:
    """Check that the body of a letter is as it was sent. Raises: MessageUnreadableError."""
    from aerobee.errors import MessageUnreadableError

    if letter.unreadable is not None:
        raise MessageUnreadableError(letter)


def settle(letters: DeadLetters, letter: ReceivedMessage, choice: Choice) -> None:
    """Note that a letter that is sent is done. Raises: AerobeeError, whose note names it."""
    from aerobee.errors import AerobeeError

    try:
        letters.settle(letter, choice)
    except AerobeeError as error:
        error.add_note(f"the letter at {place_of(letter)} is sent, and is not marked as done")
        raise


@dlq.command()
@click.argument("group")
@choice_options
@click.option("--all", "everything", is_flag=True, help="All letters that are not done with.")
@click.option("-y", "--yes", is_flag=True, help="Drop; without it only say what would be.")
@connection_options
@output_options
def drop(
    group: str,
    choice: Choice,
    everything: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Be done with dead letters of GROUP without sending them: `redrive` passes them by.

    They stay in their topic until they expire; `redrive --again` still finds them.

    Example: aerobee dlq drop billing --id C0A8011100002A9F0000000000000A3D --yes
    """
    if everything == (not choice.is_all):
        raise click.UsageError("name letters with --id, --tag, --key or --origin, or give --all")
    with dead_letters(connection, group, output) as letters:
        if letters is None:
            return
        rows = []
        for letter in letters.chosen(choice):
            if yes:
                letters.settle(letter, choice)
            # Not the letter: many have bodies that are large.
            rows.append({"place": place_of(letter), "id": letter.message_id, "dropped": yes})
    output.rows(rows)
    are = counted(len(rows), "letter is", "letters are")
    output.say(f"{are if yes else counted(len(rows), 'letter') + ' would be'} dropped")


@dlq.command()
@click.argument("group")
@click.argument("identity", metavar="ID|PLACE")
@TOPIC_OPTION
@click.option("--body", help="The new body.")
@click.option(
    "--file", "file", type=click.File("rb"), help="The new body is this file; - is stdin."
)
@click.option("--tag", help="The new tag; '' for none.")
@click.option("--key", "keys", multiple=True, help="The new keys; repeatable.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Added or changed; repeatable."
)
@click.option("--again", is_flag=True, help="Also one that was done with before.")
@yes_option
@connection_options
@output_options
def edit(
    group: str,
    identity: str,
    to_topic: str | None,
    body: str | None,
    file: IO[bytes] | None,
    again: bool,
    yes: bool,
    connection: Connection,
    output: Output,
    **changes: Any,
) -> None:
    """Send one dead letter of GROUP again with another body, tag, keys or headers.

    A field that is not named stays as it was. The letter itself stays, too, and is done with.

    Example: aerobee dlq edit billing C0A8011100002A9F0000000000000A3D --body '{"amount": 5}'
    """
    if body is not None and file is not None:
        raise click.UsageError("give --body or --file, not both")
    wanted = file.read() if file is not None else None if body is None else body.encode()
    choice, namespace = Choice(ids=(identity,)), connection.namespace
    with dead_letters(connection, group, output) as letters:
        if letters is None:
            return
        letter = next(letters.chosen(choice, again=again), None)
        if letter is None:
            raise click.ClickException(
                f"no letter of {group} that is not done with has the id or place {identity}"
            )
        if wanted is None:
            check_body(letter)
        copy = edited(copy_of(letter, to_topic or origin(letter, namespace)), wanted, **changes)
        if not yes:
            confirm(f"send the letter, edited, to {copy.topic}?")
        letters.prepare(letter, choice)
        with connection.producer() as producer:
            sent = producer.send(copy)
        settle(letters, letter, choice)
    if output.for_programs:
        output.record({"place": place_of(letter), "topic": copy.topic, "id": sent.message_id})
    output.say(f"the letter at {place_of(letter)} is sent to {copy.topic} as {sent.message_id}")


def edited(
    copy: Message,
    body: bytes | None,
    tag: str | None,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
) -> Message:
    """A message with changes. Raises: UsageError."""
    from dataclasses import replace

    properties = dict(copy.properties)
    for header in headers:
        name, sign, value = header.partition("=")
        if not sign:
            raise click.UsageError(f"--header {header}: write NAME=VALUE")
        properties[name] = value
    return replace(
        copy,
        body=copy.body if body is None else body,
        tag=copy.tag if tag is None else tag or None,
        keys=keys or copy.keys,
        properties=properties,
    )


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
    priority = None if letter.ordering_key else letter.priority
    own = {k: v for k, v in letter.properties.items() if k not in RESERVED_PROPERTIES}
    return Message(
        topic,
        letter.body,
        tag=letter.tag,
        keys=letter.keys,
        properties=own | {"aerobee_redriven_from": letter.message_id},
        flag=letter.flag,
        ordering_key=letter.ordering_key,
        priority=priority,
    )
