"""The result of a message that a blocking producer sends in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.client.blocking.client import Client
    from aerobee.client.message import Message
    from aerobee.client.send_result import SendResult
    from aerobee.client.steps.outbox import Outbox, OutgoingMessage


class PendingSend:
    """A message accepted by `send_soon`, and its result. Any thread may ask for it."""

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

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait until it is stored. Raises: the failure; RequestTimeoutError after `timeout`."""
        if not self.done:
            self._client.check_works()
        return self._client.perform(self._outbox.outcome(self._outgoing, timeout))
