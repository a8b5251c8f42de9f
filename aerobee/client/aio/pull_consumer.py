"""The async pull consumer. Decisions are in `steps.polling` and related modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from aerobee.client.aio.part import Part
from aerobee.client.members import pull_member
from aerobee.client.settings.consumers import PullOptions, pull_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from datetime import datetime

    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.client import ConsumeFrom
    from aerobee.client.steps.held_queue import HeldQueue

CLOSE_S = 4.0
FOREVER_S = 3600.0


class PullConsumer(Part):
    """Returns messages on request: by `async for`, or by `poll` and `done`.

    The committed offset of a queue is that of its first unfinished message. Iterate from one task
    only. The options are those of PullOptions.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        self._config, rest = pull_config(group, options)
        super().__init__(namesrv, client, rest)
        self._member = pull_member(self._client.instance, self._config, self._pull)

    def _begin(self) -> None:
        for steps in self._member.begin():
            self._client.spawn(steps)

    async def _end(self) -> None:
        await self._client.perform(self._member.close(CLOSE_S))

    def _let_go(self) -> None:
        self._member.let_go()

    def _pull(self, held: HeldQueue) -> None:
        self._client.spawn(self._member.pull_on(held))

    # ── Subscription ──

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Share the topic's queues with the group; `expression` is `*`, tags as `A || B`,
        or a Filter.

        The topic may not exist yet: the consumer waits for it. Another call for the same topic
        replaces the expression, for all messages that were not returned yet. Raises:
        ConfigurationError, ClientStateError after `assign`.
        """
        await self._perform(self._member.subscribe(topic, expression))

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues, without sharing them in the group. Another call replaces them.

        Raises: ClientStateError after `subscribe`, RouteNotFoundError, BrokerError,
        TransportError.
        """
        await self._perform(self._member.assign(queues, expression))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic. Raises: RouteNotFoundError."""
        return await self._perform(self._member.queues(topic))

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are assigned now."""
        return self._member.assignment

    # ── Messages ──

    @property
    def finishes_early(self) -> bool:
        """Whether a loop finishes a message when it returns it."""
        return self._config.finish_early

    @property
    def closed(self) -> bool:
        """Whether the consumer is closed and returns no more messages."""
        return self._member.closing.is_set

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over messages until the consumer is closed; asking for the next finishes one.

        Leaving the loop leaves the last one unfinished, unless `finish_early` finished it when it
        was returned. Raises: MessageUnreadableError.
        """
        return Messages(self)

    async def poll(
        self,
        *,
        max_messages: int = 10,
        timeout: float = 5.0,  # noqa: ASYNC109 (over is no error)
    ) -> list[ReceivedMessage]:
        """Return messages as soon as there are any, up to the maximum; none after `timeout`.

        They are unfinished until `done`. Raises: MessageUnreadableError.
        """
        return await self._perform(self._member.poll(max_messages, timeout))

    def done(self, *messages: ReceivedMessage) -> None:
        """Finish these messages: they need no second delivery.

        That of a MessageUnreadableError is passed over.
        """
        self._member.done(messages)

    async def nack(self, *messages: ReceivedMessage, level: int = 0) -> None:
        """Have these messages delivered again later, and finish them here; needs `retry`.

        `level` is a delay level (1 to 18: 1s 5s 10s 30s 1m … 2h); with 0 the delay grows with each
        try, with −1 the message becomes a dead letter, as after `max_reconsume` tries.
        Raises: ClientStateError without `retry`, BrokerError, TransportError.
        """
        await self._perform(self._member.nack(messages, level))

    def pause(self, *queues: MessageQueue) -> None:
        """Pause pulling and returning these queues, or all. Raises: QueueNotAssignedError."""
        self._member.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume these queues, or all. Raises: QueueNotAssignedError."""
        self._member.resume(queues)

    # ── Offsets ──

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit these offsets, or the progress of each assigned queue.

        Raises: BrokerError, TransportError.
        """
        await self._perform(self._member.commit(offsets))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, None without one. Raises: BrokerError, TransportError."""
        return await self._perform(self._member.offsets.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message to return. Raises: QueueNotAssignedError."""
        return self._member.holding(queue).position

    async def seek(self, queue: MessageQueue, offset: int | ConsumeFrom | datetime) -> None:
        """Continue an assigned queue at `offset`; messages returned from it count as settled.

        Raises: QueueNotAssignedError, ConfigurationError for an offset outside of the queue.
        """
        await self._perform(self._member.seek(queue, offset))

    async def offsets_for_time(self, at: datetime) -> dict[MessageQueue, int]:
        """Per assigned queue, the offset of the first message stored since `at`, else its end."""
        return await self._perform(self._member.offsets_for_time(at))

    async def end_offsets(self) -> dict[MessageQueue, int]:
        """Per assigned queue, the offset of the next message to be written."""
        return await self._perform(self._member.end_offsets())


class Messages:
    """An iterator over a consumer's messages; it needs no closing."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.last: tuple[ReceivedMessage, ...] = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        consumer = self.consumer
        consumer.done(*self.last)
        self.last = ()
        while not consumer.closed:
            self.last = tuple(await consumer.poll(max_messages=1, timeout=FOREVER_S))
            if self.last:
                if consumer.finishes_early:
                    consumer.done(*self.last)
                return self.last[0]
        raise StopAsyncIteration
