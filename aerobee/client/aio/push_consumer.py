"""The async push consumer. Decisions are in `steps.pushing` and related modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from aerobee.client.aio.push_part import PushPart
from aerobee.client.filters import Filter
from aerobee.client.settings.consumers import PushOptions, push_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.handling import Handler
    from aerobee.client.send_result import MessageQueue

H = TypeVar("H", bound="Handler")


class PushConsumer(PushPart):
    """Calls a handler for messages as they arrive; failed messages are delivered again.

        consumer = PushConsumer("billing", "127.0.0.1:9876")

        @consumer.subscribe("orders")
        async def on_orders(messages): ...

        await consumer.run()

    It starts in `async with`, or in `run`. When a handler returns, its messages are finished; when
    it raises, they are delivered again later, see RetryLater, Reject and BatchFailed. Plain
    functions run in threads. The options are those of PushOptions.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        config, rest = push_config(group, options)
        super().__init__(config, namesrv, client, rest)

    def subscribe(
        self, topic: str, expression: Expression = "*", handler: Handler | None = None
    ) -> Callable[[H], H]:
        """Subscribe a handler to a topic; used as a decorator, or with `handler`.

        `expression` is `*`, tags as `A || B`, or a Filter. All members of a group must have the
        same topics. Raises: ConfigurationError.
        """
        # At once: a decorator may never be called, as where a handler is given for an expression.
        wanted = Filter.of(expression)

        def with_handler(handler: H) -> H:
            self._add_handler(topic, wanted, handler)
            return handler

        if handler is not None:
            with_handler(handler)
        return with_handler

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are assigned now, including those of the group's retry topic."""
        return frozenset(self._member.held)

    def pause(self) -> None:
        """Pause pulling; messages that are already pulled are still handled."""
        self._member.pause()

    def resume(self) -> None:
        """Resume pulling."""
        self._member.resume()
