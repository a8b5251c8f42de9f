"""The blocking push consumer. Decisions are in `steps.pushing` and related modules."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, Unpack

from aerobee.client.blocking.client import SLICE_S
from aerobee.client.blocking.part import Part
from aerobee.client.blocking.termination import terminated
from aerobee.client.callables import call_in_thread, check_function
from aerobee.client.handling import Guarded, unhandled, verdict_of_error, verdict_of_result
from aerobee.client.members import push_member
from aerobee.client.push_config import PushOptions, push_config
from aerobee.client.steps.effects import Signal
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.handling import BlockingHandler, Verdict
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.pushing import Batch

H = TypeVar("H", bound="BlockingHandler")

CLOSE_S = 4.0


class PushConsumer(Part):
    """Calls a handler for messages as they arrive; failed messages are delivered again.

        consumer = PushConsumer("billing", "127.0.0.1:9876")
        consumer.subscribe("orders", handler=on_orders)
        consumer.run()

    Handlers run in `concurrency` threads. When a handler returns, its messages are finished; when
    it raises, they are delivered again later, see RetryLater, Reject and BatchFailed. A handler
    that exceeds `handler_timeout` cannot be stopped: its messages are delivered again, and its
    thread stays occupied. The options are those of PushOptions.
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
        self._handlers: dict[str, BlockingHandler] = {}
        self._threads: list[threading.Thread] = []

    # ── Subscription ──

    def subscribe(
        self, topic: str, expression: Expression = "*", handler: BlockingHandler | None = None
    ) -> Callable[[H], H]:
        """Subscribe a handler to a topic; used as a decorator, or with `handler`.

        `expression` is `*`, tags as `A || B`, or a Filter. All members of a group must have the
        same topics. Raises: ConfigurationError.
        """

        def with_handler(handler: H) -> H:
            check_function(f"the handler of {topic}", handler)
            with self._client.lock:
                if topic in self._handlers:
                    raise ConfigurationError(f"topic {topic} has a handler")
                self._member.add_subscription(topic, expression)
                self._handlers[topic] = handler
            return handler

        if handler is not None:
            with_handler(handler)
        return with_handler

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are assigned now, including those of the group's retry topic."""
        with self._client.lock:
            return frozenset(self._member.held)

    def pause(self) -> None:
        """Pause pulling; messages that are already pulled are still handled."""
        with self._client.lock:
            self._member.pause()

    def resume(self) -> None:
        """Resume pulling."""
        with self._client.lock:
            self._member.resume()

    # ── Start and end ──

    def run(self, *, handle_signals: bool = True) -> None:
        """Consume until `close`, Ctrl-C or, with `handle_signals`, SIGTERM; then drain.

        SIGTERM is handled only in the main thread, and only if the program has no handler of its
        own for it. Raises: NoNameServerError, ClientStateError, ConfigurationError,
        SubscriptionError for an SQL condition that the brokers do not support, and
        ClientClosedError if a bug ends the client.
        """
        with terminated(on=handle_signals) as stop, suppress(KeyboardInterrupt), self:
            while not (stop.is_set() or self._over.wait(SLICE_S)):
                if lost := self._client.lost:
                    raise lost

    def _check(self) -> None:
        """Check that brokers support SQL conditions. Raises: SubscriptionError."""
        self._perform(self._member.check_filters())

    def _begin(self) -> None:
        for steps in self._member.begin():
            self._client.spawn(steps)
        for number in range(self._config.concurrency):
            thread = threading.Thread(
                target=self._work, name=f"{self._config.group} {number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _runs_this_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def _stop_taking(self) -> None:
        self._member.stop()

    def _end(self) -> None:
        with self._client.lock:
            self._member.stop()
        deadline = monotonic() + self._config.drain_timeout
        for thread in self._threads:
            while thread.is_alive() and monotonic() < deadline:
                thread.join(SLICE_S)
        self._client.perform(self._member.close(CLOSE_S))

    def _pull(self, held: HeldQueue) -> None:
        self._client.spawn(self._member.pull_on(held))

    # ── Workers ──

    def _work(self) -> None:
        """Handle batches until the consumer stops."""
        member, lock, wake = self._member, self._client.lock, Signal()
        while True:
            with lock:
                batch = member.take_batch()
            batch = batch or self._client.perform(member.next_batch(wake))
            if batch is None:
                return
            verdict = (self._handle_hooked if member.hooks else self._handle)(batch)
            if verdict is None:
                with lock:
                    member.finished(batch)
            else:
                self._client.perform(member.settle(batch, verdict))

    def _handle_hooked(self, batch: Batch) -> Verdict | None:
        with self._client.lock:
            self._member.before(batch)
        verdict = self._handle(batch)
        with self._client.lock:
            self._member.after(batch, verdict)
        return verdict

    def _handle(self, batch: Batch) -> Verdict | None:
        topic = batch.messages[0].topic
        handler = self._handlers.get(topic)
        if handler is None:
            return unhandled(topic)
        verdict: Verdict | None = None
        with Guarded() as guard:
            verdict = verdict_of_result(call_in_thread(handler, batch.messages))
        if guard.error is None:
            return verdict
        batch.error = guard.error
        return verdict_of_error(guard.error)
