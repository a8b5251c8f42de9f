"""One selector: drains every ready socket, serves every complete frame, sends once per connection.

A round is: ready sockets → bytes → frames → answers queued → `after_round` (the store dispatches,
held pulls wake) → one write per connection. Nothing in it awaits: for the store it is one step.
Large answers are sent before the end of the round.

A round has a time limit, and in it each ready connection has a turn. A connection whose turn is
over keeps the rest of its frames and steps, in order, for its next one; sockets that a round did
not reach are the first of the next round, and the poller is not asked again before all of them had
a turn. A round also ends with each group of gathered requests that has its answers.

The waiting time of a request includes its time in the kernel (`arrivals`).
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
import trio

from aerobee.remoting.errors import FrameError
from aerobee.remoting.server.arrivals import Arrivals, SlowRound
from aerobee.remoting.server.connection import Connection
from aerobee.remoting.server.outbound import unacknowledged_bytes
from aerobee.remoting.server.poller import MAX_EVENTS, WRITE
from aerobee.remoting.server.pools import AGE_CHECK_S
from aerobee.remoting.server.read_ahead import JOINED_BYTES, Piece, ReadAhead
from aerobee.remoting.server.receive_buffer import ReceiveBuffer
from aerobee.remoting.server.receiving import (
    AHEAD_S,
    read_ahead,
    refuse_ahead,
    unread_bytes,
    waiting_bytes,
)
from aerobee.remoting.server.shared import SelectorContext
from aerobee.remoting.server.tls_handshakes import FirstByte
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from aerobee.remoting.server.connection import FrameHandler
    from aerobee.remoting.server.hooks import Hooks
    from aerobee.remoting.server.poller import Poller
    from aerobee.remoting.server.shared import Shared
    from aerobee.remoting.server.tls_socket import TlsSocket
    from aerobee.remoting.wire.frame import Frame

SHARES: Final = 16
"""With many ready sockets, each receives this fraction: about what a turn can serve."""
AHEAD_READS: Final = 2
"""So much more is served in a turn of what was read ahead: a turn costs some 130 us by itself."""
SCARCE_SHARES: Final = 64
"""The fraction under memory pressure: a turn serves all of it, so the backlog does not grow."""
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


class Selector:
    """Owns its connections and their readiness; all of it runs in the one loop."""

    def __init__(
        self, shared: Shared, poller: Poller, hooks: Hooks, *, round_s: float = ROUND_S
    ) -> None:
        """`round_s`: its part of the time that rounds may occupy the loop."""
        self.shared = shared
        self.poller = poller
        self.stats = shared.stats
        self.connections: dict[int, Connection] = {}
        now = monotonic()
        self.context = SelectorContext(shared, poller, now)
        self.waiting = self.context.waiting
        self._hooks = hooks
        self._limits = shared.limits
        self._arrivals = Arrivals(now)
        self._buffer = ReceiveBuffer()
        self.ready: deque[tuple[int, int]] = deque()
        """Sockets that the poller reported and no round has reached yet."""
        self._may_gather = False  # in this round: several sockets are ready
        self._early = False  # the round ends before `_ends`; the next goes on until then
        self._ends = 0.0
        self._round_s = round_s
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
        self, sock: socket.socket, address: tuple[Any, ...], listener: str, worker: FrameHandler
    ) -> None:
        """Take over a socket from the boss; `worker` serves its requests."""
        connection = Connection(
            sock, address, listener, context=self.context, worker=worker, forget=self._forget
        )
        if self.shared.handshakes is not None:
            connection.sock = FirstByte(connection, sock, self.poller, self.shared.handshakes)
        self.poller.add(sock)
        self.connections[sock.fileno()] = connection
        self.shared.opened(connection, monotonic())
        self.stats.connections_opened += 1
        log.debug("connection.opened", address=connection.address, listener=listener)
        self._hooks.connected(connection)

    def _forget(self, connection: Connection, reason: str) -> None:
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
        self._turn_s = self._round_s / min(busy, TURNS)
        self._early = False
        self.go_on()

    def go_on(self) -> None:
        """One round over the sockets that have not had their turn."""
        self.stats.rounds += 1
        ready, connections, context = self.ready, self.connections, self.context
        began = now = monotonic()
        if not self._early:
            self._ends = began + self._round_s
        ends, self._early = self._ends, False
        last_turn = ends - self._turn_s
        self._may_gather = len(ready) > 1
        while ready and now < ends and not self._early:
            context.now = now
            context.turn_ends = now + self._turn_s if now < last_turn else ends
            fd, bits = ready.popleft()
            connection = connections.get(fd)
            if connection is not None:
                if self._may_drain(connection, bits):
                    self._drain(connection)
                if connection.unsent > LARGE_BYTES and connection.dirty:
                    connection.write()
            now = monotonic()
        if context.gathered is not None or context.interrupted:
            self._serve_gathered()
            now = monotonic()
        if now - began > SLOW_ROUND_S:
            # Before any answer is sent: see `arrivals`.
            self._hooks.slow_round(SlowRound(began, now))
        self._hooks.after_round()
        self.shared.flush()

    def _may_drain(self, connection: Connection, bits: int) -> bool:
        """Send, then serve what was read before; whether new data may be read instead. Hot."""
        if bits & WRITE:
            connection.write()
        if connection.backlog or connection.unfinished is not None:
            if not (connection.paused or connection.postponed):
                self._serve_backlog(connection)
            if not connection.closed and not connection.waits:
                # Not only after an event: with very many ready sockets the poller names others.
                connection.watch()
        elif connection.tls is not None and not connection.closed:
            self._turn_of_tls(connection, connection.tls, bits)
        elif connection.ahead is not None:
            if not connection.paused:
                self._serve_ahead(connection, connection.ahead)
        else:
            return bool(bits & ~WRITE) and not connection.closed
        return False

    def _turn_of_tls(self, connection: Connection, tls: TlsSocket, bits: int) -> None:
        """Read, where the socket has data or its stage has: no poller tells of the latter."""
        pending = tls.pending
        if bits & ~WRITE or (pending and not (connection.paused or connection.starved)):
            self._drain(connection)
        if (pending or tls.pending) and not connection.closed:
            if connection.waits:
                self._wait(connection)
            else:
                connection.watch()

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
            elif connection.last_active < idle_before and not connection.held:
                connection.close("idle")

    def _drain(self, connection: Connection) -> None:
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
        if now - since > AGE_CHECK_S and connection.decoder.pending_bytes <= JOINED_BYTES:
            whole = b"".join((connection.decoder.give_back(), data))
            piece = Piece(whole, since, reading.until)
            if unread and now - since > AHEAD_S and connection.tls is None:
                connection.ahead = ahead = ReadAhead()
                ahead.add(piece)
                self._serve_ahead(connection, ahead)
                return
            late = connection.worker.refuse_late(connection, piece)
            since, data = piece.came(late), memoryview(whole)[late:]
        context.may_gather = self._may_gather
        self._take(connection, data, since, reading.until)
        context.may_gather = False
        if context.gathered is None:
            buffer.begin()
        elif context.gathered.full or not buffer.keep(received):
            self._serve_gathered()
            self._early = connection.dirty  # All answers that wait for the disk share one sync.

    def _serve_gathered(self) -> None:
        """Serve what was gathered, and arrange for further turns of what is unfinished then."""
        self._buffer.begin()
        for connection in self.context.end_gathering():
            self._wait(connection)
            self._note(connection, renewed=True)

    def _take(self, connection: Connection, data: memoryview, since: float, until: float) -> int:
        """Serve the frames that this data completes, which came from `since` to `until`. Of data
        that was read ahead, returns how many bytes at its end are to be served later.
        """
        decoder, back = connection.decoder, 0
        try:
            frames = decoder.feed(data)
            step = (until - since) / (len(frames) or 1)
            served = connection.worker.serve(connection, frames, since, step)
            self._keep(connection, frames, served, since, step)
            if connection.ahead is not None and frames:
                # A frame that begins in this piece is not begun before it is whole.
                back = len(decoder.give_back())
                back += sum(8 + len(header) + len(body) for _, header, body in frames[served:])
        except FrameError as error:
            connection.ahead = None
            self._serve_good(connection, error, since)
            frames = []
        if connection.ahead is None:
            self._note(connection, renewed=bool(frames))
        return back

    def _note(self, connection: Connection, *, renewed: bool) -> None:
        """Tell the budget what waits; `renewed`: none of it did before."""
        if connection.closed:
            return
        pending = connection.decoder.pending_bytes
        if connection.waits:
            pending += waiting_bytes(connection)
        if pending != connection.inbound or (pending and renewed):
            connection.budget.note(connection, pending, self.context.now, renewed=renewed)

    def _serve_ahead(self, connection: Connection, ahead: ReadAhead) -> None:
        """Read what the socket has, refuse what has waited too long, and serve two reads' worth."""
        self._serve_gathered()  # what was gathered is in the buffer
        self.context.now = monotonic()
        read_ahead(connection, ahead, self._buffer.whole, self._arrivals)
        piece = refuse_ahead(connection, ahead)
        if connection.closed:
            return
        if piece is not None and not connection.paused:
            to = min(len(piece.data), piece.at + AHEAD_READS * len(self._buffer.free))
            data = memoryview(piece.data)[piece.at : to]
            back = self._take(connection, data, piece.came(piece.at), piece.came(to))
            ahead.done(piece, to - back)
        if connection.ahead is None or connection.closed:
            return
        if ahead.size:
            self._wait(connection)
        else:
            connection.ahead = None
            connection.watch()
        self._note(connection, renewed=True)

    def _keep(
        self,
        connection: Connection,
        frames: Sequence[Frame],
        served: int,
        since: float,
        step: float,
    ) -> None:
        """Keep the frames that were not served, except those that were read ahead."""
        if connection.closed or connection.ahead is not None:
            return
        if served < len(frames) or connection.paused or connection.unfinished is not None:
            # The receive buffer is reused in the next turn, so these are copied.
            connection.backlog.extend(
                (e, bytes(h), bytes(b), since + step * n)
                for n, (e, h, b) in enumerate(frames[served:], served)
            )
            self._wait(connection)

    def _serve_good(self, connection: Connection, error: FrameError, arrived: float) -> None:
        """Serve the complete frames before the bad bytes, then close."""
        frames, error.frames = error.frames, []
        self.context.may_gather = False  # a lone one would be dropped with its connection
        try:
            served = connection.worker.serve(connection, frames, arrived, 0.0)
            self._keep(connection, frames, served, arrived, 0.0)
        except FrameError as earlier:
            error = earlier
        if connection.waits:
            connection.bad = error
        elif not connection.closed:
            self._reject(connection, error)

    def _serve_backlog(self, connection: Connection) -> None:
        """Serve frames of the backlog, as far as the turn allows."""
        backlog, worker = connection.backlog, connection.worker
        reading, context = connection.reading, self.context
        self._arrivals.unasked(reading)
        error = connection.bad
        try:
            if connection.unfinished is not None:
                worker.go_on(connection)
            while backlog and connection.unfinished is None and monotonic() < context.turn_ends:
                encoding, header, body, arrived = backlog.popleft()
                arrived = max(arrived, reading.resumed)
                worker.serve(connection, ((encoding, header, body),), arrived, 0.0)
                if connection.paused:
                    break
        except FrameError as earlier:
            error = earlier
            backlog.clear()
        if connection.waits:
            self._wait(connection)
        elif error is not None and not connection.closed:
            self._reject(connection, error)
        if not backlog and not connection.closed:
            pending = connection.decoder.pending_bytes + waiting_bytes(connection)
            if pending != connection.inbound:
                connection.budget.note(connection, pending, monotonic(), renewed=True)

    def _wait(self, connection: Connection) -> None:
        """Continue when the peer has read its data, when the postponed request is resumed, or else
        in the next round.
        """
        if connection.paused or connection.postponed:
            connection.watch()
        else:
            self.waiting[connection.sock.fileno()] = None

    def _reject(self, connection: Connection, error: FrameError) -> None:
        """Close over bad bytes; the good frames before them are answered first."""
        connection.write()
        self.stats.frames_rejected += 1
        left_out = self.shared.rejections.admit(self.context.now)
        if left_out is not None:
            log.info(
                "frame.rejected",
                address=connection.address,
                reason=str(error),
                left_out=left_out,
            )
        connection.close("frame rejected")
