"""The async POP consumer. Decisions are in `steps.popping`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from aerobee.client.aio.part import Part
from aerobee.client.config import divided
from aerobee.client.members import pop_member
from aerobee.client.pop_config import PopConfig, PopOptions
from aerobee.client.steps.popping import RECEIPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage

__all__ = ["PopConsumer"]

WAIT_S = 15.0
CLOSE_S = 4.0


class PopConsumer(Part):
    """Takes messages that the broker hands out one by one. 5.x brokers.

    A message that is not acknowledged within `invisible` seconds comes again, to any consumer of
    the group; `extend` gives it more time. `start_from` counts for a group that is new to a topic.
    After `max_reconsume` tries (16) `nack` makes it a dead letter. Several tasks may use one.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[PopOptions],
    ) -> None:
        own, rest = divided(options, PopConfig)
        super().__init__(namesrv, client, rest)
        self._popper = pop_member(self._client.instance, PopConfig(group=group, **own))

    async def _begin(self) -> None:
        for steps in self._popper.begin():
            self._client.spawn(steps)

    async def _end(self) -> None:
        await self._client.perform(self._popper.close(CLOSE_S))

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._popper.closing.is_set

    async def receive(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        wait: float = WAIT_S,
        expression: Expression = "*",
    ) -> list[ReceivedMessage]:
        """Messages as soon as there are any, at most 32; none after `wait` seconds, or closed.

        `expression` is `*`, tags as `A || B`, or a Filter. Raises: ConfigurationError,
        RouteNotFoundError, BrokerError, TransportError.
        """
        steps = self._popper.receive(topic, max_messages, wait, expression)
        return await self._perform(steps)

    def messages(
        self, topic: str, *, expression: Expression = "*"
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages until the consumer is closed; each is acknowledged when the next is asked for.

        Unless it was sent back or rejected by then. Leaving the loop leaves the last one as it is.
        Raises: as `receive`.
        """
        return Messages(self, topic, expression)

    # ── What came of it ──

    async def ack(self, *messages: ReceivedMessage) -> None:
        """These need no second delivery; many cost little more than one.

        Raises: ConfigurationError for what was not popped, BrokerError, TransportError.
        """
        await self._perform(self._popper.acknowledge(messages))

    async def nack(self, message: ReceivedMessage, *, delay: float | None = None) -> None:
        """Have a message again after `delay` seconds; without, each time later, from 10 s to 2 h.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        await self._perform(self._popper.send_back(message, delay))

    async def reject(self, message: ReceivedMessage) -> None:
        """Make a message a dead letter. Raises: ConfigurationError, BrokerError, TransportError."""
        await self._perform(self._popper.reject(message))

    async def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Keep a message from others for so long from now.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        await self._perform(self._popper.extend(message, seconds))


class Messages:
    """An iterator over messages of a topic; it holds nothing that would need closing."""

    def __init__(self, consumer: PopConsumer, topic: str, expression: Expression) -> None:
        self.consumer = consumer
        self.topic = topic
        self.expression = expression
        self.last: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        last, self.last = self.last, None
        if last is not None and RECEIPT in last.properties:
            await self.consumer.ack(last)
        while not self.consumer.closed:
            found = await self.consumer.receive(
                self.topic, max_messages=1, expression=self.expression
            )
            if found:
                self.last = found[0]
                return found[0]
        raise StopAsyncIteration
