"""Hooks: calls before and after each send and each handler, for metrics and for tracing.

    class Durations(Hook):
        def before_send(self, send): send.notes[self] = monotonic()
        def after_send(self, send): observe(send.topic, monotonic() - send.notes[self], send.error)

    Producer(hooks=[Durations()])

A client is given them, and its producers and consumers call them. A hook must be quick and must not
call its client, because everything else waits for it. Its errors are logged and ignored.
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
    """One send with all its tries: of one message, or of a batch of one topic."""

    topic: str
    group: str
    messages: Sequence[Message]
    message_ids: Sequence[str]
    _: KW_ONLY
    oneway: bool = False
    half: bool = False
    """Whether it is the half message of a transaction."""
    background: bool = False
    """Whether it is a send of `send_soon`, which no caller waits for."""
    properties: dict[str, str] = field(default_factory=dict)
    """Properties that `before_send` adds to each of the messages."""
    results: Sequence[SendResult] = ()
    """The results of a successful send, one for each message; none of a one-way send."""
    error: AerobeeError | None = None
    """The error of a failed send; without error and results it was cancelled, or is one-way."""
    notes: dict[object, object] = field(default_factory=dict)
    """Values that a hook keeps from `before_send` to `after_send`, by the hook as key."""


class ConsumeOutcome(Enum):
    """The outcome of a consumption, numbered as in RocketMQ's message trace."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4
    """The handler asked for a retry, or for a dead letter."""


@dataclass(slots=True, eq=False)
class ConsumeContext:
    """Messages of one queue that a handler processes, or that a caller received."""

    group: str
    messages: Sequence[ReceivedMessage]
    _: KW_ONLY
    handled: bool = True
    """False if a caller received them: then it is unknown when the caller has processed them."""
    outcome: ConsumeOutcome = ConsumeOutcome.SUCCESS
    failed: Sequence[ReceivedMessage] = ()
    """The messages that were not processed successfully."""
    error: Exception | None = None
    """The error of the handler."""
    notes: dict[object, object] = field(default_factory=dict)
    """Values that a hook keeps from `before_consume` to `after_consume`, by the hook as key."""


class Hook:
    """The base of hooks: override any of the four; `after` is called whatever the result."""

    def before_send(self, send: SendContext) -> None:
        """Called before these messages are sent."""

    def after_send(self, send: SendContext) -> None:
        """Called after a send; see `results` and `error`."""

    def before_consume(self, consume: ConsumeContext) -> None:
        """Called before these messages are handled, in the task or thread of the handler."""

    def after_consume(self, consume: ConsumeContext) -> None:
        """Called after they were handled; see `outcome`."""
