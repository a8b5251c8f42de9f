"""The guard in front of the handlers of a slave: what only its master can serve is refused."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from aerobee.broker.replication.slave_answers import ANSWERS, OF_A_GROUP, PULLS
from aerobee.remoting.server.routes import is_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any

    from aerobee.broker.core.role import Role
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import (
        Handler,
        Later,
        Outcome,
        Plain,
        Requests,
        Route,
        RunHandler,
        Steps,
    )
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


class SlaveGuard:
    """Stands in front of the handlers of a broker that starts as a slave, also once it is the
    master: then it lets everything pass, in a group while its lease lasts. `reads`: whether
    consumers may pull from a slave; `in_group`: the group decides on its master by itself.
    """

    def __init__(self, role: Role, *, reads: Callable[[], bool], in_group: bool) -> None:
        self._answers = OF_A_GROUP if in_group else ANSWERS
        self._role = role
        self._reads = reads

    def routes(self, routes: Iterable[Route]) -> Iterator[Route]:
        """The routes, with those that a slave refuses guarded."""
        for route in routes:
            answer = self._answers.get(route.header.code)
            if answer is None:
                yield route
            elif route.header.code in PULLS:
                yield route._replace(handler=self._pull(route.handler, answer))
            else:
                run = None if route.run is None else self._run(route.run)
                yield route._replace(handler=self._refusing(route.handler, answer), run=run)

    def _refusing(self, handler: Handler, answer: Answer) -> Handler:
        role = self._role

        def later(plain: Plain) -> Plain:
            return Waiting(plain, role, answer) if isinstance(plain, Awaitable) else plain

        def stepped(steps: Steps) -> Steps:
            while role.serves:
                try:
                    next(steps)
                except StopIteration as end:
                    plain: Plain = end.value
                    return later(plain)
                yield
            steps.close()
            return answer

        def guarded(header: Header, command: Command, connection: Caller) -> Outcome:
            outcome = handler(header, command, connection) if role.serves else answer
            return stepped(outcome) if is_steps(outcome) else later(outcome)

        return guarded

    def _pull(self, handler: Handler, answer: Answer) -> Handler:
        role, reads = self._role, self._reads

        def guarded(header: Header, command: Command, connection: Caller) -> Outcome:
            refused = role.is_slave and not reads()
            return answer if refused else handler(header, command, connection)

        return guarded

    def _run(self, run: RunHandler) -> RunHandler:
        role = self._role

        def guarded(
            header: Header, command: Command, connection: Caller, rest: Requests
        ) -> int | Outcome:
            # None of them is served together: each is the handler's, which refuses it.
            return run(header, command, connection, rest) if role.serves else 0

        return guarded


class Waiting:
    """A request that waits for its place in a pool, and has had no effect yet."""

    __slots__ = ("_answer", "_role", "_work")

    def __init__(self, work: Awaitable[Later], role: Role, answer: Answer) -> None:
        """`answer` is that of a slave, which this broker may be when it is the turn of the work."""
        self._work = work
        self._role = role
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Later]:
        if self._role.serves:
            return (yield from self._work.__await__())
        self.close()
        return self._answer

    def close(self) -> None:
        """Drop it: nothing will run it any more."""
        self._work.close()  # type: ignore[attr-defined]  # handlers are coroutines
