"""The common part of async producers, consumers and admin clients: a client, own or shared."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from aerobee.client.aio.client import CLOSE_WITHIN_S, Client
from aerobee.client.leaving import note_failed_close
from aerobee.client.life import Event, Life, State
from aerobee.errors import AerobeeError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup

    from aerobee.client.steps.effects import Steps

log = logging.getLogger("aerobee.client")
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
        self._over = anyio.Event()
        """Set when it is closed, or its client has ended."""
        self._workers: list[Callable[[], Awaitable[None]]] = []
        """The functions that call a user's code, each in a task."""
        self._forget: Callable[[], None] = do_nothing

    async def __aenter__(self) -> Self:
        await self._start(self._client.__aenter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end_part()
        except AerobeeError as failure:
            if error is None:
                raise
            note_failed_close(error, failure)
        finally:
            if self._own_client:
                await self._client.__aexit__(None, None, None)

    async def start(self, task_group: TaskGroup | None = None) -> None:
        """Start without `async with`; background tasks run in `task_group`, see Client.

        A start that fails or is cancelled leaves nothing behind, and may be repeated. Raises:
        NoNameServerError, ClientStateError, ConfigurationError.
        """
        await self._start(partial(self._client.start, task_group))

    async def _start(self, start_client: Callable[[], Awaitable[object]]) -> None:
        self._life.on(Event.START)
        try:
            if self._own_client:
                await start_client()
            try:
                await self._check()
                self._begin_wholly()
            except BaseException:
                if self._own_client:
                    await self._client.__aexit__(None, None, None)
                    self._client.reset()
                raise
        except BaseException:
            if self._life.on(Event.ENDED) is State.CLOSING:
                self._over.set()
            raise
        self._forget = self._client.instance.closing.listen(self._over.set)
        if self._life.on(Event.STARTED) is State.CLOSING:
            await self._finish()

    def _begin_wholly(self) -> None:
        """Start this part, and then its workers."""
        self._workers.clear()
        self._begin()
        for work in self._workers:
            self._client.start_worker(work)

    async def aclose(self) -> None:
        """Unregister from the brokers, for at most 5 s, and close. A second call does nothing.

        Called by a handler or a checker, it does not wait: the close begins at once, and ends when
        the handlers have returned. In a forked process it does nothing. Raises: ClientStateError in
        another event loop, while the client runs.
        """
        if not self._client.closes_here():
            return
        if self._client.runs_this_task:
            if self._life.state is State.RUNNING:
                self._stop_taking()
                self._client.working_group().start_soon(self._close_behind)
            return
        try:
            await self._end_part()
        finally:
            if self._own_client:
                await self._client.aclose()

    async def _close_behind(self) -> None:
        """Close, as a task of the client: nobody waits for the result."""
        try:
            await self._end_part()
        except AerobeeError as error:
            log.error("the close of %s: %s", self._life.what, error)
        if self._own_client:
            await self._client.aclose()

    async def _end_part(self) -> None:
        if not self._client.closes_here():
            return
        match self._life.on(Event.CLOSE):
            case State.RUNNING:
                await self._finish()
            case State.STARTING | State.CLOSING:
                await self._over.wait()

    async def _finish(self) -> None:
        try:
            await self._end_in_time()
        finally:
            self._life.on(Event.ENDED)
            self._forget()
            self._over.set()

    async def _end_in_time(self) -> None:
        """End this part before its client, even when the caller is cancelled."""
        try:
            await self._drain()
        finally:
            try:
                await self._client.see_through(self._end_wholly, CLOSE_WITHIN_S)
            finally:
                # Outside of the timeout of the end, which would suppress the error.
                self._raise_failures()

    async def _end_wholly(self) -> None:
        try:
            await self._end()
        finally:
            self._let_go()

    # ── What each kind of part adds ──

    async def _check(self) -> None:
        """Check what only brokers know, before anything begins."""

    def _begin(self) -> None:
        """Start this part, once the client runs; nothing of it stays behind a failure."""

    def _stop_taking(self) -> None:
        """Begin nothing new: a close is coming."""

    async def _drain(self) -> None:
        """Wait for work in progress; a cancellation ends the wait."""

    async def _end(self) -> None:
        """End this part, before the client ends."""

    def _let_go(self) -> None:
        """Leave nothing at a client that goes on, though the end was cut off."""

    def _raise_failures(self) -> None:
        """Raise the failures that nobody was told of, after the end."""

    # ── Work ──

    def _start_worker(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a function that calls a user's code as a task of the client, once all has begun."""
        self._workers.append(work)

    async def _join_workers(self, seconds: float) -> None:
        """Wait for no worker: they are tasks of the client, and end with it."""

    async def _perform(self, steps: Steps[T]) -> T:
        self._client.working_group()
        return await self._client.perform(steps)


def do_nothing() -> None:
    """Forget nothing: before a start there is nothing to forget."""
