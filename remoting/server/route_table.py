"""The routes of one listener, resolved: request code → header, handler, pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.remoting.server.pools import Pool
    from aerobee.remoting.server.routes import Handler, Route, RunHandler, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


class PooledRoute(NamedTuple):
    """A route with its pool."""

    header: type[Header]
    handler: Handler
    pool: Pool
    run: RunHandler | None = None


class OpenRequest(NamedTuple):
    """A request that its connection goes on with: steps are left of it, or it was postponed.

    Without steps its handler is called again.
    """

    arrived: float
    command: Command
    route: PooledRoute
    steps: Steps | None


def resolve(routes: Iterable[Route], pools: Mapping[str, Pool]) -> dict[int, PooledRoute]:
    """Code → resolved route. A code listed twice or an unknown pool is a bug in the table."""
    table: dict[int, PooledRoute] = {}
    for route in routes:
        code = int(_code(route.header))
        assert code not in table, f"request code {code} is routed twice"
        table[code] = PooledRoute(route.header, route.handler, pools[route.pool], route.run)
    return table


def _code(header: Any) -> int:
    return int(header.code)
