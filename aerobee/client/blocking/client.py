"""The blocking client: its connections and its background thread. It makes no decisions."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from aerobee.client.blocking.background import Background
from aerobee.client.blocking.connections import Connections
from aerobee.client.factory import check_process, is_copy, make_config, make_instance
from aerobee.client.life import Event, Life, State
from aerobee.client.security import link_of
from aerobee.client.steps.effects import Wait
from aerobee.client.transport import late, transport_error
from aerobee.errors import AerobeeError
from aerobee.remoting.client.event import Event as WakeUp
from aerobee.remoting.errors import ConnectFailed, RemotingError
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from aerobee.client.blocking.background import WhenAnswered
    from aerobee.client.settings.client import ClientConfig, ClientOptions
    from aerobee.client.steps.effects import Ask, Effect, Steps
    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.client.calls import OnRequest
    from aerobee.remoting.client.link import Link
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")
T = TypeVar("T")

SLICE_S = 0.2
"""The longest single wait, so that Ctrl-C works on every system."""


class Client:
    """Connections to name servers and brokers, shared by producers and consumers.

    Use it in `with`, or call `start` and `close`. Any thread may call it. Times in seconds.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        config = make_config(namesrv, **options)
        self.instance = make_instance(config)
        self._lock = threading.RLock()
        self._connections = Connections(
            config.connect_timeout,
            serve=self._serve,
            opened=self._connected,
            link=self._link(config),
        )
        self._background = self._new_background()
        self._life = Life("client")

    def _link(self, config: ClientConfig) -> Link:
        """How its connections are made."""
        return link_of(config.credentials, config.tls, config.namespace_v2, config.namespace)

    @property
    def client_id(self) -> str:
        """The id of this client, as brokers list it."""
        return self.instance.config.client_id

    @property
    def lock(self) -> threading.RLock:
        """Held while steps advance: it guards all state of the client.

        Raises: ForkedClientError, since the thread that held it may not exist in this process.
        """
        check_process(self.instance)
        return self._lock

    # ── Start and end ──

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Connect to a name server and start.

        A start that fails leaves nothing behind, and may be repeated. Raises: NoNameServerError,
        ClientStateError.
        """
        with self.lock:
            self._life.on(Event.START)
        warn_in_event_loop()
        try:
            self._background = self._new_background()
            self.instance.open()
            self.perform(self.instance.reach(self.instance.config.connect_timeout))
            self._background.start()
            self.spawn(self.instance.housekeeping())
            with self._lock:
                self._life.on(Event.STARTED)
        except BaseException:
            self._end()
            raise
        if refusal := self._life.refusal():
            raise refusal  # Another thread has closed it meanwhile.

    def close(self) -> None:
        """Close every connection and end the background thread; a second call does nothing.

        So does a call in a forked process: the thread that held the lock may not exist there.
        """
        if is_copy(self.instance):
            return
        with self._lock:
            before = self._life.on(Event.CLOSE)
        if before not in (State.NEW, State.CLOSED):
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.instance.close()
        self._background.stop()
        self._connections.close()
        self._background.join()
        with self._lock:
            self._life.on(Event.ENDED)

    def _new_background(self) -> Background:
        name = f"aerobee {self.client_id}"
        return Background(name, self._lock, self._begin, failed=self._note_lost)

    def _note_lost(self) -> None:
        """A bug has ended the background thread: end all that waits for it."""
        with self._lock:
            self._life.on(Event.ENDED)
            self.instance.close()
        log.error("client %s has ended: see the traceback of its thread", self.client_id)

    def reset(self) -> None:
        """Let a closed client start again: the start of what owns it has failed."""
        with self._lock:
            self._life.on(Event.RESET)

    @property
    def lost(self) -> AerobeeError | None:
        """The error for those who wait, once the client has ended although nobody closed it."""
        return self._life.refusal() if self._life.state is State.LOST else None

    def check_works(self) -> None:
        """Check that the client is started and not closed.

        Raises: ClientStateError before start and ForkedClientError, ClientClosedError.
        """
        if self._life.state is not State.STARTING and (refusal := self._life.refusal()):
            raise refusal
        check_process(self.instance)

    def spawn(self, steps: Steps[Any]) -> None:
        """Run steps in the background, until the client is closed."""
        self._background.spawn(steps)

    # ── Effects ──

    def perform(self, steps: Steps[T]) -> T:
        """Run steps in this thread and return their result. Raises: the errors of the steps."""
        reply: Command | None = None
        error: AerobeeError | None = None
        try:
            while True:
                with self._lock:
                    effect = steps.send(reply) if error is None else steps.throw(error)
                reply, error = None, None
                try:
                    reply = self._carry_out(effect)
                except AerobeeError as raised:
                    error = raised
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            with self._lock:
                steps.close()

    def _carry_out(self, effect: Effect) -> Command | None:
        """Perform one effect; returns the response if it is a request.

        Raises: TransportError, ClientClosedError.
        """
        if isinstance(effect, Wait):
            self._wait(effect)
            return None
        channel = self._connections.known(effect.address)
        if channel is not None:
            return self._ask(channel, effect)
        woken = WakeUp()
        outcome: list[tuple[Command | None, AerobeeError | None]] = []

        def done(answer: Command | None, error: AerobeeError | None) -> None:
            outcome.append((answer, error))
            woken.set()

        forget = self._begin(effect, done)
        try:
            wait(woken, effect.timeout_s)
            connected = self._connections.known(effect.address) is not None
        finally:
            forget()
        if not outcome:
            raise late(effect) if connected else transport_error(effect, too_slow(effect))
        answer, failure = outcome[0]
        if failure is not None:
            raise failure
        return answer

    def _wait(self, effect: Wait) -> None:
        woken = WakeUp()
        with self._lock:
            forget = effect.signal.listen(woken.set)
        try:
            wait(woken, effect.seconds)
        finally:
            with self._lock:
                forget()

    def _ask(self, channel: BlockingChannel, ask: Ask) -> Command | None:
        """Send a request and wait for its response. Raises: TransportError, ClientClosedError."""
        self.check_works()
        try:
            if ask.oneway:
                channel.oneway(ask.header, ask.body)
                return None
            answer = channel.call(ask.header, ask.body, ask.timeout_s)
        except RemotingError as error:
            raise transport_error(ask, error) from error
        self._note_leaving(channel, ask, answer)
        return answer

    def _note_leaving(self, channel: BlockingChannel, ask: Ask, answer: Command) -> None:
        """Stop using a channel whose broker goes away; it closes by itself."""
        if answer.code == ResponseCode.GO_AWAY:
            self._connections.leave(ask.address, channel)

    def _begin(self, ask: Ask, done: WhenAnswered) -> Callable[[], None]:
        """Send a request; `done` gets the outcome, unless what is given back is called first."""
        try:
            self.check_works()
        except AerobeeError as error:
            done(None, error)
            return do_nothing
        channel = self._connections.known(ask.address)
        if channel is not None:
            return self._begin_on(channel, ask, done)
        wanted = WakeUp()
        wanted.set()
        begun: list[Callable[[], None]] = []

        def connect() -> None:
            try:
                opened = self._open(ask.address)
            except RemotingError as error:
                done(None, transport_error(ask, error))
                return
            except AerobeeError as error:
                done(None, error)
                return
            if wanted.is_set():
                begun.append(self._begin_on(opened, ask, done))

        def forget() -> None:
            wanted.clear()
            for job in begun:
                job()

        # Connecting takes seconds if the peer is silent, and must not block other jobs.
        thread = threading.Thread(target=connect, name=f"connect {ask.address}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system gives no thread now. That must not end the thread of all jobs.
            done(None, transport_error(ask, ConnectFailed(f"{ask.address}: {error}")))
            return do_nothing
        return forget

    def _begin_on(
        self, channel: BlockingChannel, ask: Ask, done: WhenAnswered
    ) -> Callable[[], None]:
        def ended(answer: Command | None, error: RemotingError | None) -> None:
            if answer is not None:
                self._note_leaving(channel, ask, answer)
            done(answer, None if error is None else transport_error(ask, error))

        if not ask.oneway:
            return channel.begin(ask.header, ask.body, ended, ask.timeout_s)
        try:
            channel.oneway(ask.header, ask.body)
        except RemotingError as error:
            ended(None, error)
        else:
            ended(None, None)
        return do_nothing

    def _open(self, address: str) -> BlockingChannel:
        """The open connection to an address, else a new one. Raises: ConnectFailed."""
        self.check_works()
        channel = self._connections.channel(address)
        if self.instance.closing.is_set:
            # The connection was opened after `close` had closed the others.
            channel.close()
        return channel

    def _connected(self, address: str) -> None:
        """Close connections to the old addresses of brokers that moved."""
        with self._lock:
            self.instance.connected(address)
            left = self.instance.take_left()
        self._connections.drop(left)

    def _serve(self, address: str) -> OnRequest:
        """The function that handles the requests of a broker."""

        def serve(request: Command) -> int | Answer | None:
            with self._lock:
                outcome = self.instance.serve(request, address)
            if not isinstance(outcome, Generator):
                return outcome
            # The response goes back over the connection of the request, or not at all.
            channel = self._connections.known(address)

            def answer(reply: Answer | None) -> None:
                if channel is not None and reply is not None:
                    channel.answer(request, reply)

            self._background.spawn(outcome, answer)
            return None

        return serve


def do_nothing() -> None:
    """The function that forgets a request which has already ended."""


def too_slow(ask: Ask) -> ConnectFailed:
    """The error of a request for which no connection was opened in its time."""
    return ConnectFailed(f"{ask.address}: no connection within {ask.timeout_s:.3g} s")


def wait(event: WakeUp, seconds: float) -> None:
    """Wait for the event, at most `seconds`, in slices."""
    deadline = monotonic() + seconds
    while not event.wait(max(0.0, min(SLICE_S, deadline - monotonic()))):
        if monotonic() >= deadline:
            return


def warn_in_event_loop() -> None:
    """Warn if this thread runs an asyncio loop, which every call would block."""
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running is not None and running() is not None:
        log.warning("the blocking client is used inside an event loop and holds it up")
