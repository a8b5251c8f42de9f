"""One selector: reads every ready socket, gives connections their turns, sends once for each.

A round is: ready sockets → bytes → `Serving` → answers queued → `after_round` (the store
dispatches, held pulls wake) → one write per connection. Nothing in it awaits: for the store it is
one step. Large answers are sent before the end of the round.

A round has a time limit, and in it each ready connection has a turn. A connection whose turn is
over keeps the rest of its input, in order, for its next one; sockets that a round did not reach are
the first of the next round, and the poller is not asked again before all of them had a turn. A
round also ends with each run of several connections that has its answers.

The state of a connection (`states`) decides what its turn is: read, serve what was left, or
nothing. The selector knows bytes, time and states, and no protocol: what it gives turns to are
channels (`channel`), and what their bytes mean is the business of the serving that made them.
Streams of one connection (HTTP/2) have states of their own, above it: a channel is STEPS or
POSTPONED only if nothing else of it can go on.

The waiting time of a request includes its time in the kernel (`arrivals`).
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import structlog
import trio

from aerobee.remoting.server.arrivals import Arrivals, SlowRound
from aerobee.remoting.server.channel import C, Channel, NewSocket
from aerobee.remoting.server.left_bytes import (
    LATE_S,
    LEFT_BYTES_MAX,
    LeftBytes,
    Piece,
    unread_bytes,
)
from aerobee.remoting.server.outbound import unacknowledged_bytes
from aerobee.remoting.server.poller import MAX_EVENTS, WRITE
from aerobee.remoting.server.shared import SelectorContext
from aerobee.remoting.server.states import Event, Input
from aerobee.remoting.server.tls_handshakes import FirstByte
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from aerobee.remoting.server.channel import Serving
    from aerobee.remoting.server.poller import Poller
    from aerobee.remoting.server.shared import SharedState


READING: Final = Input.READING
RECEIVE_BYTES = 256 * 1024
"""The most that one receive takes, where only one socket is ready."""
SHARES: Final = 16
"""With many ready sockets, each receives this fraction: about what a turn can serve."""
SCARCE_SHARES: Final = 64
"""The fraction under memory pressure: a turn serves all of it, so that nothing is left."""
ROUND_S: Final = 0.008
"""How long the rounds of all selectors together may occupy the loop; steps are not interrupted."""
LARGE_BYTES: Final = 16 * 1024
"""A larger answer is sent in its connection's turn, so that its time counts there. The small
answers of a round are as many as were served in its time, and are sent together at its end."""
TURNS: Final = 5
"""How many connections with much to serve get their turn in one round."""

SWEPT_TOGETHER: Final = 32
"""Connections that are checked, and perhaps closed, before others run: a close notifies many."""

SLOW_ROUND_S = 0.050
"""A round that took longer is reported as slow."""

log = structlog.stdlib.get_logger(__name__)


class Hooks(NamedTuple):
    """Callbacks of a selector: plain functions."""

    after_round: Callable[[], None] = lambda: None
    """Called at the end of every round before its answers are sent: it may add more."""
    slow_round: Callable[[SlowRound], None] = lambda _: None
    """Called before that, when the round was slow."""


class ReceiveBuffer:
    """Bytes for one read after the other; those of a run are kept until it is served.

    Invariant: `free` is one share long, and behind all that is kept.
    """

    __slots__ = ("_at", "_share", "free", "whole")

    def __init__(self) -> None:
        self.whole = memoryview(bytearray(RECEIVE_BYTES))
        self._share = RECEIVE_BYTES
        self._at = 0
        self.free = self.whole
        """Where the next read goes."""

    def divide(self, shares: int) -> None:
        """Let a read take this fraction of the buffer; nothing is kept."""
        self._share = RECEIVE_BYTES // shares
        self.free = self.whole[: self._share]
        self._at = 0

    def keep(self, received: int) -> bool:
        """Read behind what was just received; False when there is no room behind it. Hot."""
        self._at = at = self._at + received
        if at + self._share > RECEIVE_BYTES:
            return False
        self.free = self.whole[at : at + self._share]
        return True

    def begin(self) -> None:
        """Read over everything. Hot."""
        if self._at:
            self._at = 0
            self.free = self.whole[: self._share]


class Selector:
    """Owns its connections and their readiness; all of it runs in the one loop."""

    def __init__(
        self, shared: SharedState, poller: Poller, hooks: Hooks, *, round_s: float = ROUND_S
    ) -> None:
        """`round_s`: its part of the time that rounds may occupy the loop."""
        self.shared = shared
        self.poller = poller
        self.stats = shared.stats
        self.connections: dict[int, Channel] = {}
        now = monotonic()
        self.context = SelectorContext(shared, poller, now)
        self.waiting = self.context.waiting
        self._hooks = hooks
        self._limits = shared.limits
        self._arrivals = Arrivals(now)
        self._buffer = ReceiveBuffer()
        self.ready: deque[tuple[int, int]] = deque()
        """Sockets that the poller reported and no round has reached yet."""
        self._may_join = False  # in this round: several sockets are ready
        self._early = False  # the round ends before `_ends`; the next goes on until then
        self._ends = 0.0
        self.round_s = round_s
        self._turn_s = round_s

    async def run(self) -> NoReturn:
        """Serve rounds until cancelled; then close the remaining connections."""
        poller = self.poller
        try:
            while True:
                self.round(await poller.ready(wait=not self.waiting))
                while self.ready:
                    if not self._early:
                        await trio.lowlevel.checkpoint()
                    self.go_on()
        finally:
            with trio.CancelScope(shield=True):
                await in_slices(self._close_all())
            poller.close()

    def _close_all(self) -> Iterator[None]:
        """Close all connections, yielding in between: thousands take the kernel some 50 ms."""
        while self.connections:
            for connection in list(self.connections.values()):
                connection.close("server stopped")
                yield

    def adopt(
        self, sock: socket.socket, address: tuple[Any, ...], listener: str, serving: Serving[C]
    ) -> C:
        """Take over a socket from the boss; `serving` is that of its listener."""
        connection = serving.channel(NewSocket(sock, address, listener, self.context, self._forget))
        if self.shared.handshakes is not None:
            connection.sock = FirstByte(connection, sock, self.poller, self.shared.handshakes)
        self.poller.add(sock)
        self.connections[sock.fileno()] = connection
        self.shared.opened(connection, monotonic())
        self.stats.connections_opened += 1
        log.debug("connection.opened", address=connection.address, listener=listener)
        return connection

    def _forget(self, connection: Channel, reason: str) -> None:
        self.poller.remove(connection.sock)
        del self.connections[connection.sock.fileno()]
        self.shared.closed(connection)
        connection.budget.forget(connection, self.context.now)
        self.stats.connections_closed += 1
        log.debug("connection.closed", address=connection.address, reason=reason)

    def round(self, events: list[tuple[int, int]]) -> None:
        """The first round over the ready sockets; `go_on` runs the others."""
        shared, poller = self.shared, self.poller
        all_named = len(events) < MAX_EVENTS
        slow = shared.slow_round
        self._arrivals.begin(monotonic(), all_named=all_named, waited=poller.waited, slow=slow)
        ready = self.ready
        ready.extend(events)
        if self.waiting:
            for fd, _ in events:
                self.waiting.pop(fd, None)
            ready.extend((fd, 0) for fd in self.waiting)
            self.waiting.clear()
        busy = min(max(len(ready), 1), SHARES)
        self._buffer.divide(SCARCE_SHARES if shared.scarce else busy)
        self._turn_s = self.round_s / min(busy, TURNS)
        self._early = False
        self.go_on()

    def go_on(self) -> None:
        """One round over the sockets that have not had their turn."""
        self.stats.rounds += 1
        ready, connections, context = self.ready, self.connections, self.context
        began = now = monotonic()
        if not self._early:
            self._ends = began + self.round_s
        ends, self._early = self._ends, False
        last_turn = ends - self._turn_s
        self._may_join = len(ready) > 1
        while ready and now < ends and not self._early:
            context.now = now
            context.turn_ends = now + self._turn_s if now < last_turn else ends
            fd, bits = ready.popleft()
            connection = connections.get(fd)
            if connection is not None:
                if bits & WRITE:
                    connection.write()
                state = connection.state
                if state.input is READING:
                    if bits & ~WRITE:
                        self._receive(connection)
                        if connection.stage_pending:
                            connection.settle()
                elif state.turns or (
                    # A poller that names a starved one tells of its end: only a read shows it.
                    bits & ~WRITE and state.input is Input.STAGE and not state.paused
                ):
                    self._next_turn(connection, state.input)
                if connection.unsent > LARGE_BYTES and connection.dirty:
                    connection.write()
            now = monotonic()
        if context.run is not None:
            self._serve_run()
            now = monotonic()
        if now - began > SLOW_ROUND_S:
            # Before any answer is sent: see `arrivals`.
            self._hooks.slow_round(SlowRound(began, now))
        self._hooks.after_round()
        self.shared.flush()

    def _next_turn(self, connection: Channel, left: Input) -> None:
        """Serve what earlier turns left."""
        connection.on(Event.TURN)
        if left is Input.STAGE:
            self._receive(connection)
        elif left is Input.BYTES:
            self._read_all(connection)
        else:
            self._arrivals.unasked(connection.reading)
            connection.serving.go_on(connection)
        connection.settle()

    def _read_all(self, connection: Channel) -> None:
        """Read all that the socket has, and serve some of what is left.

        Bytes that were left there would keep the peer from sending, and wait where nobody knows
        since when.
        """
        left = connection.left_bytes
        assert left is not None
        self._serve_run()  # its requests are in the buffer
        self.context.now = monotonic()
        while self._read_piece(connection, left):
            pass
        self.context.share_bytes = len(self._buffer.free)
        connection.serving.go_on(connection)

    def _read_piece(self, connection: Channel, left: LeftBytes) -> bool:
        """Read once, as far as there is room for it; whether the socket may have more."""
        budget, reading, buffer = connection.budget, connection.reading, self._buffer.whole
        room = left.size < LEFT_BYTES_MAX and budget.total < budget.limit_bytes // 2
        received = 0
        if room and not (left.ended or connection.starved):
            try:
                received = connection.sock.recv_into(buffer)
                left.ended = not received
            except BlockingIOError:
                pass
            except OSError:
                left.ended = True
        if not received:
            self._arrivals.unasked(reading)
            return False
        self.stats.bytes_in += received
        connection.last_active = now = self.context.now
        unread = unread_bytes(connection.sock) if received == len(buffer) else 0
        since = self._arrivals.read(reading, now, received, unread)
        left.add(Piece(bytes(buffer[:received]), since, reading.until))
        return unread > 0

    def note_empty(self, until: float) -> None:
        """Find the sockets that are empty now: data that they have later came after `until`.

        The poller knows it for all that are watched for reading; asking the kernel about thousands
        of them one by one would block the loop again, for longer than the round did.
        """
        if not self.connections:
            # As behind the end of a stop, when the poller is closed.
            return
        holding, unwatched = self.poller.holding(), self.poller.unwatched
        for fd, connection in self.connections.items():
            if fd not in holding and (fd not in unwatched or not unread_bytes(connection.sock)):
                connection.reading.until = until

    def sweep(self) -> Iterator[None]:
        """Close idle and stalled connections. Others may run at each yield."""
        self.context.now = now = monotonic()
        limits = self._limits
        idle_before = now - limits.idle_s
        for number, connection in enumerate(list(self.connections.values()), 1):
            if number % SWEPT_TOGETHER == 0:
                yield
            if connection.closed:
                continue
            if connection.uptake is not None:
                unacknowledged = unacknowledged_bytes(connection.sock)
                fault = connection.uptake.judge(
                    now, unacknowledged, limits.stall_s, limits.least_per_s
                )
                if fault is not None:
                    connection.close(fault)
            elif connection.last_active < idle_before and connection.idle:
                connection.close("idle")

    def _receive(self, connection: Channel) -> None:
        """Read once, and have what came served. Hot."""
        context, buffer, receive = self.context, self._buffer, self._buffer.free
        try:
            received = connection.sock.recv_into(receive)
        except BlockingIOError:
            return
        except OSError as error:
            connection.close(f"receive failed: {error.strerror}")
            return
        if not received:
            connection.close("closed by peer")
            return
        self.stats.bytes_in += received
        connection.last_active = context.now = now = monotonic()
        reading = connection.reading
        unread = unread_bytes(connection.sock) if received == len(receive) else 0
        since = self._arrivals.read(reading, now, received, unread)
        data = receive[:received]
        if unread and now - since > LATE_S and connection.tls is None:
            piece = connection.serving.piece(connection, data, since, reading.until)
            if piece is not None:
                connection.left_bytes = LeftBytes()
                connection.left_bytes.add(piece)
                self._read_all(connection)
                connection.settle()
                return
        # Bytes that TLS has decrypted behind it must be served before the round ends, so such a
        # request joins no run.
        context.may_join = self._may_join and not connection.stage_pending
        connection.serving.take(connection, data, since, reading.until)
        context.may_join = False
        if context.run is None:
            buffer.begin()
        elif context.run.full or not buffer.keep(received):
            self._serve_run()
            self._early = connection.dirty  # All answers that wait for the disk share one sync.

    def _serve_run(self) -> None:
        """Serve the run of this round."""
        self._buffer.begin()
        self.context.serve_run()
