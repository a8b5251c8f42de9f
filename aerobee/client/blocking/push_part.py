"""The part of a blocking push consumer that calls handlers, in threads."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from aerobee.client.blocking.client import SLICE_S
from aerobee.client.blocking.part import Part
from aerobee.client.callables import call_in_thread, check_function
from aerobee.client.handling import unhandled, verdict_of_error, verdict_of_result
from aerobee.client.members import push_member
from aerobee.client.steps.effects import Signal
from aerobee.errors import ConfigurationError
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.filters import Expression
    from aerobee.client.handling import BlockingHandler, Verdict
    from aerobee.client.settings.consumers import PushConfig
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.pushing import Batch

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
        self._handlers: dict[str, BlockingHandler] = {}

    def _add_handler(self, topic: str, expression: Expression, handler: BlockingHandler) -> None:
        check_function(f"the handler of {topic}", handler)
        with self._client.lock:
            if topic in self._handlers:
                raise ConfigurationError(f"topic {topic} has a handler")
            self._member.add_subscription(topic, expression)
            self._handlers[topic] = handler

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
        for number in range(self._config.concurrency):
            self._start_worker(f"{self._config.group} {number}", self._work)
        for steps in self._member.begin():
            self._client.spawn(steps)

    def _stop_taking(self) -> None:
        self._member.stop()

    def _drain(self) -> None:
        """Wait for running handlers, at most `drain_timeout`."""
        with self._client.lock:
            self._member.stop()
        self._join_workers(self._config.drain_timeout)

    def _end(self) -> None:
        self._client.perform(self._member.close(CLOSE_S))

    def _let_go(self) -> None:
        self._member.let_go()

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
        with Border() as border:
            verdict = verdict_of_result(call_in_thread(handler, batch.messages))
        if border.error is None:
            return verdict
        batch.error = border.error
        return verdict_of_error(border.error, len(batch.messages))


@contextmanager
def terminated(*, on: bool) -> Iterator[threading.Event]:
    """A context manager whose event a SIGTERM sets, instead of ending the process.

    A handler of the program stays in force, and outside the main thread there can be none: then
    the event is never set.
    """
    arrived = threading.Event()
    here = on and threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield arrived
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: arrived.set())
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
