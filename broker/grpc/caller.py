"""One RPC as the origin of the requests of the broker that it becomes.

To the pools and handlers it is what a connection of remoting is: it has an address and accounts,
and takes the answers. Further questions are for its channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS
from aerobee.remoting.border import Border
from aerobee.remoting.latency import SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.wire.typed_command import TypedCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.grpc.translation.signature import Signer
    from aerobee.remoting.server.caller import CallerContext
    from aerobee.remoting.server.pools import Pool, Waiting
    from aerobee.remoting.server.route_table import OpenRequest
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

VERSION: Final = 453
"""V5_2_0: what the version of a 5.x client is shown as, since its own has no number."""


log = structlog.stdlib.get_logger(__name__)


class Entrance(Protocol):
    """Where requests go in."""

    def request(self, caller: GrpcCaller, command: Command, *, own: bool = False) -> None:
        """Serve a request. `own`: it is ours, and needs no account."""

    def go_on(self, caller: GrpcCaller) -> None:
        """Go on with the current request of a caller, or with its next."""

    def failed(self, command: Command, caller: GrpcCaller, error: Exception) -> Answer:
        """The answer to a request that raised an error."""

    def drop_held(self, caller: GrpcCaller) -> None:
        """Drop what is held for a caller that has gone."""


class CallChannel(Hashable, Protocol):
    """The connection of calls, as far as their requests are concerned."""

    accounts: frozenset[str]
    """Whose requests the gate has seen on it."""
    held: int
    """Requests held by long polling, of all of its calls."""
    requests: int
    """Requests that have come on it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def address(self) -> str:
        """The address of the client, with its port."""

    @property
    def local_address(self) -> str:
        """Ours, at which it has connected."""

    @property
    def host(self) -> bytes:
        """The address of the client as records have it."""

    @property
    def listener(self) -> str:
        """The name of the listener."""

    @property
    def context(self) -> CallerContext:
        """The state that the connections of its selector share."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""

    @property
    def paused(self) -> bool:
        """Whether the client does not read what it was sent."""

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""

    def welcome(self) -> None:
        """Let it stay: it has sent what needs no account."""

    def admit(self) -> None:
        """Count what it sends with that of others who have shown an account."""

    def hold(self) -> None:
        """Take no more calls before the sweep of the next second."""

    def touch(self) -> None:
        """Have what its calls have to say sent with the next flush."""

    def write(self) -> None:
        """Send what is queued."""


class GrpcCaller:
    """The origin of requests. `channel` is that of its connection.

    Invariant: at most one of its requests waits in a run, is postponed or goes on in steps.
    Requests behind it are kept in `_asked`.
    """

    __slots__ = (
        "__weakref__",
        "_accounts",
        "_asked",
        "_asks",
        "_has_asked",
        "_held",
        "_queued",
        "channel",
        "client_id",
        "closed",
        "current",
        "door",
        "language",
        "on_close",
        "postponed",
        "signer",
        "working",
    )

    def __init__(
        self, door: Entrance, channel: CallChannel, *, signer: Signer = NOBODY_SIGNS
    ) -> None:
        self.door = door
        self.channel = channel
        self.signer = signer
        self.client_id = ""
        self.language = ""
        # An account that another client of the connection has shown is not this one's.
        self._accounts = shown(channel, signer)
        self.closed = False
        self.postponed = False
        self.current: OpenRequest | None = None
        self.working = 0
        self._queued: deque[tuple[Waiting, Pool]] | None = None
        self._asked: deque[tuple[TypedCommand, bool]] | None = None
        self._asks: Iterator[None] | None = None
        self._has_asked = False
        self.on_close: list[Callable[[Any, str], None]] = []
        self._held = 0

    # ── What its channel knows ──

    @property
    def id(self) -> int:
        """The number of its connection."""
        return self.channel.id

    @property
    def lane(self) -> CallChannel:
        """Its connection: calls have what one connection may have, together."""
        return self.channel

    @property
    def requests(self) -> int:
        """Requests that have come on its connection, which others may share."""
        return self.channel.requests

    @property
    def address(self) -> str:
        """The address of the client, with its port."""
        return self.channel.address

    @property
    def local_address(self) -> str:
        """Ours, at which it has connected."""
        return self.channel.local_address

    @property
    def host(self) -> bytes:
        """The address of the client as records have it."""
        return self.channel.host

    @property
    def context(self) -> CallerContext:
        """The state that the connections of its selector share."""
        return self.channel.context

    @property
    def listener(self) -> str:
        """The name of the listener."""
        return self.channel.listener

    @property
    def paused(self) -> bool:
        """Whether the client does not read what it was sent."""
        return self.channel.paused

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""
        return self.channel.stalled

    @property
    def backed_up(self) -> bool:
        """Whether the client would not read another answer now."""
        return self.paused

    @property
    def accounts(self) -> frozenset[str]:
        """Whose requests the gate has seen of it."""
        return self._accounts

    @accounts.setter
    def accounts(self, accounts: frozenset[str]) -> None:
        self._accounts = accounts
        self.channel.accounts |= accounts

    @property
    def queued(self) -> deque[tuple[Waiting, Pool]]:
        """Requests that wait until it reads; few calls ever have any."""
        if self._queued is None:
            self._queued = deque()
        return self._queued

    @property
    def held(self) -> int:
        """Requests held by long polling."""
        return self._held

    @held.setter
    def held(self, count: int) -> None:
        self.channel.held += count - self._held
        self._held = count

    def welcome(self) -> None:
        """Let its connection stay: it has sent what needs no account."""
        self.channel.welcome()

    def admit(self) -> None:
        """Count what its connection sends with that of others who have shown an account."""
        self.channel.admit()

    # ── Requests ──

    def ask(
        self,
        header: Header,
        then: Callable[[Answer], None],
        *,
        body: bytes = b"",
        own: bool = False,
    ) -> None:
        """Make a request of the broker; `then` gets its answer, now or later. `own`: it is ours."""
        command = TypedCommand(
            code=int(header.code),
            language=self.language,
            version=VERSION,
            body=body,
            typed=header,
            reply=then,
            access_key=self.signer.access_key,
            proof=self.signer.proof,
            arrived=monotonic(),
        )
        self.channel.requests += 1
        if self._has_asked:
            context = self.context
            if context.run is not None and context.run.has(self):
                context.serve_run()
            if not self.closed and (self.current is not None or self._asked):
                self._asked = self._asked or deque()
                self._asked.append((command, own))
                return
        self._has_asked = True
        self.door.request(self, command, own=own)

    def ask_in_turns(self, asks: Iterator[None]) -> None:
        """Make many requests, each in a step of its own: some in this turn, the rest in turns with
        others.
        """
        self._asks = asks
        while self._ask_one() and self.current is None and not self._asked:
            if monotonic() > self.context.turn_ends:
                self.door.go_on(self)
                break

    def _ask_one(self) -> bool:
        """Take one step; whether there may be more."""
        if self._asks is None:
            return False
        with Border() as border:
            if next(self._asks, self) is self:
                self._asks = None
        if border.error is not None:
            self.context.stats.requests_failed += 1
            address, error = self.address, border.error
            log.error("grpc.step_failed", address=address, exc_info=error)
            self._asks = None
            self.broken(f"{type(error).__name__} in the broker")
        return self._asks is not None

    def ask_next(self) -> None:
        """Make the next request, if any has waited for the end of another, or for its turn."""
        if not self._asked:
            more = self._ask_one()
            self.context.serve_run()
            if more and self.current is None and not self._asked:
                self.door.go_on(self)
            return
        command, own = self._asked.popleft()
        self.door.request(self, command, own=own)
        # The next round of its selector may be far away.
        self.context.serve_run()
        if (self._asked or self._asks) and self.current is None:
            self.door.go_on(self)

    def ask_or_refuse(
        self,
        header: Header,
        then: Callable[[Answer], None],
        refused: Callable[[RpcRefused], None],
        *,
        body: bytes,
        own: bool = False,
    ) -> None:
        """As `ask`, with other answers than success as what the client is told."""
        self.ask(header, partial(_told, then, refused), body=body, own=own)

    def answer(self, command: Command, answer: Answer, *, held: bool = False) -> None:
        """Give an answer to where the request came from. `held`: it waited for a message."""
        command.answered = True
        command.uncount()
        context = self.context
        result = UNSENT_RESULT if self.closed else SUCCESS_RESULT
        context.stats.latencies.ended[command.code, answer.code, held, result].append(
            command.arrived
        )
        assert isinstance(command, TypedCommand)
        with Border() as border:
            command.reply(answer)
        if border.error is not None:
            # An answer that cannot be told must not end the caller that woke its request.
            context.stats.requests_failed += 1
            address, error = self.address, border.error
            log.error("grpc.answer_failed", code=command.code, address=address, exc_info=error)
            self.broken(f"{type(error).__name__} in the broker")
        self.wrote()

    def broken(self, text: str) -> None:
        """End without the answer: it cannot be told."""

    def wrote(self) -> None:
        """Have the connection written with the next flush."""
        self.channel.touch()

    def unanswered(self, command: Command) -> None:
        """Hear of a request without an answer: a transaction whose end is not known has none."""

    def failed(self, command: Command, error: Exception) -> None:
        """Answer a held request that raised an error when it ran again."""
        self.answer(command, self.door.failed(command, self, error), held=True)

    def write(self) -> None:
        """Send what is queued."""
        self.channel.write()

    # ── Requests that take several turns ──

    def begin(self, request: OpenRequest) -> None:
        """Go on with the steps of a request."""
        self.current = request

    def goes_on(self) -> None:
        """Have a request of a run, whose first step is done, go on in turns with others."""
        if not self.postponed:
            self.door.go_on(self)

    def end(self) -> None:
        """Release the request whose steps have ended."""
        self.current = None
        self.context.shared.long_requests.leave(self)
        if self._asked or self._asks:
            self.door.go_on(self)

    def postpone(self, request: OpenRequest | None = None, *, to_sweep: bool = False) -> None:
        """Serve this request again, or go on with the current one: when the reactor resumes such
        requests, or `to_sweep`, in the sweep of each second. Nothing behind it is read meanwhile: a
        connection has one guess a second, whatever the number of its calls.
        """
        if to_sweep:
            self.channel.hold()
        self.current = request or self.current
        self.postponed = True
        shared = self.context.shared
        (shared.postponed_to_sweep if to_sweep else shared.postponed).append(self.resume)

    def resume(self, now: float) -> None:
        """Go on with the postponed request."""
        self.postponed = False
        if not self.closed:
            self.door.go_on(self)

    def close(self, reason: str) -> None:
        """The RPC is over, or its client has gone: what is held for it is dropped."""
        if self.closed:
            return
        self.closed = True
        self.current = self._asked = self._asks = None
        self.context.shared.long_requests.leave(self)
        while self._queued:
            self._queued.pop()[0].work.close()  # type: ignore[attr-defined]  # coroutines
        self.door.drop_held(self)
        for callback in self.on_close:
            callback(self, reason)
        self.on_close.clear()


def shown(channel: CallChannel, signer: Signer) -> frozenset[str]:
    """The account of a signer, if it has shown it on this channel before."""
    accounts = channel.accounts
    return accounts & {signer.access_key} if accounts else accounts


def _told(
    then: Callable[[Answer], None], refused: Callable[[RpcRefused], None], answer: Answer
) -> None:
    if answer.code:
        refused(RpcRefused(*outcome(answer)))
    else:
        then(answer)
