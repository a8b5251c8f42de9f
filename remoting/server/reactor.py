"""The reactor: bosses, selectors and pools of one process, started and stopped together.

Answers may become ready in any round, or after a flush: all of them wait in `outbox`, and whoever
finished a batch calls `flush`, so that each connection sees one send.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import trio

from aerobee.remoting.server import boss
from aerobee.remoting.server.inbound import InboundBudget
from aerobee.remoting.server.log_limit import LogLimit
from aerobee.remoting.server.long_requests import LongRequests
from aerobee.remoting.server.outbound import OutboundBudget
from aerobee.remoting.server.poller import make_poller
from aerobee.remoting.server.routes import resolve
from aerobee.remoting.server.selector import Limits, Selector
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.stats import RemotingStats

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.pools import Pool
    from aerobee.remoting.server.routes import Route
    from aerobee.remoting.wire.answer import Answer

__all__ = ["Listener", "Reactor"]

SWEEP_S = 1.0


class Listener(NamedTuple):
    """A bound socket, its name for logs, and what is answered there."""

    name: str
    sock: socket.socket
    routes: Sequence[Route]


class Reactor:
    """Runs listeners over shared pools.

    `after_round` runs at the end of every round, before its answers are sent: a plain function
    that makes more answers ready. `slow_round` is told, before that, of a round that took long:
    when it began and ended, in seconds of `monotonic`. `refusals` turns an exception into an
    answer, None if unknown.
    """

    def __init__(
        self,
        *,
        pools: Mapping[str, Pool],
        limits: Limits,
        selectors: int,
        refusals: Callable[[Exception], Answer | None],
        after_round: Callable[[], None] = lambda: None,
        slow_round: Callable[[float, float], None] = lambda _began, _until: None,
        on_connect: Callable[[Connection], None] = lambda _: None,
        max_connections: int = 0,
        descriptors: int | None = None,
        portable: bool = False,
    ) -> None:
        self.pools = pools
        self.limits = limits
        self.stats = RemotingStats()
        self.outbox: list[Connection] = []
        self.connected = on_connect
        self.slow_round = slow_round
        self.held_up = (float("-inf"), float("-inf"))
        """When the last slow round of any selector began and ended."""
        self.inbound = InboundBudget(limits.inbound_bytes)
        self.outbound = OutboundBudget(limits.outbound_bytes, limits.high_water_bytes, self.stats)
        self.rejections = LogLimit()
        """Of `frame.rejected`, for all selectors: any peer can provoke that line."""
        self.long_requests = LongRequests()
        self._door = boss.Door(self.stats, max_connections, descriptors)
        self._after_round = after_round
        self._refusals = refusals
        self.selectors_wanted = selectors
        self._portable = portable
        self._numbers = 0
        self.selectors: list[Selector] = []

    async def run(
        self,
        listeners: Sequence[Listener],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled. Started means: every listener accepts."""
        try:
            async with trio.open_nursery() as nursery:
                self._open(nursery, listeners)
                nursery.start_soon(self._sweep)
                task_status.started()
        finally:
            for pool in self.pools.values():
                pool.clear()

    def next_number(self) -> int:
        """A number for the next connection, unique in this process."""
        self._numbers += 1
        return self._numbers

    def end_round(self) -> None:
        """What every round ends with."""
        self._after_round()
        self.flush()

    def flush(self) -> None:
        """Write every connection that has something ready."""
        outbox = self.outbox
        if outbox:
            # A write may close a connection, whose callbacks may queue for others.
            for connection in outbox:
                connection.write()
            outbox.clear()

    @property
    def connections(self) -> list[Connection]:
        """All connections of all selectors."""
        return [c for selector in self.selectors for c in selector.connections.values()]

    @property
    def unsent_bytes(self) -> int:
        """What waits to be sent, on all connections together."""
        return sum(connection.unsent for connection in self.connections)

    def _open(self, nursery: trio.Nursery, listeners: Sequence[Listener]) -> None:
        for _ in range(self.selectors_wanted):
            poller = make_poller(nursery, portable=self._portable)
            selector = Selector(self, poller, self.limits)
            self.selectors.append(selector)
            nursery.start_soon(selector.run)
        for name, sock, routes in listeners:
            worker = Worker(resolve(routes, self.pools), self._refusals, nursery, self.stats)
            nursery.start_soon(boss.run, sock, name, worker, self.selectors, self._door)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            for selector in self.selectors:
                await in_slices(selector.sweep())
            self.inbound.sweep(monotonic())
            self.flush()
