"""One `receive` of the blocking POP consumer, in the caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.client.blocking.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.popping import Popper


def receive(
    client: Client, popper: Popper, topic: str, most: int, wait_s: float, expression: Expression
) -> list[ReceivedMessage]:
    """Return messages as soon as there are any. Raises: as `Popper.receive`, ClientStateError."""
    client.check_works()
    return client.perform(popper.receive(topic, most, wait_s, expression))
