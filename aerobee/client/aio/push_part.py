"""The part of an async push consumer that calls handlers, in tasks of the client."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from aerobee.client.aio.part import Part
from aerobee.client.callables import call_in_thread, check_function, is_async
from aerobee.client.handling import (
    AGAIN,
    unhandled,
    verdict_of_error,
    verdict_of_result,
)
from aerobee.client.members import push_member
from aerobee.client.steps.effects import Signal
from aerobee.errors import ConfigurationError
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.aio.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.handling import Handler, Verdict
    from aerobee.client.settings.consumers import PushConfig
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.pushing import Batch

TURN_S = 0.01
"""How often a worker yields to other tasks if its handler never waits."""
CLOSE_S = 4.0


class PushPart(Part):
    """A push consumer's handlers, and the workers that call them for batches of messages."""

    def __init__(
        self,
        config: PushConfig,
        namesrv: str | Sequence[str] | None,
        client: Client | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(namesrv, client, options)
        self._config = config
        self._member = push_member(self._client.instance, config, self._pull)
        self._handlers: dict[str, Handler] = {}
        self._plain: set[str] = set()
        """Topics whose handler is a plain function."""
        self._threads: anyio.CapacityLimiter | None = None
        self._working = 0
        self._drained = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()

    def _add_handler(self, topic: str, expression: Expression, handler: Handler) -> None:
        check_function(f"the handler of {topic}", handler, awaited=True)
        if topic in self._handlers:
            raise ConfigurationError(f"topic {topic} has a handler")
        self._member.add_subscription(topic, expression)
        self._handlers[topic] = handler
        if not is_async(handler):
            self._plain.add(topic)

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

    async def _check(self) -> None:
        """Check that brokers support SQL conditions. Raises: SubscriptionError."""
        await self._client.perform(self._member.check_filters())

    def _begin(self) -> None:
        for steps in self._member.begin():
            self._client.spawn(steps)
        self._threads = anyio.CapacityLimiter(self._config.concurrency)
        self._working = self._config.concurrency
        for number in range(self._config.concurrency):
            self._start_worker(f"{self._config.group} {number}", self._work)

    def _stop_taking(self) -> None:
        self._member.stop()

    async def _drain(self) -> None:
        """Wait for running handlers, at most `drain_timeout`."""
        self._member.stop()
        with anyio.move_on_after(self._config.drain_timeout):
            await self._drained.wait()

    async def _end(self) -> None:
        for scope in self._scopes:
            scope.cancel()
        await self._client.perform(self._member.close(CLOSE_S))

    def _let_go(self) -> None:
        self._member.let_go()

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
        with Border() as border:
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
        if border.error is None:
            return verdict
        batch.error = border.error
        return verdict_of_error(border.error, len(batch.messages))

    async def _in_thread(self, handler: Handler, batch: Batch) -> object:
        """Call a plain function. A thread cannot be stopped: the worker waits, unless it closes."""
        call = partial(call_in_thread, handler, batch.messages)
        give_up, batch.give_up = batch.give_up, None
        try:
            return await anyio.to_thread.run_sync(
                call, limiter=self._threads, abandon_on_cancel=True
            )
        finally:
            batch.give_up = give_up
            if batch.given_up and give_up is not None:
                give_up()  # The coroutine that it may have returned would come too late.


def cancelled() -> bool:
    """Whether this task was cancelled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
