"""The guard in front of the handlers of a slave: what only its master can serve is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.replication.slave_answers import ANSWERS, OF_A_GROUP, PULLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aerobee.broker.core.role import Role
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Handler, Outcome, Requests, Route, RunHandler
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

        def guarded(header: Header, command: Command, connection: Caller) -> Outcome:
            return handler(header, command, connection) if role.serves else answer

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
