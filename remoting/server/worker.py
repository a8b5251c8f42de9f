"""Frame → command → route → typed header → handler → answer; maps errors to answers."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from aerobee.remoting.errors import BodyError, HeaderError, Postponed
from aerobee.remoting.server.addresses import source_of
from aerobee.remoting.server.gathered import GATHERED_BYTES, Gathered
from aerobee.remoting.server.long_requests import SHORT_BYTES
from aerobee.remoting.server.pools import (
    AGE_CHECK_S,
    DEFERRED_MAX,
    KEPT_BYTES_MAX,
    OVERLOAD_REMARK,
    REJECT_REMARK,
    Pool,
    Waiting,
    stall_remark,
    timeout_remark,
    too_fast,
)
from aerobee.remoting.server.refusals import refuse_late
from aerobee.remoting.server.requests import JSON, RUN_MAX, following, passes
from aerobee.remoting.server.route_table import Unfinished
from aerobee.remoting.server.routes import PARKED, Begun, is_steps
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import RESPONSE, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import trio

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.server.read_ahead import Piece
    from aerobee.remoting.server.requests import Gate, LetsPass, Requests
    from aerobee.remoting.server.route_table import Resolved
    from aerobee.remoting.server.routes import Later, Plain, Steps
    from aerobee.remoting.server.shared import Shared
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.frame import Frame

log = structlog.stdlib.get_logger(__name__)

SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)
SYSTEM_BUSY = int(ResponseCode.SYSTEM_BUSY)
NOT_SUPPORTED = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

GO_AWAY_ABOVE = 475
"""Clients of a later version than this, V5_3_1, understand GO_AWAY."""
LEAVING_REMARK = "the broker is stopping, go to another one"


class Worker:
    """Serves the frames of the listeners that share one route table."""

    def __init__(
        self,
        routes: dict[int, Resolved],
        refusals: Callable[[Exception], Answer | None],
        nursery: trio.Nursery,
        shared: Shared,
        gate: Gate | None = None,
        lets_pass: LetsPass | None = None,
    ) -> None:
        """Without `lets_pass`, requests that pass a gate are served one by one."""
        self._routes = routes
        self._refusals = refusals
        self._nursery = nursery
        self._stats = shared.stats
        self._rates = shared.addresses.requests
        self._long_requests = shared.long_requests
        self._flush = shared.flush
        self._gate = gate
        self._lets_pass = lets_pass
        self._runs = gate is None or lets_pass is not None
        """Whether the requests behind one in its read can be checked together with it."""
        self._left: dict[int, Resolved] = {}
        """The routes of requests that are not served any more."""

    def serve(
        self, connection: Connection, frames: Sequence[Frame], arrived: float, step: float
    ) -> int:
        """Serve frames in order, as far as the turn allows; returns how many that were.

        The first one arrived then, on the loop's clock, and each other `step` seconds after the one
        before. A lone one may be gathered, to be served later in the round. Raises: FrameError when
        a header does not decode: the selector closes the connection.
        """
        context, number, count = connection.context, 0, len(frames)
        high_water = context.shared.limits.high_water_bytes
        while number < count:
            number += self._serve(connection, frames, number, arrived + step * number, step)
            if connection.unsent > high_water:
                connection.write()
            if (
                connection.closed
                or connection.paused
                or connection.unfinished is not None
                or (number < count and monotonic() > context.turn_ends)
            ):
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
        """Serve one frame, perhaps with some that follow, or gather it; returns how many."""
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
            context.shared.asked(connection)
        rates = self._rates
        if rates.per_s and not rates.take(source_of(connection.host), context.now * 1000):
            self._stats.requests_too_fast += 1
            connection.answer(command, too_fast("maxRequestRateOfAddress", rates.per_s))
            return 1
        route = self._routes.get(command.code)
        if route is None:
            connection.answer(command, self._unserved(command))
            return 1
        pool = route.pool
        age = context.now - arrived
        if pool.depth >= pool.capacity or (
            age > AGE_CHECK_S
            and (age > pool.max_wait_s or (arrived < pool.stall.end and pool.caught(arrived)))
        ):
            self._refuse(connection, command, pool, arrived, age)
            return 1
        if self._gate is not None and not passes(self._gate, command, connection, route):
            return 1
        pool.served += 1
        run = None
        plain = not command.flag and encoding == JSON and not connection.announces
        if route.run is not None and plain:
            if len(frames) == 1:
                if context.may_gather and self._gather(command, connection, route, len(header)):
                    return 1
            elif at + 1 < len(frames) and self._runs and not rates.per_s:
                rest = frames[at + 1 : at + RUN_MAX]
                run = following(command, connection, route, rest, step, self._lets_pass)
        if context.gathered is not None:
            context.serve_gathered()
        count = self._run(connection, command, arrived, route, run=run)
        if count > 1:
            self._stats.requests += count - 1
            pool.served += count - 1
        return count

    def _gather(
        self, command: Command, connection: Connection, route: Resolved, header_bytes: int
    ) -> bool:
        """Have a request served together with those before it, if it is like them. Hot."""
        context, size = connection.context, header_bytes + len(command.body)
        gathered = context.gathered
        if size > GATHERED_BYTES or (gathered is not None and gathered.route is not route):
            return False
        if gathered is None:
            context.gathered = gathered = Gathered(route, self._serve_gathered)
        gathered.add(command, connection, size)
        return True

    def _serve_gathered(self, gathered: Gathered) -> None:
        """Serve requests that were gathered, in order."""
        requests, at = gathered.still_open(), 0
        while at < len(requests):
            command, connection = requests[at]
            run = gathered.run(at)
            at += self._run(connection, command, command.arrived, gathered.route, run=run)
            if connection.unfinished is not None:
                connection.context.interrupted.append(connection)

    def leave(self, pools: Collection[Pool]) -> None:
        """Serve no more requests of these pools: their clients are to go to another server."""
        self._left = {code: one for code, one in self._routes.items() if one.pool in pools}
        self._routes = {c: one for c, one in self._routes.items() if c not in self._left}

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
        if not connection.requests or self._rates.per_s:
            return piece.at
        return refuse_late(connection, piece, self._routes)

    def go_on(self, connection: Connection) -> None:
        """Run the steps of the unfinished request of a connection until its turn is over."""
        assert connection.unfinished is not None
        arrived, command, route, steps = connection.unfinished
        if steps is None:
            connection.end_steps()
            self._run(connection, command, arrived, route)
        elif self._long_requests.take(connection, len(command.body)):
            self._run(connection, command, arrived, route, steps)

    def _run(
        self,
        connection: Connection,
        command: Command,
        arrived: float,
        route: Resolved,
        steps: Steps | None = None,
        run: Requests | None = None,
    ) -> int:
        """Call the handler, or continue its steps; then answer, or arrange for the answer.

        `run`: this request and those that may be served with it; returns how many were. Hot: every
        request comes this way.
        """
        outcome: Plain = None
        try:
            if steps is None:
                if run is not None:
                    assert route.run is not None
                    if count := route.run(run):
                        return count
                    run = None
                begun = route.handler(command.header(route.header), command, connection)
                if isinstance(begun, Answer):
                    connection.answer(command, begun)
                    return 1
                if is_steps(begun):
                    # The receive buffer is reused while the steps continue.
                    command.detached()
                    steps = begun
                    connection.unfinished = Unfinished(arrived, command, route, steps)
                    size = len(command.body)
                    if size > SHORT_BYTES and not self._long_requests.take(connection, size):
                        return 1
                else:
                    outcome = begun
            if steps is not None:
                while True:
                    next(steps)
                    if connection.postponed:
                        self._long_requests.leave(connection)
                        return 1
                    if monotonic() > connection.context.turn_ends or connection.closed:
                        return 1
        except StopIteration as end:
            connection.end_steps()
            outcome = end.value
        except Postponed:
            connection.end_steps()
            connection.postpone(Unfinished(arrived, command.detached(), route, None))
            return 1
        except Exception as error:
            if run is not None:
                # Alone, the request that it is about gets the answer, and no other.
                if self._expected(error) is None:
                    log.error("run.failed", code=command.code, exc_info=error)
                return self._run(connection, command, arrived, route)
            connection.end_steps()
            outcome = self.failed(command, connection, error)
        self._settle(outcome, command, connection, route.pool, arrived)
        return 1

    def _settle(
        self, outcome: Plain, command: Command, connection: Connection, pool: Pool, arrived: float
    ) -> None:
        """Answer, or arrange for the answer."""
        if isinstance(outcome, Answer):
            connection.answer(command, outcome)
        elif outcome is PARKED:
            # The awaited result may have been there already: then the request is answered.
            if not command.answered:
                pool.depth += 1
                command.pool = pool
                command.release()
        elif isinstance(outcome, Begun):
            self._admit(Waiting(arrived, connection, command, outcome.work, begun=True), pool)
        elif outcome is not None:
            self._admit(Waiting(arrived, connection, command, outcome), pool)
        else:
            connection.unanswered(command)
            command.release()

    def _refuse(
        self, connection: Peer, command: Command, pool: Pool, arrived: float, age_s: float
    ) -> None:
        self._stats.requests_refused += 1
        if pool.full:
            pool.refused += 1
            remark = OVERLOAD_REMARK
        elif pool.stall.known <= arrived < pool.stall.end:
            pool.refused += 1
            remark = REJECT_REMARK
        else:
            pool.timed_out += 1
            stalled = arrived < pool.stall.end
            remark = (stall_remark if stalled else timeout_remark)(round(age_s * 1000), pool.queued)
        connection.answer(command, Answer(SYSTEM_BUSY, remark=remark))

    def _admit(self, waiting: Waiting, pool: Pool) -> None:
        # The body is a view of the receive buffer, which the next round overwrites.
        body = b"" if waiting.begun else bytes(waiting.command.body)
        if body and pool.kept_bytes and pool.kept_bytes + len(body) > KEPT_BYTES_MAX:
            self._overloaded(waiting, pool)
            return
        waiting.command.release()
        waiting.command.body = body
        pool.kept_bytes += len(body)
        self._enter(waiting, pool)

    def _enter(self, waiting: Waiting, pool: Pool) -> None:
        pool.depth += 1
        waiting.command.pool = pool
        if pool.enter(waiting):
            self._nursery.start_soon(self._work, waiting, pool)

    def _overloaded(self, waiting: Waiting, pool: Pool) -> None:
        waiting.work.close()  # type: ignore[attr-defined]  # handlers are coroutines
        self._stats.requests_refused += 1
        pool.refused += 1
        waiting.connection.answer(waiting.command, Answer(SYSTEM_BUSY, remark=OVERLOAD_REMARK))

    async def _work(self, waiting: Waiting | None, pool: Pool) -> None:
        """Answer one request that waits, then others whose turn it is."""
        try:
            while waiting is not None:
                peer = waiting.connection
                if peer.backed_up and not (waiting.begun or waiting.command.body):
                    self._defer(waiting, pool)
                else:
                    peer.working += 1
                    await self._answer(waiting, pool)
                    peer.working -= 1
                self._flush()
                if peer.deferred and not peer.backed_up:
                    self.readmit(peer)
                waiting = pool.next(peer)
        finally:
            pool.running -= 1

    async def _answer(self, waiting: Waiting, pool: Pool) -> None:
        """Answer a request that has waited, or refuse it if that took too long."""
        command, peer = waiting.command, waiting.connection
        waited_s = monotonic() - waiting.arrived
        if waited_s > pool.max_wait_s and not waiting.begun:
            waiting.work.close()  # type: ignore[attr-defined]  # handlers are coroutines
            self._refuse(peer, command, pool, waiting.arrived, waited_s)
        else:
            answer = await self._outcome(waiting)
            if answer is None:
                command.uncount()
                peer.unanswered(command)
            elif answer is not PARKED:
                peer.answer(command, answer)
        pool.kept_bytes -= len(command.body)
        command.release()

    def _defer(self, waiting: Waiting, pool: Pool) -> None:
        """Set aside a request whose answer its peer would not read now.

        The pool does not count it, so that its place is for others.
        """
        deferred = waiting.connection.deferred
        if len(deferred) >= DEFERRED_MAX:
            self._overloaded(waiting, pool)
            return
        waiting.command.uncount()
        deferred.append((waiting, pool))

    def readmit(self, peer: Peer) -> None:
        """Let deferred requests wait in their pools again, as if they had come now: all of them
        when their peer has read everything, else one.
        """
        deferred, now = peer.deferred, monotonic()
        for _ in range(1 if peer.uptake is not None else len(deferred)):
            waiting, pool = deferred.popleft()
            self._enter(waiting._replace(arrived=now), pool)

    async def _outcome(self, waiting: Waiting) -> Later:
        try:
            return await waiting.work
        except Exception as error:
            return self.failed(waiting.command, waiting.connection, error)

    def failed(self, command: Command, peer: Peer, error: Exception) -> Answer:
        """The answer to a request that raised an error, now or after its wait."""
        answer = self._expected(error)
        if answer is not None:
            return answer
        self._stats.requests_failed += 1
        log.error("request.failed", code=command.code, address=peer.address, exc_info=error)
        return Answer(SYSTEM_ERROR, remark=_text(error))

    def _expected(self, error: Exception) -> Answer | None:
        """The answer to a request by an error that says what is wrong with it, if it is one."""
        if isinstance(error, (HeaderError, BodyError)):
            return Answer(SYSTEM_ERROR, remark=str(error))
        return self._refusals(error)


def _text(error: Any) -> str:
    return f"{type(error).__name__}: {error}"
