"""The common part of blocking producers, consumers and admin clients: a client, own or shared."""

from __future__ import annotations

import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aerobee.client.blocking.client import SLICE_S, Client, wait
from aerobee.client.factory import is_copy
from aerobee.client.leaving import note_failed_close
from aerobee.client.life import Event, Life, State
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.remoting.client.event import Event as WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from aerobee.client.steps.effects import Steps

T = TypeVar("T")


class Part:
    """A producer, consumer or admin client; it starts and closes its own client with itself."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None,
        client: Client | None,
        options: Mapping[str, Any],
    ) -> None:
        if client is not None and options:
            raise ConfigurationError(f"{', '.join(options)}: options of the client that is passed")
        self._client = client or Client(namesrv, **options)
        self._own_client = client is None
        self._life = Life(type(self).__name__)
        self._over = WakeUp()
        """Set when it is closed."""
        self._closer: int | None = None
        """The thread that closes it."""
        self._finishing = False
        """Whether it has begun to do so: Ctrl-C may come in front of that."""
        self._workers: list[threading.Thread] = []
        """The threads that call a user's code."""
        self._begun = threading.Event()
        """Set when the last start has begun all of its work, or has failed."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except AerobeeError as failure:
            if error is None:
                raise
            note_failed_close(error, failure)

    def start(self) -> None:
        """Start without `with`.

        A start that fails leaves nothing behind, and may be repeated. Raises: NoNameServerError,
        ClientStateError, ConfigurationError, RuntimeError if the system gives no thread.
        """
        self._change(Event.START)
        try:
            if self._own_client:
                self._client.start()
            try:
                self._check()
                with self._client.lock:
                    self._begin_wholly()
            except BaseException:
                if self._own_client:
                    self._client.close()
                    self._client.reset()
                raise
        except BaseException:
            if self._change(Event.ENDED) is State.CLOSING:
                self._over.set()
            raise
        if self._change(Event.STARTED) is State.CLOSING:
            self._finish()

    def _begin_wholly(self) -> None:
        """Start this part; its workers run only if nothing of that fails."""
        self._workers, self._begun = [], threading.Event()
        try:
            self._begin()
        except BaseException:
            self._workers = []
            raise
        finally:
            self._begun.set()

    def close(self) -> None:
        """Unregister from the brokers, for some seconds at most. A second call does nothing.

        Called by a handler or a checker, it does not wait: the close begins at once, and ends when
        the handlers have returned. In a forked process it does nothing, as of a Client.
        """
        if is_copy(self._client.instance):
            return
        if threading.current_thread() in self._workers:
            if self._life.state is State.RUNNING:
                with self._client.lock:
                    self._stop_taking()
                threading.Thread(target=self.close, name=f"close {self._life.what}").start()
            return
        match self._begin_close():
            case State.RUNNING | State.LOST:
                self._finish()
            case State.CLOSING if self._closer != threading.get_ident():
                # A signal may interrupt a close by another one, which must not wait for itself.
                wait(self._over, float("inf"))
            case State.CLOSING if not self._finishing:
                self._finish()

    def _begin_close(self) -> State:
        with self._client.lock:
            if self._life.state in (State.RUNNING, State.LOST):
                # First: behind an interrupted change, another close would wait for nobody.
                self._closer = threading.get_ident()
            return self._life.on(Event.CLOSE)

    def _finish(self) -> None:
        self._closer = threading.get_ident()
        try:
            self._finishing = True
            try:
                self._drain()
                self._end()
            finally:
                with self._client.lock:
                    self._let_go()
                    self._raise_failures()
        finally:
            if self._own_client:
                self._client.close()
            self._change(Event.ENDED)
            self._over.set()

    def _change(self, event: Event) -> State:
        with self._client.lock:
            return self._life.on(event)

    # ── What each kind of part adds ──

    def _check(self) -> None:
        """Check what only brokers know, before anything begins."""

    def _begin(self) -> None:
        """Start this part, once the client runs; nothing of it stays behind a failure.

        Workers come first: the system may give no thread, and then nothing else has begun.
        """

    def _stop_taking(self) -> None:
        """Begin nothing new: a close is coming."""

    def _drain(self) -> None:
        """Wait for work in progress."""

    def _end(self) -> None:
        """End this part, before the client ends."""

    def _let_go(self) -> None:
        """Leave nothing at a client that goes on, though the end was cut off."""

    def _raise_failures(self) -> None:
        """Raise the failures that nobody was told of, after the end."""

    # ── Work ──

    def _start_worker(self, name: str, work: Callable[[], None]) -> None:
        """Run a function that calls a user's code in its own thread, once all has begun."""
        run = partial(self._work_if_begun, self._begun, work)
        worker = threading.Thread(target=run, name=name, daemon=True)
        worker.start()
        self._workers.append(worker)

    def _work_if_begun(self, begun: threading.Event, work: Callable[[], None]) -> None:
        begun.wait()
        if threading.current_thread() in self._workers:
            work()

    def _join_workers(self, seconds: float) -> None:
        """Wait until all workers have ended, at most so long."""
        deadline = monotonic() + seconds
        for worker in self._workers:
            while worker.is_alive() and monotonic() < deadline:
                worker.join(min(SLICE_S, max(0.0, deadline - monotonic())))

    def _perform(self, steps: Steps[T]) -> T:
        self._client.check_works()
        return self._client.perform(steps)
