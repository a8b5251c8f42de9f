"""What has to be looked at by the clock: silent clients, silent brokers, locks no one renews.

Source: semantics §2.3 (ClientHousekeepingService); nameserver §3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
import trio

from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.consumers.client_processor import ClientProcessor
    from aerobee.broker.consumers.queue_locks import QueueLockTable
    from aerobee.broker.namesrv.route_table import RouteTable
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.store.clock import Clock

__all__ = ["CLIENT_SCAN_S", "Housekeeping"]

CLIENT_SCAN_S: Final = 10.0
SETTLE_S: Final = 0.5
"""How long a broker that left may still take memory, and an acting master seem writable."""

log = structlog.stdlib.get_logger("aerobee.broker")


class Housekeeping:
    """Scans for clients every 10 s and for brokers of the name server every few seconds."""

    def __init__(
        self,
        *,
        clients: ClientProcessor,
        locks: QueueLockTable[Any],
        orders: PopOrderTable,
        routes: RouteTable | None,
        clock: Clock,
        channel_expired_timeout_ms: Callable[[], int],
        broker_scan_interval_ms: int = 5_000,
    ) -> None:
        self.clients = clients
        self.locks = locks
        self.orders = orders
        self.routes = routes
        self.clock = clock
        self.channel_expired_timeout_ms = channel_expired_timeout_ms
        self.broker_scan_s = broker_scan_interval_ms / 1000

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Scan until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.every, CLIENT_SCAN_S, self.scan_clients)
            if self.routes is not None:
                nursery.start_soon(self.every, self.broker_scan_s, self.scan_brokers)
                nursery.start_soon(self.every, SETTLE_S, self.routes.settle)
            task_status.started()
        raise AssertionError("the tasks of this service never end by themselves")

    async def every(self, period_s: float, scan: Callable[[], Iterator[None]]) -> NoReturn:
        """Run one scan by the clock, the first after one period; others run at its yields."""
        while True:
            await trio.sleep(period_s)
            await in_slices(scan())

    def scan_clients(self) -> Iterator[None]:
        """Take out clients whose heartbeats stopped, and forget locks and pops that are too old."""
        yield from self.clients.expire(self.channel_expired_timeout_ms())
        yield from self.locks.sweep(self.now_ms())
        yield from self.orders.expire(self.clock.now_ms())

    def scan_brokers(self) -> Iterator[None]:
        """Take out brokers that stopped registering, and close their connections."""
        assert self.routes is not None
        before = set(self.routes.live)
        connections = self.routes.expire(self.now_ms())
        yield
        for cluster, address in before - self.routes.live.keys():
            log.info("broker.expired", cluster=cluster, address=address)
        for connection in connections:
            yield
            connection.close("the broker did not register again in time")

    def now_ms(self) -> int:
        """Monotonic, as the tables want it."""
        return int(self.clock.monotonic() * 1000)
