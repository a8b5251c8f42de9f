"""The clients of the gRPC port: one for each Telemetry stream, which stands for their connection.

Their settings register them in the tables of clients, as a heartbeat of remoting does, so that
administrators see them and requests of the broker reach them. A client whose stream ends is
forgotten a while later, unless it is back, or sends heartbeats all the same: what stands between
may end a stream that is silent, and some clients begin the next one minutes later. Source: grpc
§2.3, §2.12.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import structlog

from aerobee.broker.consumers.clients import are_strangers
from aerobee.broker.grpc.asked_clients import Questions, recovery_of
from aerobee.broker.grpc.caller import GrpcCaller
from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.remoting.border import Border
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import GetConsumerRunningInfo
from aerobee.remoting.wire.headers.client import Heartbeat, UnregisterClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from aerobee.remoting.grpc.calls import Call
    from aerobee.remoting.wire.bodies.client import HeartbeatData
    from aerobee.remoting.wire.header import Header

BACK_WITHIN_S: Final = 10.0
"""How long a client may be without its stream before it is forgotten."""
HEARD_WITHIN_S: Final = 30.0
"""As long after a heartbeat: clients send one each 10 s."""

log = structlog.stdlib.get_logger(__name__)


class Client(GrpcCaller):
    """A client with settings. To the tables of clients it is a connection."""

    __slots__ = (
        "data",
        "number",
        "questions",
        "request_timeout_ms",
        "stream",
        "table",
        "there_until",
    )

    def __init__(self, table: Clients, caller: GrpcCaller, stream: Call) -> None:
        super().__init__(caller.door, caller.channel, signer=caller.signer)
        self.client_id = caller.client_id
        self.language = caller.language
        self.table = table
        self.stream = stream
        table.beside.setdefault(caller.channel.id, set()).add(self)
        self.number: int = caller.context.shared.next_number()
        self.request_timeout_ms = 0
        """The time of a call by its settings; 0: none."""
        self.data: HeartbeatData | None = None
        """The groups of which it is a member."""
        self.there_until = inf
        """When it is forgotten; infinity: its stream is open."""
        self.questions = Questions()

    @property
    def id(self) -> int:
        """Its own number: several clients may share a connection."""
        return self.number

    @property
    def paused(self) -> bool:
        """Whether nothing can be sent to it now."""
        return self.is_lost or self.channel.paused

    @property
    def is_lost(self) -> bool:
        """Whether its stream has ended."""
        return self.there_until < inf

    def renew(
        self,
        then: Callable[[], None],
        refused: Callable[[RpcRefused], None],
        *,
        own: bool = False,
    ) -> None:
        """Register it again, or for the first time. `own`: a call has shown that it may."""
        assert self.data is not None
        body = self.data.to_bytes()
        self.ask_or_refuse(Heartbeat(), lambda _: then(), refused, body=body, own=own)

    # ── What the broker tells and asks it ──

    def tell(self, command: Any) -> None:
        """Send it a command over its stream."""
        if not self.is_lost:
            self.stream.send(command.SerializeToString())
            self.wrote()

    def notify(self, code: int, header: Header | None, body: bytes = b"") -> None:
        """Tell it of a half message whose end is not known. It needs no other notice: queues are
        not assigned to members here, and offsets are the broker's.
        """
        if code == RequestCode.CHECK_TRANSACTION_STATE and not self.paused:
            with Border() as border:
                self.tell(recovery_of(header, body))
            if border.error is not None:
                # Its producer is asked about the other half messages.
                self.context.stats.requests_failed += 1
                address, error = self.address, border.error
                log.error("grpc.notice_failed", code=code, address=address, exc_info=error)

    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command:
        """Ask it, and wait for its answer. Raises: CallTimedOut, ChannelClosed."""
        if isinstance(header, GetConsumerRunningInfo) and self.data is not None:
            info = self.table.known(self, self.data)
            if header.jstack_enable:
                stacks = await self.questions.ask(self, code, body, timeout_s)
                info.jstack = ConsumerRunningInfo.from_bytes(stacks.body).jstack
            return Command(body=info.to_bytes())
        return await self.questions.ask(self, code, body, timeout_s)

    def broken(self, text: str) -> None:
        self.stream.finish(StatusCode.INTERNAL, text)

    def close(self, reason: str) -> None:
        """End its stream, and forget it."""
        if self.closed:
            return
        super().close(reason)
        self.questions.end()
        self.table.forget(self)
        if not self.is_lost:
            self.stream.finish(StatusCode.UNAVAILABLE, reason)
            self.wrote()


class Clients:
    """All of them, by client id.

    `closed` is called for each stream that does not come back, `gone` for each client that has no
    other; `known` gives what the broker knows of a consumer by itself.
    """

    def __init__(
        self,
        closed: Callable[[Client], None],
        gone: Callable[[Client], None],
        known: Callable[[Client, HeartbeatData], ConsumerRunningInfo],
    ) -> None:
        self.by_id: dict[str, Client] = {}
        self.beside: dict[int, set[Client]] = {}
        """The clients of each connection, by its number."""
        self._closed = closed
        self._gone = gone
        self.known = known

    def claimed(self, caller: GrpcCaller) -> Client | None:
        """The client that a call says it comes from, if it has settings. Anybody may write another
        one's id, and the name of its account.
        """
        client = self.by_id.get(caller.client_id)
        if client is None or client.data is None:
            return None
        same = not client.accounts or caller.signer.access_key in client.accounts
        return client if same else None

    def get(self, caller: GrpcCaller) -> Client | None:
        """The client that a call comes from, once the gate has let a request of the call pass. With
        accounts the client is that of the account that the gate has seen.
        """
        client = self.claimed(caller)
        if client is None or (client.accounts and client.accounts.isdisjoint(caller.accounts)):
            return None
        return client

    def entered(self, client: Client) -> None:
        """Note a client whose settings were taken; an older stream of it ends. With accounts that
        stream has to be of the same one: anybody may write another one's id. Raises: RpcRefused.
        """
        before = self.by_id.get(client.client_id)
        if before is not None and are_strangers(before, client):
            raise RpcRefused(
                Code.FORBIDDEN,
                f"client id {quoted(client.client_id)} is that of an open stream of another"
                " account: give this client another id",
            )
        self.by_id[client.client_id] = client
        if before is not None and before is not client:
            before.close("the client has opened another stream")

    def forget(self, client: Client) -> None:
        """A stream has gone: it is a member of no group any more. Its client works on its messages
        for as long as it has another.
        """
        beside = self.beside[client.channel.id]
        beside.discard(client)
        if not beside:
            del self.beside[client.channel.id]
        if self.by_id.get(client.client_id) is client:
            del self.by_id[client.client_id]
            self._gone(client)
        self._closed(client)

    def lost(self, client: Client) -> None:
        """The stream of a client has ended; it may come back, if it has settings."""
        if client.closed:
            return
        client.stream.owner = None
        client.there_until = monotonic() + BACK_WITHIN_S
        if client.data is None:
            client.close("the stream ended before any settings")

    def heard(self, client: Client) -> None:
        """A heartbeat shows that a client is there, with a stream or without."""
        if client.is_lost:
            client.there_until = monotonic() + HEARD_WITHIN_S

    def leave(self, client: Client) -> None:
        """A client takes its leave, by a call that has shown that it may."""
        data, client.data = client.data, None
        assert data is not None
        self._leave_groups(client, consumer_groups(data))
        for entry in data.producer_data_set:
            header = UnregisterClient(client.client_id, entry.group_name, None)
            client.ask(header, lambda _: None, own=True)

    def moved(self, client: Client, before: HeartbeatData | None) -> None:
        """A client has other settings than `before`: it leaves the group that they do not name, in
        which nothing would renew it.
        """
        if before is not None and client.data is not None:
            self._leave_groups(client, consumer_groups(before) - consumer_groups(client.data))

    def _leave_groups(self, client: Client, consumer_groups: Set[str]) -> None:
        for group in sorted(consumer_groups):
            header = UnregisterClient(client.client_id, None, group)
            client.ask(header, lambda _: None, own=True)

    def expire(self) -> Iterator[None]:
        """Forget the clients that have not come back."""
        now = monotonic()
        for client in list(self.by_id.values()):
            if client.there_until < now:
                client.close("the client has not come back")
            yield


def consumer_groups(data: HeartbeatData) -> Set[str]:
    """The consumer groups of which a client is a member."""
    return {entry.group_name for entry in data.consumer_data_set}


def status_command(code: Code, text: str) -> Any:
    """A command of Telemetry with a status alone."""
    return messages.TelemetryCommand(status=messages.Status(code=code, message=text))
