"""The blocking producer. Decisions are in `steps.sending`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aerobee.client.blocking.part import Part
from aerobee.client.config import divided
from aerobee.client.factory import make_uniq_ids
from aerobee.client.producer_config import ProducerConfig
from aerobee.client.steps.outbox import Outbox, Outgoing
from aerobee.client.steps.recalling import recall
from aerobee.client.steps.requesting import ask_through_topic, reply
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.tracing import traced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.message import Message, MessageQueue, ReceivedMessage, SendResult
    from aerobee.client.producer_config import ProducerOptions
    from aerobee.client.steps.sending import QueueSelector

__all__ = ["PendingSend", "Producer"]


class PendingSend:
    """A message that `send_soon` took, and what becomes of it. Any thread may ask."""

    __slots__ = ("_client", "_outbox", "_outgoing")

    def __init__(self, client: Client, outbox: Outbox, outgoing: Outgoing) -> None:
        self._client = client
        self._outbox = outbox
        self._outgoing = outgoing

    @property
    def message(self) -> Message:
        """What is sent."""
        return self._outgoing.parcel.messages[0]

    @property
    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self._outgoing.outcome is not None

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait until it is stored. Raises: why it is not; RequestTimeoutError after `timeout`."""
        if not self.done:
            self._client.check_works()
        return self._client.perform(self._outbox.outcome(self._outgoing, timeout))


class Producer(Part):
    """Sends messages. Times in seconds, sizes in bytes.

    Its options are those of ProducerConfig. Without `client` it has one of its own, and takes the
    options of that, too.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        own, clients = divided(options, ProducerConfig)
        config = ProducerConfig(**own)
        super().__init__(namesrv, client, clients)
        instance = self._client.instance
        hooks = instance.config.hooks
        self._sender = Sender(instance, config, make_uniq_ids(instance), hooks=hooks)
        self._outbox = Outbox(self._sender, self._client.spawn)
        self._tracing = traced(self._sender)

    def _begin(self) -> None:
        self._sender.begin()
        self._begin_tracing()

    def _begin_tracing(self) -> None:
        if self._tracing:
            self._client.spawn(self._tracing.run())

    def _end(self) -> None:
        self._client.perform(self._outbox.close())
        try:
            if self._tracing:
                self._client.perform(self._tracing.close())
            self._leave()
        finally:
            with self._client.lock:
                self._outbox.tell_failures()

    def _leave(self) -> None:
        self._client.perform(self._sender.close())

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
        require_ok: bool = False,
    ) -> SendResult:
        """Send, and wait until the broker has stored it.

        `require_ok` makes any status but OK a failed try. Raises: SendFailedError,
        BrokerError, RouteNotFoundError, ConfigurationError.
        """
        return self._perform(self._sender.send(message, queue, timeout, require_ok))

    def send_soon(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None
    ) -> PendingSend:
        """Take a message and send it in the background, in batches while there are many.

        Waits only for room in the outbox, at most `timeout` seconds. What it gives has the
        result; failures that nobody asks for, `flush` and `close` raise. Messages to one queue by
        their ordering key, or by `queue`, keep their order. Raises: ConfigurationError,
        RequestTimeoutError for no room, RouteNotFoundError where a queue must be known.
        """
        outgoing = self._perform(self._outbox.accept(message, queue))
        return PendingSend(self._client, self._outbox, outgoing)

    def flush(self) -> None:
        """Wait until all that `send_soon` took so far is stored.

        Raises: UndeliveredError with what is not, and was asked for by nobody.
        """
        self._perform(self._outbox.flush())

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many in few requests, split by topic and size; results in the messages' order.

        `timeout` is for each request. Raises: BatchSendError with what is known of each message,
        ConfigurationError before anything is sent.
        """
        return self._perform(self._sender.send_batch(messages, timeout))

    def send_oneway(self, message: Message) -> None:
        """Send without an answer: the message may get lost. Raises: TransportError."""
        self._perform(self._sender.send_oneway(message))

    def request(
        self,
        message: Message,
        *,
        timeout: float = 3.0,
    ) -> ReceivedMessage:
        """Send a request through a topic and wait for what a consumer replies.

        Raises: ReplyTimeoutError, and as `send`.
        """
        return self._perform(ask_through_topic(self._sender, message, timeout))

    def reply(
        self, to: ReceivedMessage, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Answer a request that a consumer got.

        A success does not say that it was still waited for. Raises: ConfigurationError if the
        message is no request, and as `send`.
        """
        return self._perform(reply(self._sender, to, body, properties or {}))

    def recall(
        self,
        topic: str,
        handle: str | None,
        *,
        timeout: float | None = None,
    ) -> str:
        """Take a delayed message back, by the `recall_handle` of its result; its message id.

        A success does not say that it was still to be delivered. Raises: ConfigurationError for
        what is no handle of the topic, BrokerError, TransportError, RouteNotFoundError.
        """
        return self._perform(recall(self._sender, topic, handle, timeout))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues a message may be sent to. Raises: RouteNotFoundError."""
        return self._perform(self._sender.queues(topic))
