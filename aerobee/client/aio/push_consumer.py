"""The async push consumer. Decisions are in `steps.pushing` and related modules."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeVar, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread

from aerobee.client.aio.part import Part
from aerobee.client.callables import call_in_thread, check_function, is_async
from aerobee.client.handling import (
    AGAIN,
    Guarded,
    unhandled,
    verdict_of_error,
    verdict_of_result,
)
from aerobee.client.members import push_member
from aerobee.client.push_config import PushOptions, push_config
from aerobee.client.steps.effects import Signal
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.handling import Handler, Verdict
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.pushing import Batch

H = TypeVar("H", bound="Handler")

CLOSE_S = 4.0
TURN_S = 0.01
"""How often a worker yields to other tasks if its handler never waits."""


class PushConsumer(Part):
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
        super().__init__(namesrv, client, rest)
        self._config = config
        self._member = push_member(self._client.instance, config, self._pull)
        self._handlers: dict[str, Handler] = {}
        self._plain: set[str] = set()
        """Topics whose handler is a plain function."""
        self._threads: anyio.CapacityLimiter | None = None
        self._working = 0
        self._drained = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()

    # ── Subscription ──

    def subscribe(
        self, topic: str, expression: Expression = "*", handler: Handler | None = None
    ) -> Callable[[H], H]:
        """Subscribe a handler to a topic; used as a decorator, or with `handler`.

        `expression` is `*`, tags as `A || B`, or a Filter. All members of a group must have the
        same topics. Raises: ConfigurationError.
        """

        def with_handler(handler: H) -> H:
            check_function(f"the handler of {topic}", handler, awaited=True)
            if topic in self._handlers:
                raise ConfigurationError(f"topic {topic} has a handler")
            self._member.add_subscription(topic, expression)
            self._handlers[topic] = handler
            if not is_async(handler):
                self._plain.add(topic)
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

    # ── Start and end ──

    async def run(self, *, handle_signals: bool = False) -> None:
        """Consume until `aclose`, cancellation or, with `handle_signals`, SIGINT or SIGTERM; drain.

        Raises: NoNameServerError, ClientStateError, ConfigurationError, SubscriptionError for an
        SQL condition that the brokers do not support, and ClientClosedError if the client ends
        although nobody closed it.
        """
        async with self:
            if handle_signals:
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as arrived:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._end_of_run, tasks.cancel_scope)
                        await anext(arrived)
                        tasks.cancel_scope.cancel()
            else:
                await self._over.wait()
            if lost := self._client.lost:
                raise lost

    async def _end_of_run(self, waiting: anyio.CancelScope) -> None:
        await self._over.wait()
        waiting.cancel()

    async def _begin(self) -> None:
        await self._client.perform(self._member.check_filters())
        for steps in self._member.begin():
            self._client.spawn(steps)
        self._threads = anyio.CapacityLimiter(self._config.concurrency)
        self._working = self._config.concurrency
        for _ in range(self._config.concurrency):
            self._client.start_worker(self._work)

    def _stop_taking(self) -> None:
        self._member.stop()

    async def _end_in_time(self) -> None:
        """Wait for running handlers up to the timeout. If cancelled, it still unregisters."""
        try:
            self._member.stop()
            with anyio.move_on_after(self._config.drain_timeout):
                await self._drained.wait()
        finally:
            await super()._end_in_time()

    async def _end(self) -> None:
        for scope in self._scopes:
            scope.cancel()
        await self._client.perform(self._member.close(CLOSE_S))

    def _pull(self, held: HeldQueue) -> None:
        self._client.spawn(self._member.pull_on(held))

    # ── Workers ──

    async def _work(self) -> None:
        """Handle batches until the consumer stops."""
        wake = Signal()
        try:
            while not self._member.stopping:
                # Cancelling this scope ends one handler and not the worker.
                with anyio.CancelScope() as scope:
                    self._scopes.add(scope)
                    await self._work_in(scope, wake)
                self._scopes.discard(scope)
        finally:
            self._working -= 1
            if not self._working:
                self._drained.set()

    async def _work_in(self, scope: anyio.CancelScope, wake: Signal) -> None:
        member, clock = self._member, self._client.instance.clock.monotonic
        turn_ends = 0.0
        while not scope.cancel_called:
            batch = member.take_batch() or await self._client.perform(member.next_batch(wake))
            if batch is None:
                return
            batch.give_up = scope.cancel
            verdict = await (self._handle_hooked if member.hooks else self._handle)(batch)
            if verdict is None:
                member.finished(batch)
            else:
                await self._client.perform(member.settle(batch, verdict))
            if batch.began >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = clock() + TURN_S

    async def _handle_hooked(self, batch: Batch) -> Verdict | None:
        verdict: Verdict | None = AGAIN
        self._member.before(batch)
        try:
            verdict = await self._handle(batch)
        finally:
            self._member.after(batch, verdict)
        return verdict

    async def _handle(self, batch: Batch) -> Verdict | None:
        topic = batch.messages[0].topic
        handler = self._handlers.get(topic)
        if handler is None:
            return unhandled(topic)
        verdict: Verdict | None = None
        with Guarded() as guard:
            try:
                if topic in self._plain:
                    result = await self._in_thread(handler, batch)
                else:
                    result = handler(batch.messages)
                if isawaitable(result):
                    result = await result
                verdict = verdict_of_result(result)
            except asyncio.CancelledError as error:
                if cancelled():
                    raise
                raise RuntimeError("what the handler waited for was cancelled") from error
        if guard.error is None:
            return verdict
        batch.error = guard.error
        return verdict_of_error(guard.error)

    async def _in_thread(self, handler: Handler, batch: Batch) -> object:
        call = partial(call_in_thread, handler, batch.messages)
        return await anyio.to_thread.run_sync(call, limiter=self._threads, abandon_on_cancel=True)


def cancelled() -> bool:
    """Whether this task was cancelled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
