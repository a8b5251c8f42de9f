"""The blocking POP consumer. Decisions are in `steps.popping`.

Generated from `aio/pop_consumer.py`: change that one, and then run
`python -m tests.blocking_front --write`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from aerobee.client.blocking.part import Part
from aerobee.client.blocking.receiving import Receiver
from aerobee.client.members import pop_member
from aerobee.client.settings.client import divided
from aerobee.client.settings.consumers import PopConfig, PopOptions
from aerobee.client.steps.popping import RECEIPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

WAIT_S = 15.0
CLOSE_S = 4.0


class PopConsumer(Part):
    """Receives messages by POP, and acknowledges each of them. Needs brokers since 5.0.

    A message that is not acknowledged within `invisible` seconds is delivered again, to any
    consumer of the group; `extend` prolongs that time. `start_from` applies to a group that is new
    to a topic. After `max_reconsume` tries (16) `nack` makes a message a dead letter. Threads may
    share a consumer.
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
        self._receiver = Receiver(self._client, self._popper)

    def _begin(self) -> None:
        for steps in self._popper.begin():
            self._client.spawn(steps)

    def _end(self) -> None:
        self._client.perform(self._popper.close(CLOSE_S))

    def _let_go(self) -> None:
        self._popper.let_go()

    @property
    def closed(self) -> bool:
        """Whether the consumer is closed and delivers no more messages."""
        with self._client.lock:
            return self._popper.closing.is_set

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that brokers assigned last, with `server_assignment`.

        Queue id −1 stands for all queues of a broker. Empty without `server_assignment`, and until
        messages of a topic were asked for.
        """
        with self._client.lock:
            return self._popper.assignment

    def receive(
        self,
        topic: str,
        *,
        max_messages: int = 32,
        wait: float = WAIT_S,
        expression: Expression = "*",
    ) -> list[ReceivedMessage]:
        """Return messages as soon as there are any, at most 32; none after `wait` seconds.

        A closed consumer returns none. `expression` is `*`, tags as `A || B`, or a Filter. Raises:
        ConfigurationError, RouteNotFoundError, BrokerError, TransportError.
        """
        return self._receiver.receive(topic, max_messages, wait, expression)

    def messages(self, topic: str, *, expression: Expression = "*") -> Iterator[ReceivedMessage]:
        """Iterate over messages until the consumer is closed; asking for the next acknowledges one.

        A message that was sent back or rejected by then is not acknowledged, nor is the last one
        when the loop is left. Raises: as `receive`.
        """
        return Messages(self, topic, expression)

    # ── Acknowledgement ──

    def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge messages; many cost little more than one.

        Raises: ConfigurationError for a message that was not popped, BrokerError, TransportError.
        """
        self._perform(self._popper.acknowledge(messages))

    def nack(self, message: ReceivedMessage, *, delay: float | None = None) -> None:
        """Have a message delivered again after `delay` seconds; by default 10 s to 2 h, increasing.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        self._perform(self._popper.send_back(message, delay))

    def reject(self, message: ReceivedMessage) -> None:
        """Make a message a dead letter. Raises: ConfigurationError, BrokerError, TransportError."""
        self._perform(self._popper.reject(message))

    def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Keep a message invisible to other consumers for `seconds` from now.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        self._perform(self._popper.extend(message, seconds))


class Messages:
    """An iterator over messages of a topic; it needs no closing."""

    def __init__(self, consumer: PopConsumer, topic: str, expression: Expression) -> None:
        self.consumer = consumer
        self.topic = topic
        self.expression = expression
        self.last: ReceivedMessage | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        last, self.last = self.last, None
        if last is not None and RECEIPT in last.properties:
            self.consumer.ack(last)
        while not self.consumer.closed:
            messages = self.consumer.receive(self.topic, max_messages=1, expression=self.expression)
            if messages:
                self.last = messages[0]
                return messages[0]
        raise StopIteration
