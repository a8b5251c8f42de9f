"""The `receive` calls of the blocking POP consumer, in the caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import ClientClosedError

if TYPE_CHECKING:
    from aerobee.client.blocking.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.popping import Popper


class Receiver:
    """The calls of one consumer."""

    def __init__(self, client: Client, popper: Popper) -> None:
        self._client = client
        self._popper = popper

    def receive(
        self, topic: str, most: int, wait_s: float, expression: Expression
    ) -> list[ReceivedMessage]:
        """Return messages as soon as there are any.

        Raises: as `Popper.receive`, ClientStateError.
        """
        try:
            self._client.check_works()
            return self._client.perform(self._popper.receive(topic, most, wait_s, expression))
        except ClientClosedError:
            # The consumer may have been closed by another thread, and its client with it.
            if self._popper.closing.is_set:
                return []
            raise
