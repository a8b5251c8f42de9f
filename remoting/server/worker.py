"""The remoting protocol: bytes → frames → commands → routes, in the turns of a connection.

A turn leaves the rest in the connection, and its next turns serve that in this order:

| left in | is | served by |
|---|---|---|
| `current` | the request in progress | `Handlers.go_on` |
| `left` | whole frames behind it | `_serve_left` |
| `left_bytes` | bytes that are not split into frames | `_serve_left_bytes` |
| `decoder` | the beginning of a frame | `take`, with the bytes that complete it |
| `bad` | the reason to refuse the bytes behind these | `_reject`, which closes |
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.server.addresses import source_of
from aerobee.remoting.server.connection import Connection
from aerobee.remoting.server.guard import passes
from aerobee.remoting.server.handlers import Handlers
from aerobee.remoting.server.left_bytes import JOINED_BYTES, Piece
from aerobee.remoting.server.pools import AGE_CHECK_S, Pool, too_fast
from aerobee.remoting.server.refusals import refuse_late
from aerobee.remoting.server.run import RUN_BYTES, RUN_MAX, Run
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import SENDS, Encoding, ResponseCode
from aerobee.remoting.wire.command import RESPONSE, decode, typed_decoder
from aerobee.remoting.wire.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import trio

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.channel import NewSocket
    from aerobee.remoting.server.guard import Gate, LetsPass
    from aerobee.remoting.server.left_bytes import LeftBytes
    from aerobee.remoting.server.route_table import PooledRoute
    from aerobee.remoting.server.routes import Requests
    from aerobee.remoting.server.shared import SharedState
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.frame import Frame


log = structlog.stdlib.get_logger(__name__)

NOT_SUPPORTED = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

GO_AWAY_ABOVE = 475
"""Clients of a later version than this, V5_3_1, understand GO_AWAY."""
LEAVING_REMARK = "the broker is stopping, go to another one"
JSON: Final = int(Encoding.JSON)
LEFT_READS: Final = 2
"""So much more is served in a turn of bytes that are left: a turn costs some 130 us by itself."""


class Worker:
    """Serves the connections of the listeners that share one route table."""

    def __init__(
        self,
        routes: dict[int, PooledRoute],
        refusals: Callable[[Exception], Answer | None],
        nursery: trio.Nursery,
        shared: SharedState,
        gate: Gate | None = None,
        lets_pass: LetsPass | None = None,
        connected: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """`refusals` maps an exception to an answer, or to None. Without `lets_pass`, requests that
        pass a gate are served one by one. `connected` is called for each new connection.
        """
        self._routes = routes
        self._handlers = Handlers(refusals, nursery, shared)
        self._call = self._handlers.call
        self.readmit = self._handlers.readmit
        self.failed = self._handlers.failed
        self._shared = shared
        self._stats = shared.stats
        self._rates = shared.addresses.rates
        self._gate = gate
        self._lets_pass = lets_pass
        self._connected = connected
        self._runs = gate is None or lets_pass is not None
        """Whether the requests behind one in its read can be checked together with it."""
        self._left: dict[int, PooledRoute] = {}
        """The routes of requests that are not served any more."""

    def channel(self, new: NewSocket) -> Connection:
        limits = self._shared.limits
        decoder = FrameDecoder(limits.max_frame_bytes, limits.max_header_bytes)
        connection = Connection(new, self, decoder)
        self._connected(connection)
        return connection

    def leave(self, pools: Collection[Pool]) -> None:
        """Serve no more requests of these pools: their clients are to go to another server."""
        routes = self._routes.items()
        self._left = {code: route for code, route in routes if route.pool in pools}
        self._routes = {code: route for code, route in routes if code not in self._left}

    # ── Turns ──

    def take(self, connection: Connection, data: memoryview, since: float, until: float) -> None:
        if connection.context.now - since > AGE_CHECK_S:
            piece = self.piece(connection, data, since, until)
            if piece is not None:
                piece.at = self.refuse_late(connection, piece)
                since, data = piece.came(piece.at), memoryview(piece.data)[piece.at :]
        try:
            frames: Sequence[Frame] = connection.decoder.feed(data)
        except FrameError as error:
            frames = connection.spoil(error)
        step = (until - since) / (len(frames) or 1)
        served = self.serve(connection, frames, since, step)
        if served < len(frames) or not connection.state.free:
            self._keep(connection, frames, served, since, step)
        if connection.bad is not None:
            self._reject(connection, connection.bad)
        connection.note_left(renewed=bool(frames))

    def piece(
        self, connection: Connection, data: memoryview, since: float, until: float
    ) -> Piece | None:
        decoder = connection.decoder
        if decoder.pending_bytes > JOINED_BYTES:
            return None
        return Piece(b"".join((decoder.give_back(), data)), since, until)

    def go_on(self, connection: Connection) -> None:
        left = connection.left_bytes
        if connection.current is None and left is not None:
            self._serve_left_bytes(connection, left)
            return
        if connection.current is not None:
            self._handlers.go_on(connection)
        self._serve_left(connection)

    def _serve_left(self, connection: Connection) -> None:
        """Serve frames that were left."""
        left, reading, context = connection.left, connection.reading, connection.context
        while left and connection.state.free and monotonic() < context.turn_ends:
            encoding, header, body, arrived = left.popleft()
            arrived = max(arrived, reading.resumed)
            self.serve(connection, ((encoding, header, body),), arrived, 0.0)
        if left:
            return
        if connection.bad is not None:
            self._reject(connection, connection.bad)
        if connection.unserved_bytes != connection.inbound:
            connection.note_left(renewed=True)

    def _serve_left_bytes(self, connection: Connection, left: LeftBytes) -> None:
        """Refuse what has waited too long of the bytes that are left, and serve some."""
        piece = self._refuse_left(connection, left)
        if piece is not None and connection.state.free:
            to = min(len(piece.data), piece.at + LEFT_READS * connection.context.share_bytes)
            back = self._serve_piece(connection, piece, to)
            left.done(piece, to - back)
        if connection.left_bytes is not None and not left.size:
            connection.left_bytes = None
        connection.note_left(renewed=True)

    def _refuse_left(self, connection: Connection, left: LeftBytes) -> Piece | None:
        """Refuse what has waited too long; the first piece with something to serve.

        None: there is nothing, or the turn is over.
        """
        resumed, context = connection.reading.resumed, connection.context
        high_water = context.shared.limits.high_water_bytes
        while (piece := left.first(resumed)) is not None and not connection.decoder.pending_bytes:
            late = self.refuse_late(connection, piece)
            if late == piece.at:
                break
            left.done(piece, late)
            if connection.unsent > high_water:
                connection.write()
                if connection.paused or connection.closed:
                    break
            if monotonic() > context.turn_ends:
                return None
        return piece

    def _serve_piece(self, connection: Connection, piece: Piece, to: int) -> int:
        """Serve a piece up to this place; returns how many bytes before it are left for later."""
        decoder = connection.decoder
        since, until = piece.came(piece.at), piece.came(to)
        try:
            frames: Sequence[Frame] = decoder.feed(memoryview(piece.data)[piece.at : to])
        except FrameError as error:
            frames = connection.spoil(error)
        step = (until - since) / (len(frames) or 1)
        served = self.serve(connection, frames, since, step)
        if connection.bad is not None:
            self._keep(connection, frames, served, since, step)
            self._reject(connection, connection.bad)
            return 0
        if not frames:
            return 0
        # A frame that begins in this piece is not begun before it is whole.
        back = len(decoder.give_back())
        return back + sum(8 + len(header) + len(body) for _, header, body in frames[served:])

    def _keep(
        self,
        connection: Connection,
        frames: Sequence[Frame],
        served: int,
        since: float,
        step: float,
    ) -> None:
        """Keep the frames that were not served."""
        if not connection.closed:
            # The receive buffer is reused in the next turn, so these are copied.
            connection.left.extend(
                (encoding, bytes(header), bytes(body), since + step * number)
                for number, (encoding, header, body) in enumerate(frames[served:], served)
            )
            connection.settle()

    def _reject(self, connection: Connection, reason: str) -> None:
        """Close over bad bytes, once the good frames before them are answered."""
        if connection.left or connection.current is not None or connection.closed:
            return
        connection.write()
        self._stats.frames_rejected += 1
        left_out = self._shared.rejections.admit(connection.context.now)
        if left_out is not None:
            log.info(
                "frame.rejected",
                address=connection.address,
                reason=reason,
                left_out=left_out,
            )
        connection.close("frame rejected")

    # ── Requests ──

    def serve(
        self, connection: Connection, frames: Sequence[Frame], arrived: float, step: float
    ) -> int:
        """Serve frames in order, as far as the turn allows; returns how many that were.

        The first one arrived then, on the loop's clock, and each other `step` seconds after the one
        before. A lone one may join a run, to be served later in the round. A header that does not
        decode spoils the connection: what is behind it counts as served.
        """
        context, number, count = connection.context, 0, len(frames)
        high_water = context.shared.limits.high_water_bytes
        while number < count:
            try:
                number += self._serve(connection, frames, number, arrived + step * number, step)
            except FrameError as error:
                connection.spoil(error)
                return count
            if connection.unsent > high_water:
                connection.write()
            if not connection.state.free or (number < count and monotonic() > context.turn_ends):
                break
        return number

    def _serve(
        self,
        connection: Connection,
        frames: Sequence[Frame],
        at: int,
        arrived: float,
        step: float,
    ) -> int:
        """Serve one frame, perhaps with some behind it, or have it join a run; returns how many.

        Raises: FrameError when its header does not decode.
        """
        encoding, header, body = frames[at]
        command = decode(encoding, header, body)
        command.arrived = arrived
        context = connection.context
        connection.encoding = encoding
        if command.flag & RESPONSE:
            connection.answered(command)
            return 1
        self._stats.requests += 1
        if not connection.requests:
            connection.announce(command)
            context.shared.heard(connection)
        connection.requests += 1
        route = self._admitted(connection, command)
        if route is None:
            return 1
        pool = route.pool
        pool.served += 1
        rest: Requests | None = None
        plain = not command.flag and encoding == JSON and not connection.announces
        if route.run is not None and plain:
            if (
                context.may_join
                and len(frames) == 1
                and self._join_run(command, connection, route, len(header))
            ):
                return 1
            rest = ()
            if at + 1 < len(frames) and self._runs and not self._rates.limited:
                behind = frames[at + 1 : at + RUN_MAX]
                rest = following(command, connection, route, behind, step, self._lets_pass)
        if context.run is not None:
            context.serve_run()
        count = self._call(connection, command, arrived, route, rest=rest)
        if count > 1:
            self._stats.requests += count - 1
            connection.requests += count - 1
            pool.served += count - 1
        return count

    def _admitted(
        self, connection: Caller, command: Command, *, own: bool = False
    ) -> PooledRoute | None:
        """The route of a request that is served now. None: it was refused, or waits for the gate;
        which does not look at our `own`, nor do they count for the rate of an address.
        """
        rates, now, arrived = self._rates, connection.context.now, command.arrived
        if rates.limited and not own:
            size = len(command.body) if command.code in SENDS else 0
            excess = rates.take(source_of(connection.host), size, now * 1000)
            if excess is not None:
                self._stats.requests_too_fast += 1
                connection.answer(command, too_fast(excess))
                return None
        route = self._routes.get(command.code)
        if route is None:
            connection.answer(command, self._unserved(command))
            return None
        pool = route.pool
        age = now - arrived
        if pool.depth >= pool.capacity or (
            age > AGE_CHECK_S
            and (age > pool.max_wait_s or (arrived < pool.stall.end and pool.caught(arrived)))
        ):
            self._handlers.refuse(connection, command, pool, arrived, age)
            return None
        if self._gate is None or own or passes(self._gate, command, connection, route):
            return route
        return None

    def request(self, caller: Caller, command: Command, *, own: bool = False) -> None:
        """Serve a request that came in another form than a frame. `caller` stands for its
        connection, and gets the answer. `own`: it is ours, and needs no account.
        """
        self._stats.requests += 1
        route = self._admitted(caller, command, own=own)
        if route is None:
            return
        route.pool.served += 1
        context = caller.context
        if route.run is not None and not own and self._join_run(command, caller, route, 0):
            if context.run is not None and context.run.full:
                context.serve_run()
            return
        context.serve_run()
        self._call(caller, command, command.arrived, route)

    def continued(self, caller: Caller) -> None:
        """Go on with the request of a caller for a step."""
        self._handlers.go_on(caller)

    def _join_run(
        self, command: Command, connection: Caller, route: PooledRoute, header_bytes: int
    ) -> bool:
        """Have a request served together with those before it, if it is like them. Hot."""
        context, size = connection.context, header_bytes + len(command.body)
        joined = context.run
        if size > RUN_BYTES or (joined is not None and joined.route is not route):
            return False
        if joined is None:
            context.run = joined = Run(route, self._call)
        joined.add(command, connection, size)
        return True

    def _unserved(self, command: Command) -> Answer:
        """The answer to a request without a route. Source: remoting (MQVersion)."""
        if command.code not in self._left:
            return Answer(NOT_SUPPORTED, remark=f" request type {command.code} not supported")
        if command.version > GO_AWAY_ABOVE:
            return Answer(ResponseCode.GO_AWAY, remark=LEAVING_REMARK)
        return Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark=LEAVING_REMARK)

    def refuse_late(self, connection: Connection, piece: Piece) -> int:
        """Refuse the first requests of a piece, as far as they have waited too long; returns the
        place behind them.
        """
        if not connection.requests or self._rates.limited:
            return piece.at
        return refuse_late(connection, piece, self._routes)


def following(
    command: Command,
    connection: Connection,
    route: PooledRoute,
    frames: Sequence[Frame],
    step: float,
    lets_pass: LetsPass | None,
) -> Requests:
    """The requests behind a request that are like it, each decoded when it is asked for; ends
    before one that is of another kind, waited too long, does not decode, or that the gate has to
    look at more closely. Hot.
    """
    code, header_type, arrived = command.code, route.header, command.arrived
    pool, now = route.pool, connection.context.now
    served_from = max(now - pool.max_wait_s, min(pool.stall.end, now - AGE_CHECK_S))
    typed = typed_decoder(header_type)
    try:
        for encoding, head, body in frames:
            if encoding != JSON:
                return
            if lets_pass is None:
                command, header = typed(head, body)
            else:
                command = decode(encoding, head, body)
            command.arrived = arrived = arrived + step
            if command.code != code or command.flag or arrived < served_from:
                return
            if lets_pass is not None:
                if not lets_pass(command, connection):
                    return
                header = command.header(header_type)
            yield command, header, connection
    except (FrameError, HeaderError):
        # The worker meets it again, and refuses it.
        return
