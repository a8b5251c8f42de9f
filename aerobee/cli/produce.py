"""The command `aerobee produce`."""

from __future__ import annotations

from contextlib import nullcontext
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import structs

from aerobee.cli.arguments import InputFile
from aerobee.cli.border import drop_output
from aerobee.cli.completing import topic_names
from aerobee.cli.connection import Connection, connection_options, tell_outages
from aerobee.cli.options import COUNT, RATE, SIZE_MAX
from aerobee.cli.output import Output, echo, output_options, progress, write_json
from aerobee.cli.times import duration_of, time_of
from aerobee.counted import counted
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.blocking import Producer
    from aerobee.cli.arguments import InputLines
    from aerobee.client.message import Message
    from aerobee.client.send_result import MessageQueue, SendResult


NO_OFFSET: Final = -1
"""In place of the offset of a message that is not in its queue yet."""


@click.command(short_help="Send messages to a topic.")
@click.argument("topic", shell_complete=topic_names)
@click.argument("body", required=False)
@click.option("--tag", help="Tag of the messages, for consumers' filters.")
@click.option("--key", "keys", multiple=True, help="Key to look a message up by; repeatable.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--ordering-key", help="Messages with equal ones go to one queue, in order.")
@click.option("--priority", type=click.IntRange(0), help="Popped before lower ones; since 5.4.")
@click.option("--delay", help="Deliver so much later: 10s, 5m, 2h. Needs a broker since 5.0.")
@click.option("--deliver-at", help="Deliver at 2025-01-31T12:00. Needs a broker since 5.0.")
@click.option("--count", type=COUNT, help="How often to send BODY; 1.")
@click.option(
    "--size", type=click.IntRange(1, SIZE_MAX), help="Send bodies of so many bytes instead."
)
@click.option("--rate", type=RATE, help="Messages per second.")
@click.option("--file", "lines", type=InputFile(), help="One message per line; - is stdin.")
@click.option(
    "--format",
    "style",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Of the lines of --file: bodies, or the objects that `consume --json` prints.",
)
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only to queues of this id.")
@click.option("--batch", type=COUNT, default=1, help="Messages per request; 1.")
@connection_options
@output_options
def produce(
    topic: str,
    body: str | None,
    count: int | None,
    size: int | None,
    rate: float | None,
    lines: InputLines | None,
    style: str,
    queue_id: int | None,
    batch: int,
    connection: Connection,
    output: Output,
    **options: Any,
) -> None:
    """Send BODY to TOPIC, or the lines of --file, or --count bodies of --size bytes.

    Every message is stored when the command ends with 0.

    Example: aerobee produce Orders paid --key order-17 --header region=north --delay 5m
    """
    if (body is not None) + (size is not None) + (lines is not None) != 1:
        raise click.UsageError("give one of BODY, --size and --file")
    if batch > 1 and queue_id is not None:
        raise click.UsageError("--batch chooses its own queues: leave --queue out")
    if count is not None and lines is not None:
        raise click.UsageError("--count is for BODY and --size: each line of --file is sent once")
    if style == "json" and lines is None:
        raise click.UsageError("--format json is for --file")
    total = None if lines else count or 1
    fields = message_fields(**options)
    if lines is None:
        messages = messages_from(topic, body, size, count or 1, fields)
    else:
        from aerobee.cli.message_lines import messages_of

        messages = messages_of(topic, lines, fields, described=style == "json")
    tell_outages()
    with connection.producer() as producer:
        sent = send_all(producer, messages, None if total == 1 else rate, queue_id, batch)
        sent = sent if lines is None else naming_lines(sent, lines)
        if total == 1:
            show_one(sent, output)
        else:
            show_many(sent, total, output)


def naming_lines(sent: Iterator[SendResult], lines: InputLines) -> Iterator[SendResult]:
    """The results; an error says which line was the last one to be sent."""
    try:
        yield from sent
    except AerobeeError as error:
        error.add_note(lines.here)
        raise


def message_fields(
    *,
    tag: str | None,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
    ordering_key: str | None,
    delay: str | None,
    deliver_at: str | None,
    priority: int | None = None,
) -> dict[str, Any]:
    """The properties of every message besides its body. Raises: UsageError."""
    properties = {}
    for header in headers:
        name, sign, value = header.partition("=")
        if not sign:
            raise click.UsageError(f"--header {header}: write NAME=VALUE")
        properties[name] = value
    return {
        "tag": tag,
        "keys": keys,
        "properties": properties,
        "ordering_key": ordering_key,
        "priority": priority,
        "delay": None if delay is None else duration_of(delay, "--delay"),
        "deliver_at": None if deliver_at is None else time_of(deliver_at, "--deliver-at"),
    }


def messages_from(
    topic: str, body: str | None, size: int | None, total: int, fields: dict[str, Any]
) -> Iterator[Message]:
    """So many messages with this body, or with one of this size."""
    from aerobee.client.message import Message

    content = b"x" * size if size else (body or "").encode()
    return (Message(topic, content, **fields) for _ in range(total))


def send_all(
    producer: Producer,
    messages: Iterator[Message],
    rate: float | None,
    queue_id: int | None,
    batch: int,
) -> Iterator[SendResult]:
    """Send at the given rate, as counted from the first message."""
    started, sent = monotonic(), 0
    selector = None if queue_id is None else only_queue(queue_id)
    for chunk in chunks(messages, batch):
        if rate is not None:
            sleep(max(0.0, started + sent / rate - monotonic()))
        if batch > 1:
            results = producer.send_batch(chunk)
        else:
            results = [producer.send(chunk[0], queue=selector)]
        yield from map(placed, results, chunk)
        sent += len(chunk)


def chunks(messages: Iterator[Message], most: int) -> Iterator[list[Message]]:
    """So many messages at a time, or as many as fill a request: those are in memory together."""
    from aerobee.client.steps.producer_batch import BATCH_BYTES, batch_size

    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += batch_size(message)
        if len(chunk) == most or size >= BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def placed(result: SendResult, message: Message) -> SendResult:
    """A result without its offset where that is not in the queue yet: the broker names the place in
    its own topic, where a delayed message waits.
    """
    waits = message.delay is not None or message.deliver_at is not None
    return structs.replace(result, queue_offset=NO_OFFSET) if waits else result


def only_queue(queue_id: int) -> Any:
    """A selector of the queues with one id. Raises: UsageError if the topic has none."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        for queue in queues:
            if queue.queue_id == queue_id:
                return queue
        highest = max(queue.queue_id for queue in queues)
        raise click.UsageError(f"{message.topic} has queues 0 to {highest}, not {queue_id}")

    return select


# ── Results ──


def show_one(sent: Iterator[SendResult], output: Output) -> None:
    """One line about one message."""
    for result in sent:
        if output.for_programs:
            write_json(described_result(result))
        else:
            status = "" if result.ok else f" ({result.status.name})"
            place = f"in {result.queue} at {result.queue_offset}"
            if result.queue_offset == NO_OFFSET:
                place = f"until it is delivered to {result.queue}"
            echo(f"stored {result.message_id} {place}{status}")


def show_many(sent: Iterator[SendResult], total: int | None, output: Output) -> None:
    """A line per message as JSON, else a progress bar and a summary."""
    started = monotonic()
    done = unsafe = 0
    as_json = output.for_programs
    drawn = nullcontext(lambda _done: None) if as_json else progress(total, "sending")
    try:
        with drawn as advance:
            for result in sent:
                done += 1
                unsafe += not result.ok
                if as_json:
                    write_result(result, done)
                advance(1)
    finally:
        if not as_json:
            echo(summed_up(done, unsafe, monotonic() - started))


def summed_up(done: int, unsafe: int, elapsed_s: float) -> str:
    """The sum of what was sent, in words. `unsafe`: with a status other than OK."""
    note = f", {unsafe} of them not as safely as configured" if unsafe else ""
    rate = done / elapsed_s if elapsed_s else 0.0
    return f"{counted(done, 'message')} stored in {elapsed_s:.2f} s, {rate:.0f} per second{note}"


def write_result(result: SendResult, done: int) -> None:
    """One line of JSON about one of many. Raises: ClickException where nobody reads it."""
    try:
        write_json(described_result(result))
    except BrokenPipeError:
        drop_output()
        raise click.ClickException(
            f"nobody reads the output any more, so no more is sent; at least {done} are stored"
        ) from None


def described_result(result: SendResult) -> dict[str, Any]:
    """A send result for programs."""
    return {
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": None if result.queue_offset == NO_OFFSET else result.queue_offset,
        "status": result.status.name,
        "attempts": result.attempts,
    }
