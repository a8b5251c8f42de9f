"""Prints messages and their fields: as lines, as JSON, or in a format of the user's."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aerobee.cli.border import complain
from aerobee.cli.output import escaped, escaped_bytes, write_exactly, write_json
from aerobee.cli.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import ReceivedMessage

FORMAT_HELP = (
    "line, body, raw (no end of line), json, or a text with {body} {topic} {broker} {queue} "
    "{offset} {id} {tag} {keys} {stored} {born} {header.NAME}."
)
LINE = "{topic}/{broker}/{queue}@{offset}{mark} {body}\n"
STYLES = {"line": LINE, "body": "{body}\n", "raw": "{body}"}
HIDDEN: dict[str, str | None] = {"body": None}
"""Where bodies are not shown."""
FIELD = re.compile(r"\{([a-z]+)(?:\.([^{}]+))?\}")
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0"}
FIELDS: dict[str, Callable[[ReceivedMessage], str]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.queue.broker_name,
    "queue": lambda message: str(message.queue.queue_id),
    "offset": lambda message: str(message.queue_offset),
    "id": lambda message: message.message_id,
    "tag": lambda message: message.tag or "",
    "mark": lambda message: f" [{message.tag}]" if message.tag else "",
    "keys": lambda message: " ".join(message.keys),
    "stored": lambda message: message.stored_at.isoformat(),
    "born": lambda message: message.born_at.isoformat(),
}


def message_writer(style: str) -> Callable[[ReceivedMessage], None]:
    """The function that prints a message in this format. Raises: UsageError for an invalid one."""
    if style == "json":
        return write_message_json
    template = STYLES.get(style)
    if template is None:
        if "{" not in style:
            raise click.UsageError(f"--format {style}: write {FORMAT_HELP}")
        template = f"{style}\n"
        for written, meant in ESCAPES.items():
            template = template.replace(written, meant)
    pieces = parsed(template)
    part = on_terminal if sys.stdout.isatty() else in_pipe

    def write(message: ReceivedMessage) -> None:
        write_exactly(b"".join(part(piece, message) for piece in pieces))
        if message.unreadable is not None:
            place = f"{message.queue}@{message.queue_offset}"
            complain(f"the body of {place} is as it is stored: {message.unreadable}")

    return write


class Piece(NamedTuple):
    """A part of a format: a fixed text, or a field of the message."""

    text: str = ""
    name: str = ""
    header: str = ""

    def value(self, message: ReceivedMessage) -> str:
        """The value of this piece for a message; the body is printed separately."""
        if not self.name:
            return self.text
        if self.name == "header":
            return message.properties.get(self.header, "")
        return FIELDS[self.name](message)


def on_terminal(piece: Piece, message: ReceivedMessage) -> bytes:
    """A piece for a terminal: content of messages is escaped, as it may have control characters."""
    if piece.name == "body":
        return escaped_bytes(message.body).encode()
    value = piece.value(message)
    return (escaped(value) if piece.name else value).encode()


def in_pipe(piece: Piece, message: ReceivedMessage) -> bytes:
    """Unchanged text."""
    return message.body if piece.name == "body" else piece.value(message).encode()


def parsed(template: str) -> list[Piece]:
    """The pieces of a format. Raises: UsageError for an unknown field."""
    pieces, at = [], 0
    for match in FIELD.finditer(template):
        name, header = match[1], match[2] or ""
        if name not in (*FIELDS, "body", "header") or (name == "header") != bool(header):
            raise click.UsageError(f"--format: there is no {match[0]}; write {FORMAT_HELP}")
        pieces += [Piece(template[at : match.start()]), Piece(name=name, header=header)]
        at = match.end()
    return [*pieces, Piece(template[at:])]


def write_message_json(message: ReceivedMessage) -> None:
    """One object per line."""
    write_json(described_message(message))


def described_message(message: ReceivedMessage) -> dict[str, Any]:
    """A message for programs; a body that is not text, or is as it is stored, as base64."""
    kept = surroundings()
    shown = kept is None or kept.shows(len(message.body))
    body: dict[str, str | None] = described_body(message) if shown else HIDDEN
    if message.unreadable is not None:
        body = {**body, "unreadable": message.unreadable}
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


def described_body(message: ReceivedMessage) -> dict[str, str | None]:
    """A body for programs."""
    if message.unreadable is None:
        with suppress(UnicodeDecodeError):
            return {"body": message.body.decode()}
    from base64 import b64encode

    return {"body_base64": b64encode(message.body).decode()}


def plain(value: Any) -> Any:
    """Values of the SDK for programs: objects of their members, queues as topic, broker, queue."""
    from dataclasses import fields, is_dataclass
    from enum import Enum

    from aerobee.client.send_result import MessageQueue

    if isinstance(value, MessageQueue):
        return {"topic": value.topic, "broker": value.broker_name, "queue": value.queue_id}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value
