"""The `receive` calls of the async POP consumer, each in a task of the client.

A cancelled caller loses no messages. Its request cannot be taken back: a broker may hold it for
long, and hand it a message before the request of a later call. So the next call for the same takes
it over; without one, messages that arrive for it are given back at once.
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import anyio

from aerobee.client.filters import Filter
from aerobee.client.steps.effects import Signal
from aerobee.errors import ClientClosedError
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.popping import Popper


class Wish(NamedTuple):
    """The messages that a call asks for."""

    topic: str
    most: int
    filter: Filter


class Receipt:
    """The outcome of one call."""

    __slots__ = ("began", "ended", "error", "given_up", "messages")

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended = anyio.Event()
        self.messages: list[ReceivedMessage] = []
        self.error: Exception | None = None
        self.given_up = Signal()


class Receiver:
    """The calls of one consumer."""

    def __init__(self, client: Client, popper: Popper) -> None:
        self._client = client
        self._popper = popper
        self._left: dict[Wish, list[Receipt]] = {}
        """The receipts of cancelled calls whose requests are in flight."""

    async def receive(
        self, topic: str, most: int, wait_s: float, expression: Expression
    ) -> list[ReceivedMessage]:
        """Return messages as soon as there are any.

        Raises: as `Popper.receive`, ClientStateError.
        """
        try:
            group = self._client.working_group()
        except ClientClosedError:
            # The consumer may have been closed by another task, and its client with it.
            if self._popper.closing.is_set:
                return []
            raise
        wish = Wish(topic, most, Filter.of(expression))
        clock = self._client.instance.clock.monotonic
        deadline = clock() + wait_s
        while wish in self._left and (left_s := deadline - clock()) > 0:
            with anyio.move_on_after(left_s):
                if messages := await self._outcome(wish, self._take_over(wish)):
                    return messages
        left_s = max(0.0, deadline - clock())
        if wait_s > 0 and not left_s:
            return []
        receipt = Receipt(clock())
        steps = self._popper.receive(topic, most, left_s, expression, receipt.given_up)
        group.start_soon(self._fill, wish, receipt, steps)
        return await self._outcome(wish, receipt)

    def _take_over(self, wish: Wish) -> Receipt:
        """The receipt of a cancelled call, which counts again: that which is answered first."""
        receipt = min(self._left[wish], key=attrgetter("began"))
        self._forget(wish, receipt)
        receipt.given_up.clear()
        return receipt

    def _forget(self, wish: Wish, receipt: Receipt) -> None:
        """Remove a receipt from those that can be taken over."""
        self._left[wish].remove(receipt)
        if not self._left[wish]:
            del self._left[wish]

    async def _outcome(self, wish: Wish, receipt: Receipt) -> list[ReceivedMessage]:
        try:
            await receipt.ended.wait()
        except BaseException:
            receipt.given_up.set()
            if not receipt.ended.is_set():
                self._left.setdefault(wish, []).append(receipt)
            elif receipt.messages:
                with suppress(ClientClosedError):
                    self._client.spawn(self._popper.give_back(receipt.messages))
            raise
        if receipt.error is not None:
            raise receipt.error
        return receipt.messages

    async def _fill(
        self, wish: Wish, receipt: Receipt, steps: Steps[list[ReceivedMessage]]
    ) -> None:
        """Run the steps of a call and keep their outcome."""
        try:
            with Border() as border:
                receipt.messages = await self._client.perform(steps)
            receipt.error = border.error
        finally:
            receipt.ended.set()
            if receipt in self._left.get(wish, ()):
                # Nobody has taken it over.
                self._forget(wish, receipt)
