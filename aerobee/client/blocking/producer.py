"""The blocking producer. Decisions are in `steps.sending`.

Generated from `aio/producer.py`: change that one, and then run
`python -m tests.blocking_front --write`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aerobee.client.blocking.part import Part
from aerobee.client.blocking.pending_send import PendingSend
from aerobee.client.factory import make_uniq_ids
from aerobee.client.settings.client import divided
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.outbox import Outbox
from aerobee.client.steps.recalling import recall
from aerobee.client.steps.requesting import ask_through_topic, reply
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.tracing import traced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.send_result import MessageQueue, SendResult
    from aerobee.client.settings.producer import ProducerOptions
    from aerobee.client.steps.sending import QueueSelector


class Producer(Part):
    """Sends messages. Times in seconds, sizes in bytes.

    Its options are those of ProducerConfig. Without `client` it has a client of its own, and takes
    the options of that client, too.
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
        if self._tracing:
            self._client.perform(self._tracing.close())
        self._leave()

    def _let_go(self) -> None:
        self._sender.let_go()

    def _raise_failures(self) -> None:
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
        """Send a message, and wait until the broker has stored it.

        With `require_ok` any status but OK is a failed try. Raises: SendFailedError,
        BrokerError, RouteNotFoundError, ConfigurationError.
        """
        return self._perform(self._sender.send(message, queue, timeout, require_ok))

    def send_soon(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None
    ) -> PendingSend:
        """Accept a message and send it in the background, in batches while there are many.

        It waits only for room in the outbox, at most `timeout` seconds. The returned object has
        the result; failures whose result is not asked for are raised by `flush` and `close`.
        Messages to one queue by their ordering key, or by `queue`, keep their order. Raises:
        ConfigurationError, RequestTimeoutError for no room, RouteNotFoundError where a queue must
        be known.
        """
        outgoing = self._perform(self._outbox.accept(message, queue))
        return PendingSend(self._client, self._outbox, outgoing)

    def flush(self) -> None:
        """Wait until all messages accepted by `send_soon` so far are stored.

        Raises: UndeliveredError with the failed messages whose result was not asked for.
        """
        self._perform(self._outbox.flush())

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many messages in few requests, split by topic and size; results in their order.

        `timeout` is for each request. Raises: BatchSendError with the result or failure of each
        message, ConfigurationError before anything is sent.
        """
        return self._perform(self._sender.send_batch(messages, timeout))

    def send_oneway(self, message: Message) -> None:
        """Send without waiting for a response: the message may get lost. Raises: TransportError."""
        self._perform(self._sender.send_oneway(message))

    def request(
        self,
        message: Message,
        *,
        timeout: float = 3.0,
    ) -> ReceivedMessage:
        """Send a request through a topic and wait for the reply of a consumer.

        Raises: ReplyTimeoutError, and as `send`.
        """
        return self._perform(ask_through_topic(self._sender, message, timeout))

    def reply(
        self, to: ReceivedMessage, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received.

        A success does not mean that the requester still waited for it. Raises: ConfigurationError
        if the message is no request, and as `send`.
        """
        return self._perform(reply(self._sender, to, body, properties or {}))

    def recall(
        self,
        topic: str,
        handle: str | None,
        *,
        timeout: float | None = None,
    ) -> str:
        """Recall a delayed message, by the `recall_handle` of its result; returns its message id.

        A success does not mean that it was not delivered yet. Raises: ConfigurationError for a
        handle that is invalid or of another topic, BrokerError, TransportError, RouteNotFoundError.
        """
        return self._perform(recall(self._sender, topic, handle, timeout))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a message may be sent. Raises: RouteNotFoundError."""
        return self._perform(self._sender.queues(topic))
