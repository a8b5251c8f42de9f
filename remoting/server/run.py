"""Requests that are served together: each came alone in its read, or is a call by itself.

Requests of one route join a run, and are served in the order in which they were read: when there
are enough of them, before any other request, and at the end of the round at the latest. So every
request sees what came before it, and nothing of what came later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aerobee.remoting.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.route_table import PooledRoute
    from aerobee.remoting.server.routes import Requests
    from aerobee.remoting.wire.command import Command


RUN_MAX: Final = 32
"""Requests that are served together."""
RUN_BYTES: Final = 64 << 10
"""Requests that together are longer are served at once; a longer request is served by itself."""


class Run:
    """Requests of one route, of several connections or calls, that were read and not served.

    Invariant: at most one of each connection or call, which has nothing else to be served. They may
    be views of the receive buffer.
    """

    __slots__ = ("_call", "_most", "_size", "requests", "route")

    def __init__(self, route: PooledRoute, call: Callable[..., int]) -> None:
        """`call` is that of the handlers of their worker."""
        self.route = route
        self.requests: list[tuple[Command, Any]] = []
        """Each command with its connection."""
        self._call = call
        self._size = 0
        # No more than the pool has room for, should their answers have to wait.
        self._most = min(RUN_MAX, route.pool.capacity - route.pool.depth)

    def add(self, command: Command, connection: Any, size: int) -> None:
        """Add a request of `size` bytes."""
        self.requests.append((command, connection))
        self._size += size

    def has(self, connection: object) -> bool:
        """Whether a request of this connection or call is among them."""
        return any(other is connection for _, other in self.requests)

    @property
    def full(self) -> bool:
        """Whether they are to be served now."""
        return len(self.requests) >= self._most or self._size > RUN_BYTES

    def serve(self) -> None:
        """Serve them in order, but those whose connections have closed since; nothing may be added
        any more.
        """
        self.requests = requests = [request for request in self.requests if not request[1].closed]
        at = 0
        while at < len(requests):
            command, connection = requests[at]
            rest = self._from(at + 1)
            at += self._call(connection, command, command.arrived, self.route, rest=rest)
            if connection.current is not None:
                connection.goes_on()

    def _from(self, at: int) -> Requests:
        """The requests from there on, each decoded when it is asked for; ends before a request
        whose fields do not decode. Hot.
        """
        header_type = self.route.header
        try:
            for command, connection in self.requests[at:]:
                yield command, command.header(header_type), connection
        except HeaderError:
            # The worker meets it again, and refuses it.
            return
