"""`aerobee produce` and `aerobee consume`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice, repeat
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any

import click

from aerobee.cli.options import json_option, namesrv_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from aerobee.blocking import Producer, PullConsumer
    from aerobee.client.config import ConsumeFrom
    from aerobee.client.message import Message, MessageQueue, ReceivedMessage, SendResult

__all__ = ["consume", "produce"]

CLI_GROUP = "aerobee_cli"
POLL_S = 0.5


# ── produce ──


@click.command(short_help="Send messages to a topic.")
@click.argument("topic")
@click.argument("body", required=False)
@namesrv_option
@click.option("--tag", help="Tag of the messages, for consumers' filters.")
@click.option("--key", "keys", multiple=True, help="Key to look a message up by; repeatable.")
@click.option("--count", type=click.IntRange(1), help="How often to send BODY; 1.")
@click.option("--size", type=click.IntRange(1), help="Send bodies of so many bytes instead.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages per second.")
@click.option("--file", "lines", type=click.File("rb"), help="One message per line; - is stdin.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only to queues of this id.")
@click.option("--batch", type=click.IntRange(1), default=1, help="Messages per request; 1.")
@json_option
def produce(
    topic: str,
    body: str | None,
    namesrv: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    count: int | None,
    size: int | None,
    rate: float | None,
    lines: IO[bytes] | None,
    queue_id: int | None,
    batch: int,
    as_json: bool,
) -> None:
    """Send BODY to TOPIC, or the lines of --file, or --count bodies of --size bytes.

    Every message is stored when the command ends with 0.
    """
    from aerobee.blocking import Producer
    from aerobee.client.message import Message

    if (body is not None) + (size is not None) + (lines is not None) != 1:
        raise click.UsageError("give one of BODY, --size and --file")
    if batch > 1 and queue_id is not None:
        raise click.UsageError("--batch chooses its own queues: leave --queue out")
    total = None if lines else count or 1
    messages = (
        Message(topic, part, tag=tag, keys=keys) for part in bodies(body, size, lines, total)
    )
    with Producer(namesrv, group=CLI_GROUP) as producer:
        if lines is None and total == 1:
            show_one(send_all(producer, messages, None, queue_id, 1), as_json)
        else:
            sent = send_all(producer, messages, rate, queue_id, batch)
            show_many(sent, total, size or len(body or ""), as_json)


def bodies(
    body: str | None, size: int | None, lines: IO[bytes] | None, total: int | None
) -> Iterator[bytes]:
    """The bodies to send; empty lines are left out, for no broker takes an empty body."""
    if lines is not None:
        return (line for raw in lines if (line := raw.rstrip(b"\r\n")))
    content = b"x" * size if size else (body or "").encode()
    return repeat(content, total or 1)


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
    while chunk := list(islice(messages, batch)):
        if rate is not None:
            sleep(max(0.0, started + sent / rate - monotonic()))
        if batch > 1:
            yield from producer.send_batch(chunk)
        else:
            yield producer.send(chunk[0], queue=selector)
        sent += len(chunk)


def only_queue(queue_id: int) -> Any:
    """A selector for queues of one id. Raises: UsageError if the topic has none."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        for queue in queues:
            if queue.queue_id == queue_id:
                return queue
        highest = max(queue.queue_id for queue in queues)
        raise click.UsageError(f"{message.topic} has queues 0 to {highest}, not {queue_id}")

    return select


def show_one(sent: Iterator[SendResult], as_json: bool) -> None:
    """One line about one message."""
    for result in sent:
        if as_json:
            show_json(described_result(result))
        else:
            status = "" if result.ok else f" ({result.status.name})"
            click.echo(
                f"stored {result.message_id} in {result.queue} at {result.queue_offset}{status}"
            )


def show_many(sent: Iterator[SendResult], total: int | None, size: int, as_json: bool) -> None:
    """A line per message as JSON, else a progress bar and a summary."""
    started = monotonic()
    done = unsafe = 0
    try:
        with progress(total, as_json) as advance:
            for result in sent:
                done += 1
                unsafe += not result.ok
                if as_json:
                    show_json(described_result(result))
                advance()
    finally:
        elapsed_s = monotonic() - started
        if not as_json:
            note = f", {unsafe} of them not as safely as configured" if unsafe else ""
            rate = done / elapsed_s if elapsed_s else 0.0
            click.echo(f"{done} messages stored in {elapsed_s:.2f} s, {rate:.0f} per second{note}")


def progress(total: int | None, as_json: bool) -> AbstractContextManager[Any]:
    """A context that gives a function to call per message; draws only on a terminal."""
    if as_json or not sys.stderr.isatty():
        return nullcontext(lambda: None)
    return drawn_progress(total)


class drawn_progress:  # noqa: N801 (used like a function)
    """A rich progress bar on stderr."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task("sending", total=total)

    def __enter__(self) -> Any:
        self.bar.start()
        return lambda: self.bar.advance(self.task)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def described_result(result: SendResult) -> dict[str, Any]:
    """A send result for programs."""
    return {
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "status": result.status.name,
        "attempts": result.attempts,
    }


# ── consume ──


@click.command(short_help="Print the messages of a topic.")
@click.argument("topic")
@namesrv_option
@click.option("--group", help="Share the topic with this group, and remember how far it is.")
@click.option(
    "--from",
    "start",
    default="first",
    help="first, last, or a time as 2025-01-31T12:00 or epoch ms; a group goes on where it was.",
)
@click.option("--tag", "expression", default="*", help="Only these tags: A or 'A || B'.")
@click.option("--max", "most", type=click.IntRange(1), help="End after so many messages.")
@click.option("--timeout", type=click.FloatRange(0), help="End after so many seconds of silence.")
@click.option(
    "--follow/--no-follow", default=True, help="Wait for new messages, or end at today's end."
)
@json_option
def consume(
    topic: str,
    namesrv: str | None,
    group: str | None,
    start: str,
    expression: str,
    most: int | None,
    timeout: float | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC until Ctrl-C.

    Without --group it reads all queues and leaves no trace; with it, it is a member of the group:
    the queues are shared, and what was printed is committed.
    """
    from aerobee.blocking import PullConsumer

    position = start_position(start)
    with PullConsumer(
        group or CLI_GROUP, namesrv, start_from=position, auto_commit=group is not None
    ) as consumer:
        if group is not None:
            consumer.subscribe(topic, expression)
        else:
            consumer.assign(consumer.queues(topic), expression)
            for queue in consumer.assignment:
                consumer.seek(queue, position)
        try:
            for message in read(consumer, most, timeout, follow):
                show_message(message, as_json)
        except KeyboardInterrupt:
            pass


def start_position(text: str) -> ConsumeFrom | datetime:
    """`first`, `last`, ISO 8601 (local time without a zone), or ms since the epoch."""
    from aerobee.client.config import ConsumeFrom

    if text in ("first", "last"):
        return ConsumeFrom[text.upper()]
    try:
        if text.isdigit():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--from {text}: write first, last, 2025-01-31T12:00 or epoch milliseconds"
        ) from None


def read(
    consumer: PullConsumer, most: int | None, silence_s: float | None, follow: bool
) -> Iterator[ReceivedMessage]:
    """Messages until `most`, silence, or today's end; each is done when the next is asked for."""
    ends = {} if follow else consumer.end_offsets()
    seen = 0
    last_at = monotonic()
    while follow or not reached(consumer, ends):
        wanted = 32 if most is None else min(32, most - seen)
        messages = consumer.poll(max_messages=wanted, timeout=POLL_S if follow else 0.05)
        for message in messages:
            yield message
            consumer.done(message)
            seen += 1
        if messages:
            last_at = monotonic()
        if seen == most or (silence_s is not None and monotonic() - last_at >= silence_s):
            return


def reached(consumer: PullConsumer, ends: dict[MessageQueue, int]) -> bool:
    """Whether every queue still ours is read up to its end."""
    ours = consumer.assignment & ends.keys()
    return all(consumer.position(queue) >= ends[queue] for queue in ours)


def show_message(message: ReceivedMessage, as_json: bool) -> None:
    """One line per message: where it lies, its tag, its body."""
    if as_json:
        show_json(described_message(message))
        return
    text = message.body.decode(errors="backslashreplace")
    tag = f" [{message.tag}]" if message.tag else ""
    click.echo(f"{message.queue}@{message.queue_offset}{tag} {text}")


def described_message(message: ReceivedMessage) -> dict[str, Any]:
    """A message for programs; a body that is no text comes as base64."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        body = {"body_base64": b64encode(message.body).decode()}
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "born_at": message.born_at.isoformat(),
        "stored_at": message.stored_at.isoformat(),
        **body,
    }


def show_json(value: dict[str, Any]) -> None:
    """One object per line."""
    import msgspec

    click.echo(msgspec.json.encode(value))
