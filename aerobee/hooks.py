"""Hooks: what is called before and after each send and each handler, for metrics and for tracing.

    class Durations(Hook):
        def before_send(self, send): send.notes[self] = monotonic()
        def after_send(self, send): observe(send.topic, monotonic() - send.notes[self], send.error)

    Producer(hooks=[Durations()])

A client is given them, and whatever uses it calls them. A hook is quick and calls nothing of its
client: all else waits for it. What it raises is logged and changes nothing.
Source: client §15.1 (SendMessageHook, ConsumeMessageHook).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.send_result import SendResult
    from aerobee.errors import AerobeeError

__all__ = ["ConsumeContext", "ConsumeOutcome", "Hook", "SendContext"]


@dataclass(slots=True, eq=False)
class SendContext:
    """One send, all its tries together: of one message, or of a batch of one topic."""

    topic: str
    group: str
    messages: Sequence[Message]
    message_ids: Sequence[str]
    _: KW_ONLY
    oneway: bool = False
    half: bool = False
    """Whether it is the half of a transaction."""
    background: bool = False
    """Whether it was given to `send_soon`: its caller waits for nothing, and may be elsewhere."""
    properties: dict[str, str] = field(default_factory=dict)
    """What `before_send` puts here, each of the messages carries as its property."""
    results: Sequence[SendResult] = ()
    """Of a send that succeeded, one for each message; none of a one-way send."""
    error: AerobeeError | None = None
    """Why it failed; without an error and results it was cancelled, or is one-way."""
    notes: dict[object, object] = field(default_factory=dict)
    """What a hook wants to find again, each under a key of its own."""


class ConsumeOutcome(Enum):
    """What came of messages, numbered as in RocketMQ's message trace."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4
    """They are to come again, or are dead letters, because the handler said so."""


@dataclass(slots=True, eq=False)
class ConsumeContext:
    """Messages of one queue in the hands of a handler, or handed out to a caller."""

    group: str
    messages: Sequence[ReceivedMessage]
    _: KW_ONLY
    handled: bool = True
    """False where they are handed out: nobody knows then when the caller is done with them."""
    outcome: ConsumeOutcome = ConsumeOutcome.SUCCESS
    failed: Sequence[ReceivedMessage] = ()
    """Those that are not done."""
    error: Exception | None = None
    """What the handler raised."""
    notes: dict[object, object] = field(default_factory=dict)
    """What a hook wants to find again, each under a key of its own."""


class Hook:
    """Derive from it, and write what is needed of the four; `after` is called however it ended."""

    def before_send(self, send: SendContext) -> None:
        """These messages are about to be sent."""

    def after_send(self, send: SendContext) -> None:
        """They were stored, or not: see `results` and `error`."""

    def before_consume(self, consume: ConsumeContext) -> None:
        """These messages are about to be handled, in the task or thread of the handler."""

    def after_consume(self, consume: ConsumeContext) -> None:
        """They were handled: see `outcome`."""
