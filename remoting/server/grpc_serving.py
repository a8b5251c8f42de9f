"""The serving of gRPC: bytes → calls → the service that they ask for, in the turns of a channel.

    selector ⇄ GrpcChannel ⇄ Calls (`remoting/grpc`) ⇄ Engine (`remoting/http2`)
                    ↓ ↑
                CallService

Calls of a connection are served in the order in which they came, as far as its turn allows, and
the rest in its next turns. Answers wait in three places, each with its bound: in the streams for
the windows of the peer, where `Call.send` says that there is no room; in the output queue of the
channel, which takes from the streams only what the peer reads; and together in the budget of all
connections. Only this module knows both sides; what a call means is the business of the service.
"""

from __future__ import annotations

import socket
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog
import trio

from aerobee.remoting.border import Border
from aerobee.remoting.grpc.calls import (
    CallOpened,
    CallOver,
    Calls,
    HalfClosed,
    MessageReceived,
    Method,
    RoomAgain,
    Shape,
)
from aerobee.remoting.grpc.fields import BULK, PACKAGE, RPCS, SERVICE
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.http2.engine import Engine
from aerobee.remoting.http2.limits import Http2Limits
from aerobee.remoting.server.channel import Channel
from aerobee.remoting.server.outbound import Uptake, unacknowledged_bytes
from aerobee.remoting.server.states import Event, Input
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aerobee.remoting.grpc.calls import Call, CallEvent
    from aerobee.remoting.grpc.fields import Rpc
    from aerobee.remoting.server.channel import NewSocket
    from aerobee.remoting.server.left_bytes import Piece

TAKEN_BYTES: Final = 8 << 10
"""Bytes that are fed at once: frames may be tiny, and 8 KiB of them take some 4 ms."""
WRITTEN_BYTES: Final = 256 << 10
"""The most that is taken from the streams for one write."""
LOOK_EVERY_S: Final = 0.5
"""How often channels are looked for with something to end: clients know deadlines by themselves."""
WINDOWS_BYTES: Final = 256 << 10
"""How much a peer may have been given that its client has not read yet. Clients open their windows
in steps: a slow one is silent until it has read a step, and gets the time for it."""
SLOWEST_PER_S: Final = 4_096
"""The rate at which it is to read that where `writeLeastRate` is off."""
MESSAGE_SPARE_BYTES: Final = 1 << 20
"""How much longer than the largest body a message may be."""
KEEPALIVE_S: Final = 120
"""A peer that sends nothing for so long is asked by the kernel, three times in half a minute: a
stream may be silent for hours, and a peer that has vanished says nothing either."""

log = structlog.stdlib.get_logger(__name__)


def shape_of(rpc: Rpc) -> Shape:
    """The kind of a call."""
    if rpc.requests:
        return Shape.BOTH_STREAM
    return Shape.ANSWER_STREAM if rpc.answers else Shape.UNARY


METHODS: Final[Mapping[bytes, Method]] = {
    f"/{PACKAGE}.{SERVICE}/{name}".encode(): Method(name, shape_of(rpc), name not in BULK)
    for name, rpc in RPCS.items()
}


class CallService(Protocol):
    """The meaning of calls. Nothing of it waits; an error that it raises is our fault and ends a
    call. With the first request that it takes, the channel is heard (`SharedState.heard`).

    Answers go by the call (`answer`, `send`, `finish`), now or later; behind those that come later,
    `GrpcChannel.touch` is called, and the flush of the reactor sends them. Its metadata, some 2 KiB
    of a call that may be open for days, is there while the call is told for the first time.
    """

    def opened(self, channel: GrpcChannel, call: Call) -> None:
        """A stream in both directions has begun. It ends by itself soon, unless it may `stay`."""

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        """The request of a call has come, or the next message of a stream in both directions."""

    def half_closed(self, call: Call) -> None:
        """The client sends nothing more on a stream in both directions."""

    def room_again(self, call: Call) -> None:
        """There is room for more answers of a call that had none."""

    def over(self, call: Call) -> None:
        """The call has ended, and not by us; or its client has not got all answers of a stream that
        we have ended.
        """


class GrpcChannel(Channel):
    """A connection of gRPC. Events of its calls, and bytes behind them, are left where its turn is
    over before them.
    """

    __slots__ = ("_service", "_taken", "_unfed", "_watched", "calls", "leaving", "spoken")

    def __init__(
        self, new: NewSocket, serving: GrpcServing, calls: Calls, service: CallService
    ) -> None:
        super().__init__(new, serving)
        self.calls = calls
        self._service = service
        self._watched = serving.watched
        self._unfed: memoryview | bytes = b""
        """Bytes that were read and not fed to its calls."""
        self._taken: Uptake | None = None
        """The pace at which the peer takes its answers, while some of them wait in streams."""
        self.leaving = ""
        """Why it is closed once everything is written; empty: it is not."""
        self.spoken = False
        """Whether anything has come of it. Before that nothing can be sent: it may want TLS."""

    @property
    def has_left(self) -> bool:
        return bool(self._unfed) or self.calls.happened

    @property
    def unserved_bytes(self) -> int:
        calls = self.calls
        return super().unserved_bytes + len(self._unfed) + calls.held_bytes + calls.heads_bytes

    @property
    def idle(self) -> bool:
        """Whether no call is open: a stream in both directions may be silent for hours."""
        return not self.calls.open

    # ── Bytes in ──

    def receive(self, data: memoryview) -> None:
        """Take bytes of the peer, and serve what they complete, while the turn lasts."""
        self._unfed = data
        self.serve()
        # The receive buffer is reused in the next turn.
        self._unfed = bytes(self._unfed)

    def serve(self) -> None:
        """Serve what has come, while the turn lasts."""
        self._serve_turn()
        if self.state.closed:
            return
        if self.calls.next_deadline_ms != inf:
            self._watched[self] = self.look_at
        self.touch()
        self.note_left(renewed=not self.inbound)
        self.settle()

    def _serve_turn(self) -> None:
        """Serve events, and feed bytes where there is none, until the turn is over."""
        ends = self.context.turn_ends
        while self.state.free:
            event = self.calls.next()
            if event is not None:
                self._serve(event)
            elif self._unfed:
                self._feed()
            else:
                break
            if monotonic() > ends:
                break

    def _feed(self) -> None:
        """Feed the next of what was read: its events are served before more is fed."""
        data, self._unfed = self._unfed[:TAKEN_BYTES], self._unfed[TAKEN_BYTES:]
        self.calls.receive(data, self.context.now * 1000)

    def _serve(self, event: CallEvent) -> None:
        service = self._service
        if isinstance(event, MessageReceived):
            self._tell(event.call, service.received, self, event.call, event.message)
            event.call.head.drop_fields()
        elif isinstance(event, CallOpened):
            self._tell(event.call, service.opened, self, event.call)
            event.call.head.drop_fields()
        elif isinstance(event, HalfClosed):
            self._tell(event.call, service.half_closed, event.call)
        elif isinstance(event, RoomAgain):
            self._tell(event.call, service.room_again, event.call)
        elif isinstance(event, CallOver):
            self._tell(event.call, service.over, event.call)
        else:
            self.leaving = event.reason or "the client has ended the connection"

    def _tell(self, call: Call, tell: Callable[..., None], *what: object) -> None:
        """Tell the service something of a call, which alone ends where that is a fault of ours."""
        with Border() as border:
            tell(*what)
        if (error := border.error) is not None:
            self.context.stats.requests_failed += 1
            name = call.method.name
            log.error("call.failed", method=name, address=self.address, exc_info=error)
            call.finish(StatusCode.INTERNAL, f"{type(error).__name__} in the broker")

    # ── Bytes out ──

    def touch(self) -> None:
        """Have what its calls have to say sent with the next flush."""
        if not (self.dirty or self.state.closed):
            self.dirty = True
            self.context.outbox.append(self)

    def write(self) -> None:
        """Send what its streams have, as far as the peer takes it."""
        data, uptake = b"", self._taken
        queued_before = 0 if uptake is None else self.calls.engine.queued_bytes
        while True:
            if self.unsent < WRITTEN_BYTES:
                data = self.calls.output(WRITTEN_BYTES)
                if data:
                    self.out.append(data)
                    self.unsent += len(data)
            super().write()
            if self.unsent or not data or self.state.closed:
                break
        if self.state.closed:
            return
        queued = self.calls.engine.queued_bytes
        if uptake is not None:
            uptake.sent += queued_before - queued
        if queued or uptake is not None:
            self._note_queued(queued)
            if self.closed:
                return
        if self.leaving and not (self.unsent or queued or self.calls.open):
            self.close(self.leaving)
        elif self.calls.happened:
            self.settle()
            # Not every write is in a round, behind which the loop would look by itself.
            self.watch()

    def _note_queued(self, queued: int) -> None:
        """Count what waits in streams as unsent, and have it watched that it becomes less."""
        if not queued:
            self._taken = None
        elif self._taken is None:
            self._taken = Uptake()
            self._fault(monotonic())  # from now on
        self._watched[self] = self.look_at
        outbound = self.context.shared.outbound
        outbound.note(self, self.unsent + queued, self.context.now)
        state, much = self.state, self.unsent + queued > outbound.high_water_bytes
        if much and state.stalled and not (state.paused or state.closed):
            self.on(Event.UNSENT_MUCH)
            self.watch()

    def drained(self) -> None:
        self.touch()

    # ── Time, and the end ──

    def hold(self) -> None:
        """Serve nothing more of it before the sweep of the next second."""
        if self.state.input is Input.READING:
            self.on(Event.POSTPONED)
            self.watch()
            self.context.shared.postponed_to_sweep.append(self._released)

    def _released(self, now: float) -> None:
        if not self.closed:
            self.on(Event.RESUMED)
            self.on(Event.ENDED)
            self.reading.resumed = now
            self.settle()
            self.watch()

    @property
    def look_at(self) -> float:
        """When it has to be looked at, in seconds of `monotonic`; infinity: it has not."""
        return 0.0 if self._taken is not None else self.calls.next_deadline_ms / 1000

    def look(self, now: float) -> None:
        """End the calls whose time is over, and the connection if its peer takes too little of its
        answers. `now` in seconds of `monotonic`.
        """
        calls = self.calls
        if calls.next_deadline_ms <= now * 1000:
            calls.expire(now * 1000)
            self.touch()
        if not calls.engine.queued_bytes:
            self._taken = None
        elif (fault := self._fault(now)) is not None:
            self.close(fault)

    def _fault(self, now: float) -> str | None:
        """Why the peer is to be closed, by what it has taken of the answers that wait in streams:
        not what is still here, in the output queue or with the kernel.
        """
        if self._taken is None:
            return None
        here, limits = self.unsent + unacknowledged_bytes(self.sock), self.context.shared.limits
        least_per_s = limits.least_per_s
        stall_s = max(limits.stall_s, WINDOWS_BYTES / (least_per_s or SLOWEST_PER_S))
        return self._taken.judge(now, here, stall_s, least_per_s)

    def leave(self, text: str) -> None:
        """Take no more calls, and close when those that are open have ended."""
        if not self.spoken:
            self.close(text)
            return
        self.calls.stop(text)
        self.leaving = text
        self.touch()

    def ended(self) -> None:
        self._watched.pop(self, None)
        self._unfed = b""
        calls = self.calls
        gone = [*calls.open.values(), *calls.unwritten.values()]
        for call in list(calls.open.values()):
            calls.end(call)
        calls.unwritten.clear()
        for call in gone:
            self._tell(call, self._service.over, call)


class GrpcServing:
    """Serves the connections of one listener with a service."""

    def __init__(
        self,
        service: CallService,
        *,
        body_bytes_max: int,
        methods: Mapping[bytes, Method] = METHODS,
        limits: Http2Limits | None = None,
    ) -> None:
        """`body_bytes_max`: of the longest body; `methods`: what can be called, by path."""
        self._service = service
        self._methods = methods
        self._limits = limits or Http2Limits()
        self._channels: dict[GrpcChannel, None] = {}
        self.limit_bodies(body_bytes_max)
        self._leaving = ""
        self._away = ""
        """Why nobody is served now; empty: everybody is."""
        self.watched: dict[GrpcChannel, float] = {}
        """Channels with a deadline, or with answers that wait in streams, and when each has to be
        looked at.
        """

    def limit_bodies(self, body_bytes_max: int) -> None:
        """Take calls with bodies of up to this size from now on."""
        self._message_bytes_max = body_bytes_max + MESSAGE_SPARE_BYTES
        for channel in self._channels:
            channel.calls.message_bytes_max = self._message_bytes_max

    def channel(self, new: NewSocket) -> GrpcChannel:
        keep_alive(new.sock)
        engine, limit = Engine(self._limits), self._message_bytes_max
        calls = Calls(engine, self._methods, message_bytes_max=limit)
        channel = GrpcChannel(new, self, calls, self._service)
        self._channels[channel] = None
        channel.on_close.append(self._closed)
        return channel

    def _closed(self, channel: GrpcChannel, reason: str) -> None:
        self._channels.pop(channel, None)

    def take(self, channel: GrpcChannel, data: memoryview, since: float, until: float) -> None:
        if self._away and not channel.leaving:
            # Before our settings: then its client takes the next of its addresses.
            channel.close(self._away)
            return
        channel.spoken = True
        if self._leaving and not channel.leaving:
            channel.leave(self._leaving)
        channel.receive(data)

    def go_on(self, channel: GrpcChannel) -> None:
        channel.serve()

    def piece(
        self, channel: GrpcChannel, data: memoryview, since: float, until: float
    ) -> Piece | None:
        return None

    def leave(self, text: str) -> None:
        """Take no more calls; clients are to go elsewhere, or to come back later."""
        self._leaving = text
        self._leave_all(text)

    def turn_away(self, text: str) -> None:
        """Serve nobody until `welcome`: clients go to another of their addresses, if they have any,
        and try this one again by themselves.
        """
        self._away = text
        self._leave_all(text)

    def welcome(self) -> None:
        """Serve everybody."""
        self._away = ""

    def _leave_all(self, text: str) -> None:
        for channel in list(self._channels):
            channel.leave(text)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """End what takes too long, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK_EVERY_S)
            await in_slices(self.look())

    def look(self) -> Iterator[None]:
        """Look once at all of which something may be over. Others may run at each yield."""
        now = monotonic()
        for channel in [channel for channel, at in self.watched.items() if at <= now]:
            channel.look(monotonic())
            if not channel.closed:
                channel.write()
                self.watched[channel] = channel.look_at
            if channel.closed or channel.look_at == inf:
                self.watched.pop(channel, None)
            yield


def keep_alive(sock: Any) -> None:
    """Have the kernel find out whether the peer is still there."""
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
