"""What the runs of a worker's routes served, seen where the worker calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.route_table import PooledRoute
    from aerobee.remoting.server.routes import Outcome, Requests, RunHandler
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


class Runs:
    """How many requests each run served, if several; with an error every run ends in it at once."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sizes: list[int] = []
        self.error = error
        self.failed = 0

    def watched(self, routes: dict[int, PooledRoute]) -> dict[int, PooledRoute]:
        """The same routes, with their runs under watch."""
        return {
            code: route if route.run is None else route._replace(run=self._watched(route.run))
            for code, route in routes.items()
        }

    def _watched(self, run: RunHandler) -> RunHandler:
        def watched(
            header: Header, command: Command, connection: Connection, rest: Requests
        ) -> int | Outcome:
            if self.error is not None:
                self.failed += 1
                raise self.error
            served = run(header, command, connection, rest)
            if isinstance(served, int) and served > 1:
                self.sizes.append(served)
            return served

        return watched
