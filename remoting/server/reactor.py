"""The reactor: bosses, selectors and pools of one process, started and stopped together."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from aerobee.remoting.server import boss
from aerobee.remoting.server.arrivals import SlowRound
from aerobee.remoting.server.inbound import InboundBudget
from aerobee.remoting.server.poller import EpollPoller
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.selector import ROUND_S, Hooks, Selector
from aerobee.remoting.server.shared import SharedState
from aerobee.remoting.server.tls_handshakes import Handshakes
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.server.worker import Worker

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Collection, Iterator, Mapping

    from aerobee.remoting.server.channel import Channel, Serving
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.guard import Gate, LetsPass
    from aerobee.remoting.server.poller import Poller
    from aerobee.remoting.server.pools import Pool
    from aerobee.remoting.server.routes import Route
    from aerobee.remoting.server.shared import Limits
    from aerobee.remoting.wire.answer import Answer

SWEEP_S = 1.0
NO_HOOKS = Hooks()


class Listener(NamedTuple):
    """A bound socket, its name for logs, and what is served there."""

    name: str
    sock: socket.socket
    served: Sequence[Route] | Serving[Any]
    """Routes of remoting, or the serving of another protocol."""
    begin: Callable[[Worker], None] | None = None
    """Called with the worker of `routes` before the serving of another protocol begins."""
    routes: Sequence[Route] = ()
    """The requests that the calls of another protocol become."""


class Reactor:
    """Runs listeners over shared pools; `refusals` maps an exception to an answer, or None for an
    unknown one.
    """

    def __init__(
        self,
        *,
        pools: Mapping[str, Pool],
        limits: Limits,
        selectors: int,
        refusals: Callable[[Exception], Answer | None],
        hooks: Hooks = NO_HOOKS,
        connected: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """`connected` is called for each new connection of clients."""
        self.pools = pools
        self.shared = SharedState(limits)
        self.stats = self.shared.stats
        self.flush = self.shared.flush
        """Write every connection that has answers queued."""
        self.selectors: list[Selector] = []
        self._workers: list[Worker] = []
        self._accepting: list[trio.CancelScope] = []
        self._servings: dict[str, Serving[Any]] = {}
        self._gate: Gate | None = None
        self._lets_pass: LetsPass | None = None
        self._connection_limits = boss.ConnectionLimits(
            self.shared, limits.max_connections, limits.descriptors, lambda: self.connections
        )
        self._hooks = hooks
        self._connected = connected
        self._refusals = refusals
        self._selectors_wanted = selectors

    async def run(
        self,
        listeners: Sequence[Listener],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled. It has started when every listener accepts."""
        try:
            async with trio.open_nursery() as nursery:
                self._open(nursery, listeners)
                nursery.start_soon(self._sweep)
                if self.shared.handshakes is not None:
                    nursery.start_soon(self.shared.handshakes.run)
                task_status.started()
        finally:
            self._servings.clear()
            for pool in self.pools.values():
                pool.clear()

    def accept_tls(self, context: ssl.SSLContext, *, enforcing: bool) -> None:
        """Speak TLS with every new connection that begins so; `enforcing`: and with no other.

        To be called before `run`, and again for connections to come when certificates change.
        """
        shared = self.shared
        if shared.handshakes is None:
            shared.handshakes = Handshakes(self.stats, context, enforcing=enforcing)
        shared.handshakes.context = context

    def guard(self, gate: Gate, lets_pass: LetsPass) -> None:
        """Have a gate check each request of all listeners; to be called before `run`."""
        self._gate, self._lets_pass = gate, lets_pass
        self.shared.unauthenticated = InboundBudget(self.shared.limits.unauthenticated_bytes)

    def add_selector(self, poller: Poller) -> Selector:
        """Add a selector, which the caller runs."""
        hooks = self._hooks._replace(slow_round=self._slow_round)
        round_s = ROUND_S / self._selectors_wanted
        selector = Selector(self.shared, poller, hooks, round_s=round_s)
        self.selectors.append(selector)
        return selector

    def allow(self, limits: Limits) -> None:
        """Change the limits on connections, and those of each address and account."""
        self._connection_limits.max_connections = limits.max_connections
        self.shared.allow(limits)

    def take_in(self, sock: socket.socket, address: tuple[Any, ...], listener: str) -> None:
        """Serve a socket of this process as if the listener had accepted it from `address`; it
        speaks no TLS. Raises: OSError when the reactor does not run.
        """
        serving = self._servings.get(listener)
        if serving is None:
            raise OSError(errno.ECONNREFUSED, "the broker does not serve yet")
        sock.setblocking(False)
        connection = self.selectors[0].adopt(sock, address, listener, serving)
        connection.sock = sock

    def stop_accepting(self) -> None:
        """Close the listeners; connections stay."""
        for accepting in self._accepting:
            accepting.cancel()

    def leave(self, pools: Collection[str]) -> None:
        """Accept no connection, and have clients go elsewhere with what these pools serve."""
        self.stop_accepting()
        for worker in self._workers:
            worker.leave([self.pools[name] for name in pools])

    async def cut_off(self, whose: Callable[[Channel], bool]) -> None:
        """Close the connections whose accounts may do less than before, with the requests that are
        held for them.
        """

        def ends() -> Iterator[None]:
            for connection in self.connections:
                if whose(connection):
                    connection.close("the rights of its user have changed")
                yield

        await in_slices(ends())

    def resume(self) -> None:
        """Serve the postponed requests again."""
        shared = self.shared
        postponed, shared.postponed = shared.postponed, []
        for resume in postponed:
            resume(monotonic())

    def resume_of_sweep(self) -> Iterator[None]:
        """Serve the requests that the gate has postponed, a few in each turn."""
        shared = self.shared
        postponed, shared.postponed_to_sweep = shared.postponed_to_sweep, []
        for resume in postponed:
            resume(monotonic())
            yield

    @property
    def most_connections(self) -> float:
        """How many connections may be open: as set, or as there are descriptors for; infinite
        where the system has no limit.
        """
        return self._connection_limits.places

    @property
    def connections(self) -> list[Channel]:
        """All connections of all selectors."""
        return [c for selector in self.selectors for c in selector.connections.values()]

    @property
    def unsent_bytes(self) -> int:
        """Unsent bytes of all connections together."""
        return sum(connection.unsent for connection in self.connections)

    def _open(self, nursery: trio.Nursery, listeners: Sequence[Listener]) -> None:
        for _ in range(self._selectors_wanted):
            nursery.start_soon(self.add_selector(EpollPoller()).run)
        for name, sock, served, begin, routes in listeners:
            serving = self._worker(served, nursery) if isinstance(served, Sequence) else served
            self._servings[name] = serving
            if begin is not None:
                begin(self._worker(routes, nursery))
            nursery.start_soon(self._accept, sock, name, serving)

    def _worker(self, routes: Sequence[Route], nursery: trio.Nursery) -> Worker:
        worker = Worker(
            resolve(routes, self.pools),
            self._refusals,
            nursery,
            self.shared,
            self._gate,
            self._lets_pass,
            connected=self._connected,
        )
        self._workers.append(worker)
        return worker

    async def _accept(self, sock: socket.socket, name: str, serving: Serving[Any]) -> None:
        with trio.CancelScope() as accepting:
            self._accepting.append(accepting)
            await boss.run(sock, name, serving, self.selectors, self._connection_limits)

    def _slow_round(self, slow: SlowRound) -> None:
        self.stalled(slow.began, slow.ended)
        self._hooks.slow_round(slow)

    def stalled(self, began: float, ended: float) -> None:
        """Note that the loop served nobody for so long, before any answer is sent: a request that
        comes later is not refused for that time.
        """
        self.shared.slow_round = SlowRound(began, ended)
        for selector in self.selectors:
            selector.note_empty(ended)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            for selector in self.selectors:
                await in_slices(selector.sweep())
            await in_slices(self._connection_limits.close_late(monotonic()))
            self.shared.inbound.sweep(monotonic())
            if self.shared.unauthenticated is not None:
                self.shared.unauthenticated.sweep(monotonic())
                await in_slices(self.resume_of_sweep())
            self.flush()
