"""The result of a message that an async producer sends in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from aerobee.client.aio.client import Client
    from aerobee.client.message import Message
    from aerobee.client.send_result import SendResult
    from aerobee.client.steps.outbox import Outbox, OutgoingMessage


class PendingSend:
    """A message accepted by `send_soon`. Awaiting it gives the SendResult, or raises the failure.

    Any number of tasks may await it, any number of times.
    """

    __slots__ = ("_client", "_outbox", "_outgoing")

    def __init__(self, client: Client, outbox: Outbox, outgoing: OutgoingMessage) -> None:
        self._client = client
        self._outbox = outbox
        self._outgoing = outgoing

    @property
    def message(self) -> Message:
        """The message."""
        return self._outgoing.batch.messages[0]

    @property
    def done(self) -> bool:
        """Whether the send has ended, with a result or a failure."""
        return self._outgoing.outcome is not None

    def __await__(self) -> Generator[Any, Any, SendResult]:
        if not self.done:
            self._client.working_group()
        return self._client.perform(self._outbox.outcome(self._outgoing)).__await__()
