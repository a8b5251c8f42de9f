"""The async client: its connections and tasks, on asyncio or trio. It makes no decisions.

A Client performs the effects of `steps`; its state is an Instance. All its tasks are in one task
group, so that an internal error ends the client with an exception instead of leaving it half alive.
A task of that group that waited for its end would wait for itself: `INSIDE` tells such tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import anyio
import anyio.lowlevel

from aerobee.client.connect_attempt import ConnectAttempt
from aerobee.client.factory import check_process, is_copy, make_config, make_instance
from aerobee.client.life import Event, Life, State
from aerobee.client.security import link_of
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.transport import transport_error
from aerobee.errors import AerobeeError, ClientClosedError, ClientStateError
from aerobee.remoting.border import Border
from aerobee.remoting.client.async_channel import AsyncChannel
from aerobee.remoting.errors import ConnectFailed, RemotingError
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup, TaskStatus

    from aerobee.client.settings.client import ClientOptions
    from aerobee.client.steps.effects import Effect, Signal, Steps
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")
T = TypeVar("T")

CLOSE_WITHIN_S = 5.0
"""The timeout for unregistering at the end, even when the surrounding scope is cancelled."""
ALIVE = (State.STARTING, State.RUNNING, State.CLOSING)
"""The states in which the client has tasks in its event loop."""
INSIDE: ContextVar[frozenset[Client]] = ContextVar("INSIDE", default=frozenset())
"""The clients whose task group runs this code: a handler, a checker, and whatever they start."""


class Client:
    """Connections to name servers and brokers, shared by producers and consumers.

    Use it in `async with`, or call `start` and `aclose`. Times in seconds.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        config = make_config(namesrv, **options)
        self.instance = make_instance(config)
        self._link = link_of(config.credentials, config.tls, config.namespace_v2, config.namespace)
        self._channels: dict[str, AsyncChannel] = {}
        self._opening: dict[str, ConnectAttempt[anyio.Lock]] = {}
        self._life = Life("client")
        self._group: TaskGroup | None = None
        self._outer: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._loop: object = None
        """The event loop that runs the client, since its start."""
        self._stop = anyio.Event()
        self._stopped = anyio.Event()

    @property
    def client_id(self) -> str:
        """The id of this client, as brokers list it."""
        return self.instance.config.client_id

    # ── Start and end ──

    async def __aenter__(self) -> Self:
        if on_asyncio():
            await self.start()
            return self
        self._prepare()
        self._outer = anyio.create_task_group()
        await self._outer.__aenter__()
        try:
            await self._outer.start(partial(self._run, shield=True))
        except BaseException:
            await self._outer.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
        if self._outer is not None:
            # The group gets no exception, so that the caller's own one propagates unwrapped.
            await self._outer.__aexit__(None, None, None)

    async def start(self, task_group: TaskGroup | None = None) -> None:
        """Connect to a name server and start; tasks run in `task_group` if one is given.

        A start that fails or is cancelled leaves nothing behind, and may be repeated. Raises:
        NoNameServerError if none answers, ClientStateError if started before, or on trio without a
        task group.
        """
        self._prepare()
        try:
            if task_group is not None:
                await task_group.start(self._run)
            elif on_asyncio():
                await self._start_host()
            else:
                raise ClientStateError("on trio: use `async with`, or start(task_group)")
        except BaseException:
            if self._life.state is State.STARTING:
                # Not even the first task was there to say so.
                self._life.on(Event.ENDED)
            elif self._life.state is State.LOST:
                # The same in a group of the caller, which has cancelled its tasks.
                self._life.on(Event.CLOSE)
                self.reset()
            raise

    def _prepare(self) -> None:
        self._life.on(Event.START)
        self._stop, self._stopped = anyio.Event(), anyio.Event()
        self._loop = running_loop()

    async def _start_host(self) -> None:
        """Run in a task of its own, so that different tasks may call start and aclose."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        class Status:
            def started(self, value: Any = None) -> None:
                started.set_result(None)

        work = self._run(task_status=Status())
        self._host = loop.create_task(work, name=f"aerobee {self.client_id}")
        try:
            await asyncio.wait({self._host, started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if self._life.state is State.RUNNING:
                # The start was cancelled at the very moment when it succeeded.
                self._life.on(Event.CLOSE)
                self._stop.set()
            else:
                self._host.cancel()
            await see_end(self._host)
            if self._life.state is State.CLOSED:
                self.reset()
            raise
        if self._host.done():
            self._host.result()

    async def _run(self, *, task_status: TaskStatus[None], shield: bool = False) -> None:
        """Run the client from its start to its end. With `shield`, only `aclose` ends it.

        `async with` shields: a cancelled block still needs its client to unregister.
        """
        failure: AerobeeError | None = None
        self._channels.clear()
        self.instance.open()
        try:
            async with anyio.create_task_group() as self._group:
                try:
                    await self.perform(self.instance.reach(self.instance.config.connect_timeout))
                    self._group.start_soon(self.perform, self.instance.housekeeping())
                    # A start that was cancelled meanwhile ends here, before it cannot any more.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    if self._life.on(Event.STARTED) is State.CLOSING:
                        self._stop.set()
                    task_status.started()
                    self._group.cancel_scope.shield = shield
                    await self._stop.wait()
                except AerobeeError as error:
                    failure = error
                finally:
                    if self._life.state is State.RUNNING:
                        self._life.on(Event.ENDED)
                        log.error("client %s has ended although nobody closed it", self.client_id)
                    self._stop.set()
                    self.instance.close()
                    self._group.cancel_scope.cancel()
                    with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
                        for channel in tuple(self._channels.values()):
                            await channel.aclose()
        finally:
            self._life.on(Event.ENDED)
            self._stopped.set()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close every connection and end every task; a second call does nothing.

        In a task of this client, as a handler is, it does not wait for the end: what still runs is
        cancelled. In a forked process it does nothing. Raises: ClientStateError in another event
        loop, while the client runs.
        """
        if not self.closes_here():
            return
        begun = self._life.on(Event.CLOSE) not in (State.NEW, State.CLOSED)
        self._stop.set()
        if not begun or self.runs_this_task:
            return
        with anyio.CancelScope(shield=True):
            await self._stopped.wait()
        if self._host is not None:
            if not self._host.done():
                # The loop of a task that is done may be closed: nobody waits for anything there.
                await asyncio.wait({self._host})
            if not self._host.cancelled():
                self._host.result()

    def closes_here(self) -> bool:
        """Whether a close has any effect: in a forked process the client is the parent's.

        Raises: ClientStateError in another event loop, while the client runs.
        """
        if is_copy(self.instance):
            return False
        if self._life.state in ALIVE:
            self._check_loop()
        return True

    def reset(self) -> None:
        """Let a closed client start again: the start of what owns it has failed."""
        self._life.on(Event.RESET)

    @property
    def lost(self) -> AerobeeError | None:
        """The error for those who wait, once the client has ended although nobody closed it."""
        return self._life.refusal() if self._life.state is State.LOST else None

    @property
    def runs_this_task(self) -> bool:
        """Whether this code runs in a task of the client, which cannot wait for its end."""
        return self in INSIDE.get()

    def spawn(self, steps: Steps[Any]) -> None:
        """Run steps in the background, until the client is closed."""
        self.working_group().start_soon(self._in_background, steps)

    async def _in_background(self, steps: Steps[Any]) -> None:
        try:
            await self.perform(steps)
        except ClientClosedError:
            # They met the close before they were cancelled.
            if not self._stop.is_set():
                raise

    def start_worker(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a function that calls a user's code, until the client is closed."""
        self.working_group().start_soon(self._work, work)

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        INSIDE.set(INSIDE.get() | {self})
        await work()

    async def see_through(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Run a function for at most so long, even when the caller is cancelled.

        It is a task of the client: no shield stands against a cancellation by asyncio itself, and a
        consumer that has left by half would keep its queues. Raises: what the function raises.
        """
        over, border = anyio.Event(), Border()

        async def see() -> None:
            try:
                with border, anyio.move_on_after(seconds, shield=True):
                    await work()
            finally:
                over.set()

        if self._life.state is State.RUNNING:
            self.working_group().start_soon(see)
            with anyio.CancelScope(shield=True):
                await over.wait()
        else:
            await see()
        if border.error is not None:
            raise border.error

    def working_group(self) -> TaskGroup:
        """The task group of a started client.

        Raises: ClientStateError before start and in another event loop than that of the client,
        ForkedClientError, ClientClosedError.
        """
        refusal = self._life.refusal()
        if refusal is not None:
            raise refusal
        check_process(self.instance)
        self._check_loop()
        assert self._group is not None
        return self._group

    def _check_loop(self) -> None:
        """Check that this is the event loop of the client. Raises: ClientStateError."""
        if running_loop() is not self._loop:
            raise ClientStateError(
                "this client runs in another event loop: use it there, for example by "
                "asyncio.run_coroutine_threadsafe, or make one here"
            )

    # ── Effects ──

    async def perform(self, steps: Steps[T]) -> T:
        """Run steps and return their result. Raises: the errors of the steps."""
        reply: Command | None = None
        error: AerobeeError | None = None
        try:
            while True:
                effect = steps.send(reply) if error is None else steps.throw(error)
                reply, error = None, None
                try:
                    reply = await self._carry_out(effect)
                except AerobeeError as raised:
                    error = raised
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    async def _carry_out(self, effect: Effect) -> Command | None:
        if isinstance(effect, Wait):
            await wait(effect.signal, effect.seconds)
            return None
        if effect.until is None:
            return await self._ask(effect)
        answer: Command | None = None
        with anyio.CancelScope() as scope:
            forget = effect.until.listen(scope.cancel)
            try:
                answer = await self._ask(effect)
            finally:
                forget()
        return answer

    async def _ask(self, ask: Ask) -> Command | None:
        """Send a request and wait for its response. Raises: TransportError, ClientClosedError."""
        try:
            channel = self._channels.get(ask.address)
            if channel is None or channel.closed or self._stop.is_set():
                channel = await self._connect(ask)
            if ask.oneway:
                await channel.oneway(ask.header, ask.body)
                return None
            answer = await channel.call(ask.header, ask.body, ask.timeout_s)
        except RemotingError as error:
            raise transport_error(ask, error) from error
        if answer.code == ResponseCode.GO_AWAY:
            # Calls in flight get their answers: what they sent may be stored.
            if self._channels.get(ask.address) is channel:
                del self._channels[ask.address]
            channel.leave()
        return answer

    async def _connect(self, ask: Ask) -> AsyncChannel:
        """Open a connection, or return one opened by another task. Raises: ConnectFailed."""
        starting = self._group if self._life.state is State.STARTING else None
        group = starting or self.working_group()
        address = ask.address
        opening = self._opening.setdefault(address, ConnectAttempt(anyio.Lock()))
        turn = opening.turn
        with anyio.move_on_after(ask.timeout_s):
            async with opening.lock:
                known = self._channels.get(address)
                if known is not None and not known.closed:
                    return known
                opening.check(turn)
                return await self._open(address, opening, group)
        raise ConnectFailed(f"{address}: no connection within {ask.timeout_s:g} s")

    async def _open(
        self, address: str, opening: ConnectAttempt[anyio.Lock], group: TaskGroup
    ) -> AsyncChannel:
        timeout_s = self.instance.config.connect_timeout
        with opening.noted():
            channel = await AsyncChannel.connect(address, timeout_s, group, link=self._link)
        channel.on_request = partial(self._serve, channel, address)
        self._channels[address] = channel
        self.instance.connected(address)
        # Brokers that moved get no more requests at their old address.
        left = self.instance.take_left() & self._channels.keys()
        gone = [self._channels.pop(each) for each in left]
        with anyio.CancelScope(shield=True):
            for old in gone:
                await old.aclose()
        return channel

    # ── Requests from brokers ──

    def _serve(self, channel: AsyncChannel, address: str, request: Command) -> int | Answer | None:
        """Handle a request; if that takes steps, the response is sent when they are done."""
        outcome = self.instance.serve(request, address)
        if not isinstance(outcome, Generator):
            return outcome
        if self._life.state is State.RUNNING:
            self.working_group().start_soon(self._answer, channel, request, outcome)
        return None

    async def _answer(
        self, channel: AsyncChannel, request: Command, steps: Steps[Answer | None]
    ) -> None:
        answer = await self.perform(steps)
        if answer is not None:
            channel.answer(request, answer)


async def see_end(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task that ends soon, however often the caller is cancelled."""
    with anyio.CancelScope(shield=True):
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if not task.cancelled():
        # The caller raises its own cancellation.
        task.exception()


async def wait(signal: Signal, seconds: float) -> None:
    """Wait until the signal is set, at most `seconds`."""
    event = anyio.Event()
    forget = signal.listen(event.set)
    try:
        with anyio.move_on_after(seconds):
            await event.wait()
    finally:
        forget()


def on_asyncio() -> bool:
    """Whether the current task runs on asyncio (and not on trio, which may be a guest of it)."""
    return anyio.get_cancelled_exc_class() is asyncio.CancelledError


def running_loop() -> object:
    """The event loop that runs this code, asyncio's or trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        token = anyio.lowlevel.current_token()
        # From anyio 4.11 on the token of trio is wrapped anew at each call.
        return getattr(token, "native_token", token)
