"""Messages from the lines of a file: bodies, or the objects that `consume --json` prints."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

import click
import msgspec

from aerobee.client.message import RESERVED_PROPERTIES, Message
from aerobee.errors import ConfigurationError
from aerobee.store.format.priority import PRIORITY, priority_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.cli.arguments import InputLines


class ConsumeLine(msgspec.Struct):
    """The fields that count of an object that `consume --json` prints; others are left out."""

    body: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None
    unreadable: str | None = None


def messages_of(
    topic: str, lines: InputLines, fields: dict[str, Any], *, described: bool
) -> Iterator[Message]:
    """A message of every line that is not empty, because brokers refuse empty bodies.

    `fields`: of every message, whatever its line says. Raises: UsageError, which names the line.
    """
    make = from_json if described else from_text
    for line in lines:
        if not line:
            continue
        try:
            message = make(topic, line, fields)
        except (ConfigurationError, ValueError, RecursionError) as error:
            raise click.UsageError(f"{lines.here} is no message: {error}") from None
        yield message


def from_text(topic: str, line: bytes, fields: dict[str, Any]) -> Message:
    """A message with this body. Raises: ConfigurationError."""
    return Message(topic, line, **fields)


def from_json(topic: str, line: bytes, fields: dict[str, Any]) -> Message:
    """A message from the output of `consume --json`; `fields` override its own.

    Properties that clients and brokers set are left out. Raises: ValueError, ConfigurationError.
    """
    read = msgspec.json.decode(line, type=ConsumeLine)
    if read.unreadable is not None:
        raise ValueError(f"its body is as it was stored, not as it was sent: {read.unreadable}")
    if read.body is not None:
        body = read.body.encode()
    elif read.body_base64 is not None:
        body = b64decode(read.body_base64, validate=True)
    else:
        raise ValueError("it has neither body nor body_base64")
    own = {
        name: value
        for name, value in (read.properties or {}).items()
        if name not in RESERVED_PROPERTIES
    }
    merged: dict[str, Any] = {
        "tag": fields["tag"] or read.tag,
        "keys": fields["keys"] or read.keys or (),
        "properties": own | fields["properties"],
    }
    if all(fields[name] is None for name in ("priority", "ordering_key", "delay", "deliver_at")):
        merged["priority"] = priority_of((read.properties or {}).get(PRIORITY))
    return Message(topic, body, **(fields | merged))
