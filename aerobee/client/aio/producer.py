"""The async producer. Decisions are in `steps.sending`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aerobee.client.aio.part import Part
from aerobee.client.aio.pending_send import PendingSend
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

    from aerobee.client.aio.client import Client
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

    async def _end(self) -> None:
        await self._client.perform(self._outbox.close())
        if self._tracing:
            await self._client.perform(self._tracing.close())
        await self._leave()

    def _let_go(self) -> None:
        self._sender.let_go()

    def _raise_failures(self) -> None:
        self._outbox.tell_failures()

    async def _leave(self) -> None:
        await self._client.perform(self._sender.close())

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (covers several requests)
        require_ok: bool = False,
    ) -> SendResult:
        """Send a message, and wait until the broker has stored it.

        With `require_ok` any status but OK is a failed try. Raises: SendFailedError,
        BrokerError, RouteNotFoundError, ConfigurationError.
        """
        return await self._perform(self._sender.send(message, queue, timeout, require_ok))

    async def send_soon(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None
    ) -> PendingSend:
        """Accept a message and send it in the background, in batches while there are many.

        It waits only for room in the outbox, at most `timeout` seconds. Await the returned object
        for the result; failures that are not awaited are raised by `flush` and `aclose`. Messages
        to one queue by their ordering key, or by `queue`, keep their order. Raises:
        ConfigurationError, RequestTimeoutError for no room, RouteNotFoundError where a queue must
        be known.
        """
        outgoing = await self._perform(self._outbox.accept(message, queue))
        return PendingSend(self._client, self._outbox, outgoing)

    async def flush(self) -> None:
        """Wait until all messages accepted by `send_soon` so far are stored.

        Raises: UndeliveredError with the failed messages that were not awaited.
        """
        await self._perform(self._outbox.flush())

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (for each request)
    ) -> list[SendResult]:
        """Send many messages in few requests, split by topic and size; results in their order.

        `timeout` is for each request. Raises: BatchSendError with the result or failure of each
        message, ConfigurationError before anything is sent.
        """
        return await self._perform(self._sender.send_batch(messages, timeout))

    async def send_oneway(self, message: Message) -> None:
        """Send without waiting for a response: the message may get lost. Raises: TransportError."""
        await self._perform(self._sender.send_oneway(message))

    async def request(
        self,
        message: Message,
        *,
        timeout: float = 3.0,  # noqa: ASYNC109 (covers the answer, too)
    ) -> ReceivedMessage:
        """Send a request through a topic and wait for the reply of a consumer.

        Raises: ReplyTimeoutError, and as `send`.
        """
        return await self._perform(ask_through_topic(self._sender, message, timeout))

    async def reply(
        self, to: ReceivedMessage, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received.

        A success does not mean that the requester still waited for it. Raises: ConfigurationError
        if the message is no request, and as `send`.
        """
        return await self._perform(reply(self._sender, to, body, properties or {}))

    async def recall(
        self,
        topic: str,
        handle: str | None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the answer's)
    ) -> str:
        """Recall a delayed message, by the `recall_handle` of its result; returns its message id.

        A success does not mean that it was not delivered yet. Raises: ConfigurationError for a
        handle that is invalid or of another topic, BrokerError, TransportError, RouteNotFoundError.
        """
        return await self._perform(recall(self._sender, topic, handle, timeout))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a message may be sent. Raises: RouteNotFoundError."""
        return await self._perform(self._sender.queues(topic))
