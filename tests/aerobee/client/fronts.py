"""One interface to the three fronts, so that each promise is written once and holds on all.

On asyncio and trio the classes are Aerobee's own; `blocking` wraps those of `aerobee.blocking`,
each call in a thread.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio.to_thread

import aerobee
import aerobee.blocking
from aerobee import ReceivedMessage

if TYPE_CHECKING:
    from types import ModuleType

FRONTS = ("asyncio", "trio", "blocking")
PLAIN = frozenset({"done", "pause", "resume", "position", "assignment", "closed", "client_id"})
"""What is no call to wait for on the async fronts either."""
BLOCKS = frozenset({"transaction"})
"""What gives a block."""


class Front:
    """The classes of one front."""

    def __init__(self, name: str, namesrv: str) -> None:
        self.blocking = name == "blocking"
        self.module: ModuleType = aerobee.blocking if self.blocking else aerobee
        self.namesrv = namesrv

    def _make(self, made: Any) -> Any:
        return InThread(made) if self.blocking else made

    def producer(self, **options: Any) -> Any:
        return self._make(self.module.Producer(self.namesrv, **unwrapped(options)))

    def transaction_producer(self, **options: Any) -> Any:
        return self._make(self.module.TransactionProducer(self.namesrv, **unwrapped(options)))

    def consumer(self, group: str, **options: Any) -> Any:
        made = self.module.PullConsumer(group, self.namesrv, **unwrapped(options))
        return self._make(made)

    def push(self, group: str, **options: Any) -> Any:
        made = self.module.PushConsumer(group, self.namesrv, **unwrapped(options))
        return PushInThread(made) if self.blocking else made

    def pop(self, group: str, **options: Any) -> Any:
        made = self.module.PopConsumer(group, self.namesrv, **options)
        return PopInThread(made) if self.blocking else made

    def handler(self, call: Callable[[Sequence[ReceivedMessage]], object]) -> Any:
        """A handler of this front that does what a plain function does."""
        if self.blocking:
            return call

        async def handler(messages: Sequence[ReceivedMessage]) -> object:
            return call(messages)

        return handler

    def admin(self, **options: Any) -> Any:
        return self._make(self.module.AdminClient(self.namesrv, **unwrapped(options)))

    def client(self, **options: Any) -> Any:
        return self._make(self.module.Client(self.namesrv, **options))


def unwrapped(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.wrapped if isinstance(value, InThread) else value
        for name, value in options.items()
    }


class InThread:
    """A blocking object under async names."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    async def __aenter__(self) -> Self:
        await in_thread(self.wrapped.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self.wrapped.__exit__, *error)

    async def start(self) -> None:
        await in_thread(self.wrapped.start)

    async def aclose(self) -> None:
        await in_thread(self.wrapped.close)

    async def __aiter__(self) -> AsyncIterator[Any]:
        messages = iter(self.wrapped)
        end = object()
        while (message := await in_thread(next, messages, end)) is not end:
            yield message

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.wrapped, name)
        if name in BLOCKS:
            return lambda *arguments, **named: BlockInThread(found(*arguments, **named))
        return found if name in PLAIN else partial(in_thread, found)


class PopInThread(InThread):
    """A blocking POP consumer, with loops under async names."""

    def messages(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        return aiter(InThread(self.wrapped.messages(*arguments, **named)))


class PushInThread(InThread):
    """A blocking push consumer: what is no wait there is none here."""

    def subscribe(self, *arguments: Any, **named: Any) -> Any:
        return self.wrapped.subscribe(*arguments, **named)

    def pause(self) -> None:
        self.wrapped.pause()

    def resume(self) -> None:
        self.wrapped.resume()


class BlockInThread:
    """A block of the blocking front, entered and left in threads."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    async def __aenter__(self) -> Any:
        return await in_thread(self.wrapped.__enter__)

    async def __aexit__(self, *error: object) -> Any:
        return await in_thread(self.wrapped.__exit__, *error)


async def outcome_of(pending: Any) -> Any:
    """What became of a message that `send_soon` took, on any front."""
    return await (in_thread(pending.result) if hasattr(pending, "result") else pending)


async def in_thread(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A thread of its own for each call, so that waiting ones never wait for each other."""
    return await anyio.to_thread.run_sync(
        partial(call, *arguments, **named),
        limiter=anyio.CapacityLimiter(1),
        abandon_on_cancel=True,
    )
