"""One `receive` of the async POP consumer, in a task of the client.

A cancelled caller loses no messages: those that arrive for it are given back at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aerobee.client.steps.effects import Signal
from aerobee.errors import ClientClosedError
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.popping import Popper


async def receive(
    client: Client, popper: Popper, topic: str, most: int, wait_s: float, expression: Expression
) -> list[ReceivedMessage]:
    """Return messages as soon as there are any. Raises: as `Popper.receive`, ClientStateError."""
    try:
        group = client.working_group()
    except ClientClosedError:
        # The consumer may have been closed by another task, and its client with it.
        if popper.closing.is_set:
            return []
        raise
    receipt = Receipt()
    steps = popper.receive(topic, most, wait_s, expression, receipt.given_up)
    group.start_soon(fill, receipt, client, steps)
    try:
        await receipt.ended.wait()
    except BaseException:
        receipt.given_up.set()
        if receipt.messages:
            client.spawn(popper.give_back(receipt.messages))
        raise
    if receipt.error is not None:
        raise receipt.error
    return receipt.messages


class Receipt:
    """The outcome of one call."""

    __slots__ = ("ended", "error", "given_up", "messages")

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.messages: list[ReceivedMessage] = []
        self.error: Exception | None = None
        self.given_up = Signal()


async def fill(receipt: Receipt, client: Client, steps: Steps[list[ReceivedMessage]]) -> None:
    """Run the steps of a call and keep their outcome."""
    try:
        with Border() as border:
            receipt.messages = await client.perform(steps)
        receipt.error = border.error
    finally:
        receipt.ended.set()
