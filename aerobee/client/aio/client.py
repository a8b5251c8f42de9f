"""The async client: its connections and tasks, on asyncio or trio. It makes no decisions.

A Client performs the effects of `steps`; its state is an Instance. All its tasks are in one task
group, so that an internal error ends the client with an exception instead of leaving it half alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import anyio

from aerobee.client.factory import check_process, make_config, make_instance
from aerobee.client.security import link_of
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.transport import transport_error
from aerobee.errors import AerobeeError, ClientClosedError, ClientStateError
from aerobee.remoting.client.async_channel import AsyncChannel
from aerobee.remoting.errors import ConnectFailed, RemotingError
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup, TaskStatus

    from aerobee.client.config import ClientOptions
    from aerobee.client.steps.effects import Effect, Signal, Steps
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

__all__ = ["Client"]

log = logging.getLogger("aerobee.client")
T = TypeVar("T")

CLOSE_WITHIN_S = 5.0
"""The timeout for unregistering at the end, even when the surrounding scope is cancelled."""


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
        self._opening: dict[str, Opening] = {}
        self._group: TaskGroup | None = None
        self._outer: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
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
        self._check_fresh()
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

        Raises: NoNameServerError if none answers, ClientStateError if started before, or on trio
        without a task group.
        """
        self._check_fresh()
        if task_group is not None:
            await task_group.start(self._run)
        elif on_asyncio():
            await self._start_host()
        else:
            raise ClientStateError("on trio: use `async with`, or start(task_group)")

    def _check_fresh(self) -> None:
        if self._group is not None or self._stop.is_set():
            raise ClientStateError("a client is started once")

    async def _start_host(self) -> None:
        """Run in a task of its own, so that different tasks may call start and aclose."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        class Status:
            def started(self, value: Any = None) -> None:
                started.set_result(None)

        self._host = loop.create_task(self._run(task_status=Status()))
        await asyncio.wait({self._host, started}, return_when=asyncio.FIRST_COMPLETED)
        if self._host.done():
            self._host.result()

    async def _run(self, *, task_status: TaskStatus[None], shield: bool = False) -> None:
        """Run the client from its start to its end. With `shield`, only `aclose` ends it.

        `async with` shields: a cancelled block still needs its client to unregister.
        """
        failure: AerobeeError | None = None
        try:
            async with anyio.create_task_group() as self._group:
                self._group.cancel_scope.shield = shield
                try:
                    await self.perform(self.instance.reach(self.instance.config.connect_timeout))
                except AerobeeError as error:
                    failure = error
                else:
                    self._group.start_soon(self.perform, self.instance.housekeeping())
                    task_status.started()
                    await self._stop.wait()
                finally:
                    self._stop.set()
                    self.instance.close()
                    self._group.cancel_scope.cancel()
                    with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
                        for channel in tuple(self._channels.values()):
                            await channel.aclose()
        finally:
            self._stopped.set()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close every connection and end every task; a second call does nothing."""
        self._stop.set()
        if self._group is None:
            return
        with anyio.CancelScope(shield=True):
            await self._stopped.wait()
        if self._host is not None:
            await self._host

    def spawn(self, steps: Steps[Any]) -> None:
        """Run steps in the background, until the client is closed."""
        self.working_group().start_soon(self.perform, steps)

    def working_group(self) -> TaskGroup:
        """The task group of a started client.

        Raises: ClientStateError before start and ForkedClientError, ClientClosedError.
        """
        if self._stop.is_set():
            raise ClientClosedError("this client is closed")
        if self._group is None:
            raise ClientStateError("not started: use `async with`, or call start()")
        check_process(self.instance)
        return self._group

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
            await channel.aclose()
        return answer

    async def _connect(self, ask: Ask) -> AsyncChannel:
        """Open a connection, or return one opened by another task. Raises: ConnectFailed.

        Tasks that waited for a failed attempt get the same error: otherwise a thousand sends would
        each try to connect, one after the other, to a broker that is down.
        """
        group = self.working_group()
        address = ask.address
        opening = self._opening.setdefault(address, Opening())
        turn = opening.turn
        with anyio.move_on_after(ask.timeout_s):
            async with opening.lock:
                known = self._channels.get(address)
                if known is not None and not known.closed:
                    return known
                if opening.turn != turn and opening.failed:
                    raise ConnectFailed(opening.failed)
                return await self._open(address, opening, group)
        raise ConnectFailed(f"{address}: no connection within {ask.timeout_s:g} s")

    async def _open(self, address: str, opening: Opening, group: TaskGroup) -> AsyncChannel:
        timeout_s = self.instance.config.connect_timeout
        try:
            channel = await AsyncChannel.connect(address, timeout_s, group, link=self._link)
        except ConnectFailed as error:
            opening.turn += 1
            opening.failed = str(error)
            raise
        opening.failed = ""
        channel.on_request = partial(self._serve, channel, address)
        self._channels[address] = channel
        self.instance.connected(address)
        # Brokers that moved get no more requests at their old address.
        for left in self.instance.take_left() & self._channels.keys():
            await self._channels.pop(left).aclose()
        return channel

    # ── Requests from brokers ──

    def _serve(self, channel: AsyncChannel, address: str, request: Command) -> int | Answer | None:
        """Handle a request; if that takes steps, the response is sent when they are done."""
        outcome = self.instance.serve(request, address)
        if not isinstance(outcome, Generator):
            return outcome
        if self._group is not None and not self._stop.is_set():
            self._group.start_soon(self._answer, channel, request, outcome)
        return None

    async def _answer(
        self, channel: AsyncChannel, request: Command, steps: Steps[Answer | None]
    ) -> None:
        answer = await self.perform(steps)
        if answer is not None:
            channel.answer(request, answer)


class Opening:
    """The running attempt to connect to an address; other tasks wait for it."""

    __slots__ = ("failed", "lock", "turn")

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.turn = 0
        """The number of failed attempts."""
        self.failed = ""
        """The reason why the last attempt failed."""


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
    """Whether the current task runs on asyncio (and not on trio)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
