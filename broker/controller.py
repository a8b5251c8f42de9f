"""The life of a broker: start and stop on this page. `broker` says what it is made of.

    services     end last: the store's services, hold, saver, housekeeping, registration, HTTP,
    │            ticker
    └ listening  ends first: bosses, selectors, handlers that wait

Start: bind → answer probes → lock and recover the store, in a thread → services → listen → ready.
Stop: unregister → answer held pulls → stop serving → save the tables → last flush, checkpoint,
abort file. Any failure on the way ends the broker: one that cannot flush must not answer. Source:
BrokerController, BrokerStartup.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import structlog
import trio

from aerobee.broker.broker import Broker
from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.http.health import make_health
from aerobee.broker.life.server import Port, ReadyReport, Server
from aerobee.broker.process.cycles import CONNECTION_BLOCKS, QUEUE_BLOCKS
from aerobee.broker.process.listener_tls import ListenerTls
from aerobee.broker.process.loop_ticker import LoopTicker
from aerobee.remoting.server import boss
from aerobee.remoting.server.reactor import Listener
from aerobee.remoting.server.turns import in_slices
from aerobee.store.flags import Flag
from aerobee.threads import in_thread

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Collection

    from aerobee.broker.broker import Extra
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.results import Recovery

DRAIN_S: Final = 3.0
"""How long answers in flight may take once the broker stops."""
LAME_CLOSE_S: Final = 1.0
"""The longest pause between two connections that a lame duck closes."""
DRAIN_LOOK_S: Final = 0.01
HTTP_WAITS_S: Final = 0.5
"""How long probes wait for the ready line. The import of the web framework takes a quarter of the
time of a short start; only a start that lasts needs probes before it is over."""
PROGRESS_S: Final = 2.0
"""Seconds between two log lines about a long recovery."""
CLOSE_S: Final = 60.0
"""How long saving may take, and then the last flush; what a disk holds up longer is given up."""

log = structlog.stdlib.get_logger(__name__)


class BrokerController(Server):
    """One broker, from nothing to stopped. `run` may be called once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        without: Collection[Extra] = (),
    ) -> None:
        super().__init__(config)
        self.broker = Broker(config, disk=disk, clock=clock, without=without)
        self.loop = self.broker.core.stats.loop
        self.ticker = LoopTicker(self.loop, clock)
        self.tls = ListenerTls(
            config.tls,
            self.broker.core.rounds.reactor,
            clock,
            http=config.metrics.metrics_tls_enable or config.console.console_tls_enable,
        )
        if (port := self.broker.replication.port) is not None:
            self.tls.takers.append(port.accept_tls)
        self.live = self.broker.settings.live
        self.reloaded = (self.tls, self.broker.namesrv.role)
        self.users = self.broker.users.directory
        if self.broker.failover is not None:
            self.broker.failover.begin_anew_by(self._begin_anew)
        self.lame = trio.Event()
        self.ready_told = trio.Event()
        self._tables_saved = False

    def _begin_anew(self) -> None:
        """Stop, and have the process start the broker again: its log has to be cut."""
        self.anew = True
        self.stop()

    def lame_duck(self) -> None:
        """Ask for a stop that has clients leave first; callable from anywhere in the loop."""
        self.lame.set()

    async def run(self, ready: Callable[[ReadyReport], None]) -> bool:
        """See `Server.run`; a failed service ends it as well."""
        store = self.broker.core.store
        self.tls.open()
        with ExitStack() as opened:
            # Until recovery is done clients are refused, so that they turn to another broker.
            listeners, (metrics, console) = self._listeners(opened)
            try:
                async with trio.open_nursery() as services:
                    await services.start(self.ticker.run)
                    if metrics is not None:
                        services.start_soon(self._serve_probes, metrics)
                    recovery = await self._recover()
                    await self._start_services(services)
                    opened.pop_all()
                    if console is not None:
                        services.start_soon(self._serve_console, console)
                    await self._serve(services, listeners, recovery, ready)
                    services.cancel_scope.cancel()
            finally:
                if not self._tables_saved:
                    # No clean stop: what a table lacks, the next start reads from the log.
                    store.flags.set(Flag.NOT_WRITEABLE, "the tables were not saved")
                clean = await _in_time("store", store.close)
        log.info("broker.stopped", clean=clean)
        return clean

    def blocks_in_use(self) -> int:
        """See `Server.blocks_in_use`."""
        core = self.broker.core
        connections = core.rounds.reactor.stats.connections * CONNECTION_BLOCKS
        return connections + len(core.store.queues.table) * QUEUE_BLOCKS

    # ── Start ──

    def _listeners(self, opened: ExitStack) -> tuple[list[Listener], list[socket.socket | None]]:
        remoting, namesrv = self.config.remoting, self.config.namesrv
        table, names = self.broker.routes, self.broker.namesrv_routes
        wanted = [
            ("broker", "listenPort", remoting.listen_port, table),
            ("vip", "vipListenPort", remoting.vip_listen_port, table),
            ("namesrv", "namesrvListenPort", namesrv.namesrv_listen_port if names else 0, names),
        ]
        used = [(name, key, port, served) for name, key, port, served in wanted if port]
        grpc, port = self.broker.grpc, remoting.grpc_port
        also = [] if grpc is None else [("grpc", "grpcPort", port, table)]
        console = self.broker.console
        sockets, of_http = self.bind(
            opened,
            [
                Port(port, f"set {key} to another port", remoting.bind_address)
                for _, key, port, _ in (*used, *also)
            ],
            [console.listener],
        )
        listeners = [
            Listener(name, sock, served)
            for (name, _, _, served), sock in zip(used, sockets, strict=False)
        ]
        if grpc is not None:
            listeners.append(grpc.listener(sockets[-1], table))
        return listeners, of_http

    async def _recover(self) -> Recovery:
        """Recover in a thread: nothing else uses the store yet, and the loop answers probes."""
        async with trio.open_nursery() as beside:
            beside.start_soon(self._tell_progress)
            recovery = await in_thread(self.broker.load)
            beside.cancel_scope.cancel()
        return recovery

    async def _tell_progress(self) -> NoReturn:
        store = self.broker.core.store
        while True:
            await trio.sleep(PROGRESS_S)
            log.info("store.recovery_progress", **msgspec.structs.asdict(store.stats.recovery))

    async def _start_services(self, services: trio.Nursery) -> None:
        for service in (self.tls, *self.broker.services):
            await services.start(service.run)

    async def _serve_probes(self, listener: socket.socket) -> None:
        with trio.move_on_after(HTTP_WAITS_S):
            await self.ready_told.wait()
        core = self.broker.core
        health = make_health(
            serving=lambda: self.serving,
            stopping=self._why_not_ready,
            replication=self.broker.replication.trouble,
            slaves=self.broker.lacking,
            apart=self.broker.apart,
            weakened=self.broker.weakened,
            stats=core.stats,
            store=core.store,
            disk=core.disk,
            places=core.store.space.watch.directories,
            clock=core.clock,
        )
        await self.serve_http(listener, self.broker.metrics.sources, health)

    async def _serve_console(self, listener: socket.socket) -> None:
        directory, config = self.broker.users.directory, self.config.console
        tls = self.tls.http if config.console_tls_enable else None
        await self.ready_told.wait()
        await self.broker.console.serve(
            listener, self.broker.audit, lambda: directory.authority, tls
        )

    def _why_not_ready(self) -> str | None:
        if self.stop_wanted.is_set():
            return "the broker is stopping"
        return (
            "the broker is a lame duck: it has clients leave, then stops"
            if self.lame.is_set()
            else None
        )

    # ── Serve and stop ──

    async def _serve(
        self,
        services: trio.Nursery,
        listeners: list[Listener],
        recovery: Recovery,
        ready: Callable[[ReadyReport], None],
    ) -> None:
        core = self.broker.core
        async with trio.open_nursery() as listening:
            for listener in listeners:
                boss.listen_on(listener.sock, self.config.remoting.server_socket_backlog)
            await listening.start(core.rounds.reactor.run, listeners)
            self.serving = True
            report = self._ready(recovery)
            log.info(
                "broker.started", broker=report.brokers[0], namesrv=report.namesrv, data=report.data
            )
            ready(report)
            self.ready_told.set()
            services.start_soon(self._leave_slowly)
            await self.stop_wanted.wait()
            log.info("broker.stopping")
            self.serving = False
            await self.broker.leave()
            await self._drain()
            listening.cancel_scope.cancel()
        self._tables_saved = await _in_time("tables", self.broker.close)

    async def _leave_slowly(self) -> None:
        """Once it is a lame duck: have producers leave, then the others one by one, then stop."""
        await self.lame.wait()
        reactor, process = self.broker.core.rounds.reactor, self.config.process
        grace_s, spread_s = process.lame_duck_grace_s, process.lame_duck_spread_s
        log.info("broker.lame_duck", grace_s=grace_s, spread_s=spread_s)
        await in_slices(self.broker.namesrv.registration.wipe_write_permission())
        await trio.sleep(grace_s)
        reactor.stop_accepting()
        connections = reactor.connections
        pause_s = min(LAME_CLOSE_S, spread_s / max(1, len(connections)))
        log.info("broker.closing_connections", connections=len(connections))
        for connection in connections:
            if not connection.closed:
                connection.write()
                connection.close("the broker is about to stop")
                await trio.sleep(pause_s)
        self.stop()

    def _ready(self, recovery: Recovery) -> ReadyReport:
        remoting, namesrv = self.config.remoting, self.config.namesrv
        names = self.config.broker.namesrv_addr or "none"
        if namesrv.embedded_namesrv:
            port = namesrv.namesrv_listen_port or remoting.listen_port
            names = with_port(remoting.bind_address, port)
        how = "clean" if recovery.clean else "abnormal"
        if recovery.cut_bytes or not recovery.clean:
            how += f", cut {recovery.cut_bytes} B"
        return ReadyReport(
            [with_port(remoting.bind_address, remoting.listen_port)],
            names,
            str(self.broker.core.store.root.absolute()),
            how,
        )

    async def _drain(self) -> None:
        """Wait a while until answers in flight are sent."""
        rounds = self.broker.core.rounds
        reactor, pools = rounds.reactor, rounds.reactor.pools.values()
        with trio.move_on_after(DRAIN_S):
            # Nothing signals that the last answer has been sent, and this runs once.
            while any(pool.depth for pool in pools) or rounds.waking or reactor.unsent_bytes:  # noqa: ASYNC110  (see above)
                await trio.sleep(DRAIN_LOOK_S)


async def _in_time(left: str, close: Callable[[], Awaitable[bool]]) -> bool:
    """Do a part of the stop, also after a cancellation; False when it takes longer than `CLOSE_S`.

    `left`: what is not finished then.
    """
    done = False
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S) as scope:
        done = await close()
    if scope.cancelled_caught:
        log.error("broker.stop_given_up", left=left, limit_s=CLOSE_S)
    return done
