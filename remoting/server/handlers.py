"""One request at a time: its handler is called, and its answer comes now, after steps, or later.

An async handler waits in the queue of its pool, then for what it awaits. Errors become answers here
and nowhere else.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from aerobee.remoting.border import Border
from aerobee.remoting.errors import BodyError, HeaderError, RequestPostponed
from aerobee.remoting.server.long_requests import SHORT_BYTES
from aerobee.remoting.server.pools import (
    KEPT_BYTES_MAX,
    OVERLOAD_REMARK,
    QUEUED_MAX,
    REJECT_REMARK,
    Pool,
    Waiting,
    stall_remark,
    timeout_remark,
)
from aerobee.remoting.server.route_table import OpenRequest
from aerobee.remoting.server.routes import HELD, PendingAnswer, is_steps
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.peer import Asker
    from aerobee.remoting.server.route_table import PooledRoute
    from aerobee.remoting.server.routes import Later, Outcome, Plain, Requests, Steps
    from aerobee.remoting.server.shared import SharedState
    from aerobee.remoting.wire.command import Command


log = structlog.stdlib.get_logger(__name__)

SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)
SYSTEM_BUSY = int(ResponseCode.SYSTEM_BUSY)


class Handlers:
    """Calls the handlers of one worker. `refusals` maps an exception to an answer, or to None."""

    def __init__(
        self,
        refusals: Callable[[Exception], Answer | None],
        nursery: trio.Nursery,
        shared: SharedState,
    ) -> None:
        self._refusals = refusals
        self._nursery = nursery
        self._stats = shared.stats
        self._long_requests = shared.long_requests
        self._flush = shared.flush

    def call(
        self,
        connection: Caller,
        command: Command,
        arrived: float,
        route: PooledRoute,
        steps: Steps | None = None,
        rest: Requests | None = None,
    ) -> int:
        """Call the handler, or continue its steps; then answer, or arrange for the answer.

        `rest`: those behind this request that may be served with it, by the run of the route;
        returns how many were, this one included. Hot: every request comes this way.
        """
        outcome: Plain = None
        try:
            if steps is None:
                header = command.header(route.header)
                begun: int | Outcome = 0
                if rest is not None:
                    assert route.run is not None
                    begun = route.run(header, command, connection, rest)
                    rest = None
                if isinstance(begun, int):
                    if begun:
                        return begun
                    begun = route.handler(header, command, connection)
                if isinstance(begun, Answer):
                    connection.answer(command, begun)
                    return 1
                if is_steps(begun):
                    # The receive buffer is reused while the steps continue.
                    command.detached()
                    steps = begun
                    size = len(command.body)
                    if size > SHORT_BYTES and not self._long_requests.take(connection, size):
                        connection.begin(OpenRequest(arrived, command, route, steps))
                        return 1
                else:
                    outcome = begun
            if steps is not None:
                self._step(connection, command, arrived, route, steps)
                return 1
        except StopIteration as end:
            connection.end()
            outcome = end.value
        except RequestPostponed:
            connection.end()
            connection.postpone(OpenRequest(arrived, command.detached(), route, None))
            return 1
        except Exception as error:
            if rest is not None:
                # Alone, the request that it is about gets the answer, and no other.
                if self._expected(error) is None:
                    log.error("run.failed", code=command.code, exc_info=error)
                return self.call(connection, command, arrived, route)
            connection.end()
            outcome = self.failed(command, connection, error)
        self._settle(outcome, command, connection, route.pool, arrived)
        return 1

    def _step(
        self, connection: Caller, command: Command, arrived: float, route: PooledRoute, steps: Steps
    ) -> None:
        """Take steps until the turn is over. Raises: StopIteration at their end, with the outcome.

        Hot: every request in steps comes this way.
        """
        next(steps)
        if connection.current is None and not connection.closed:
            # Most steps end with the first one, and nothing is kept of them.
            connection.begin(OpenRequest(arrived, command, route, steps))
        while not (
            connection.postponed or connection.closed or monotonic() > connection.context.turn_ends
        ):
            next(steps)
        if connection.postponed:
            self._long_requests.leave(connection)

    def go_on(self, connection: Caller) -> None:
        """Go on with the current request of a connection until its turn is over."""
        assert connection.current is not None
        arrived, command, route, steps = connection.current
        if steps is None:
            connection.end()
            self.call(connection, command, arrived, route)
        elif self._long_requests.take(connection, len(command.body)):
            self.call(connection, command, arrived, route, steps)

    def _settle(
        self, outcome: Plain, command: Command, connection: Caller, pool: Pool, arrived: float
    ) -> None:
        """Answer, or arrange for the answer."""
        if isinstance(outcome, Answer):
            connection.answer(command, outcome)
        elif outcome is HELD:
            # The awaited result may have been there already: then the request is answered.
            if not command.answered:
                pool.depth += 1
                command.pool = pool
                command.release()
        elif isinstance(outcome, PendingAnswer):
            pool.depth += 1
            command.pool = pool
            command.release()
            self._nursery.start_soon(self._answer_later, outcome.work, command, connection)
        elif outcome is not None:
            self._admit(Waiting(arrived, connection, command, outcome), pool)
        else:
            connection.unanswered(command)
            command.release()

    def refuse(
        self, connection: Asker, command: Command, pool: Pool, arrived: float, age_s: float
    ) -> None:
        """Tell a request that its pool is full, or that it has waited too long."""
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
        body = bytes(waiting.command.body)
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
                if peer.backed_up and not waiting.command.body:
                    self._queue(waiting, pool)
                else:
                    peer.working += 1
                    await self._answer(waiting, pool)
                    peer.working -= 1
                self._flush()
                if peer.queued and not peer.backed_up:
                    self.readmit(peer)
                waiting = pool.next(peer.lane)
        finally:
            pool.running -= 1

    async def _answer(self, waiting: Waiting, pool: Pool) -> None:
        """Answer a request that has waited, or refuse it if that took too long."""
        command, peer = waiting.command, waiting.connection
        waited_s = monotonic() - waiting.arrived
        if waited_s > pool.max_wait_s:
            waiting.work.close()  # type: ignore[attr-defined]  # handlers are coroutines
            self.refuse(peer, command, pool, waiting.arrived, waited_s)
        else:
            _tell(await self._outcome(waiting.work, command, peer), command, peer)
        pool.kept_bytes -= len(command.body)
        command.release()

    async def _answer_later(self, work: Awaitable[Later], command: Command, peer: Asker) -> None:
        """Answer a request whose effect has happened; it takes no place of its pool."""
        _tell(await self._outcome(work, command, peer), command, peer)
        self._flush()

    def _queue(self, waiting: Waiting, pool: Pool) -> None:
        """Queue a request whose answer its peer would not read now.

        The pool does not count it, so that its place is for others.
        """
        queued = waiting.connection.queued
        if len(queued) >= QUEUED_MAX:
            self._overloaded(waiting, pool)
            return
        waiting.command.uncount()
        queued.append((waiting, pool))

    def readmit(self, peer: Asker) -> None:
        """Queue requests that waited for their peer in their pools, as if they had come now: all of
        them when it has read everything, else one.
        """
        queued, now = peer.queued, monotonic()
        for _ in range(1 if peer.stalled else len(queued)):
            waiting, pool = queued.popleft()
            self._enter(waiting._replace(arrived=now), pool)

    async def _outcome(self, work: Awaitable[Later], command: Command, peer: Asker) -> Later:
        outcome: Later = None
        with Border() as border:
            outcome = await work
        if border.error is not None:
            return self.failed(command, peer, border.error)
        return outcome

    def failed(self, command: Command, peer: Asker, error: Exception) -> Answer:
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


def _tell(outcome: Later, command: Command, peer: Asker) -> None:
    """Answer a request that has waited, unless it is held, or gets no answer."""
    if outcome is None:
        command.uncount()
        peer.unanswered(command)
    elif outcome is not HELD:
        peer.answer(command, outcome)


def _text(error: Any) -> str:
    return f"{type(error).__name__}: {error}"
