"""The life of a name server that runs alone: start and stop on this page.

    services     end last: saving the key-value table, expiry of brokers, probes, ticker
    └ listening  ends first: boss, selectors

Start: bind → lock the directory, read the key-value table → services → listen → ready.
Stop: close the listeners → save the table → unlock. Routes are kept in memory only: after a restart
each broker registers again within its period, and clients go on with the routes that they have.
Source: NamesrvController, NamesrvStartup.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker import answers
from aerobee.broker.access.audit import Audit
from aerobee.broker.access.gate import Gate
from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.config.settings.metrics import labels_of
from aerobee.broker.core.rounds import limits_of
from aerobee.broker.counters.server_stats import AccessStats, LoopStats
from aerobee.broker.http.health import Check, Health, loop_turns
from aerobee.broker.life.server import Port, ReadyReport, Server
from aerobee.broker.live_settings.live_settings import LiveSettings
from aerobee.broker.live_settings.settings_processor import SettingsProcessor
from aerobee.broker.namesrv.metrics import METRICS, NamesrvSources
from aerobee.broker.namesrv.role import NamesrvRole
from aerobee.broker.pools.pools import make_pools
from aerobee.broker.process.cycles import CONNECTION_BLOCKS
from aerobee.broker.process.host import build
from aerobee.broker.process.listener_tls import ListenerTls
from aerobee.broker.process.loop_ticker import LoopTicker
from aerobee.broker.saved.save import Saver
from aerobee.broker.saved.tables import Tables
from aerobee.broker.users.directory import UserDirectory
from aerobee.broker.users.feature import topics_open_to_accounts
from aerobee.remoting.server import boss
from aerobee.remoting.server.reactor import Listener, Reactor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import namesrv as headers
from aerobee.store.errors import StoreLocked
from aerobee.store.files.lock_file import LockFile
from aerobee.store.recovery import start_check

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.feature import Service
    from aerobee.remoting.server.caller import Caller
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

LOCK: Final = "namesrv.lock"
POOL: Final = "admin"
"""The pool of all its requests."""
DRAIN_S: Final = 0.2
"""The time that ready answers have to leave; nothing is lost with them."""
SAVE_S: Final = 10.0
"""How long saving may take at the stop."""

log = structlog.stdlib.get_logger(__name__)


class NamesrvController(Server):
    """One name server, from nothing to stopped. `run` may be called once."""

    def __init__(self, config: BrokerConfig, *, disk: Disk, clock: Clock) -> None:
        super().__init__(config)
        self.began_ms = clock.now_ms()
        self.root = Path(config.store.store_path_root_dir).expanduser().absolute()
        self.disk = disk
        tables = Tables(self.root / "config", disk, clock)
        self.role = NamesrvRole(config, tables, clock)
        self.live = LiveSettings(config, disk=disk, clock=clock)
        self.lock = LockFile(disk, self.root / LOCK)
        self.loop = LoopStats()
        self.access = AccessStats()
        self.ticker = LoopTicker(self.loop, clock)
        self.reactor = Reactor(
            pools={POOL: make_pools(config.remoting)[POOL]},
            limits=limits_of(config.remoting),
            selectors=config.remoting.server_selector_threads,
            refusals=answers.refusal,
            connected=self._connected,
        )
        shared = disk if config.broker.broker_count > 1 else None
        open_topics = topics_open_to_accounts(config)
        self.users: UserDirectory = UserDirectory(
            config.auth, tables, self.reactor.cut_off, shared=shared, open_topics=open_topics
        )
        self.saver = Saver([self.role.kv_file, *self.users.saved], periodic=())
        self.tls = ListenerTls(
            config.tls, self.reactor, clock, http=config.metrics.metrics_tls_enable
        )
        auth = config.auth
        self.audit = Audit(every=lambda: auth.admin_access_log)
        if self.users.authority is not None:
            gate = Gate(self.users.authority, config.broker.broker_cluster_name, self.access)
            self.reactor.guard(self.audit.behind(gate.check), gate.lets_pass)
        if self.users.files is not None:
            self.live.when_asked.append(self.users.files.reload)
        self.reloaded = (self.tls, self.role)
        self.health = self._health(loop_turns(self.loop, clock))

    async def run(self, ready: Callable[[ReadyReport], None]) -> bool:
        """See `Server.run`; a stop is clean when the key-value table was saved."""
        self.tls.open()
        with ExitStack() as opened:
            port = Port(
                self.config.namesrv.namesrv_listen_port,
                "give --port another port",
                self.config.remoting.bind_address,
            )
            [sock], [probes] = self.bind(opened, [port])
            listener = Listener("namesrv", sock, self._routes())
            start_check.make_directory(self.disk, self.root)
            try:
                self.lock.acquire()
            except StoreLocked as error:
                raise StoreLocked(
                    f"{self.root} is in use by another name server: give each its own with --data"
                ) from error
            opened.callback(self.lock.release)
            self.role.load()
            self.users.load()
            async with trio.open_nursery() as services:
                await services.start(self.ticker.run)
                to_start: list[Service] = [
                    self.saver,
                    self.tls,
                    *self.role.services,
                    *self.users.services,
                ]
                for service in to_start:
                    await services.start(service.run)
                await self._serve(services, listener, probes, ready)
                services.cancel_scope.cancel()
            saved = False
            with trio.CancelScope(shield=True, deadline=trio.current_time() + SAVE_S):
                clean = all(table.clean for table in self.saver.tables)
                saved = clean or await self.saver.save_all()
        log.info("namesrv.stopped", clean=saved)
        return saved

    def blocks_in_use(self) -> int:
        """See `Server.blocks_in_use`."""
        return self.reactor.stats.connections * CONNECTION_BLOCKS

    def _routes(self) -> list[Route]:
        settings = SettingsProcessor(self.live)
        routes = (
            *self.role.routes,
            *self.users.routes,
            Route(headers.GetNamesrvConfig, settings.namesrv_settings, POOL),
            Route(headers.UpdateNamesrvConfig, settings.change_namesrv, POOL),
        )
        return list(self.audit.routes(routes))

    async def _serve(
        self,
        services: trio.Nursery,
        listener: Listener,
        probes: socket.socket | None,
        ready: Callable[[ReadyReport], None],
    ) -> None:
        remoting = self.config.remoting
        async with trio.open_nursery() as listening:
            boss.listen_on(listener.sock, remoting.server_socket_backlog)
            await listening.start(self.reactor.run, [listener])
            self.serving = True
            if probes is not None:
                services.start_soon(self.serve_http, probes, self.sources(), self.health)
            address = with_port(remoting.bind_address, self.config.namesrv.namesrv_listen_port)
            report = ReadyReport((), address, str(self.root))
            log.info("namesrv.started", namesrv=report.namesrv, data=report.data)
            ready(report)
            await self.stop_wanted.wait()
            log.info("namesrv.stopping")
            self.serving = False
            self.reactor.flush()
            await trio.sleep(DRAIN_S)
            listening.cancel_scope.cancel()

    def sources(self) -> NamesrvSources:
        """The sources of a scrape."""
        broker = self.config.broker
        return NamesrvSources(
            metrics=METRICS,
            cluster=broker.broker_cluster_name,
            node_id=broker.broker_name,
            labels=labels_of(self.config.metrics.metrics_label),
            short_names=self.config.metrics.metrics_legacy_names,
            build=build(),
            began_ms=self.began_ms,
            remoting=self.reactor.stats,
            loop=self.loop,
            access=self.access,
            routes=self.role.route_table,
        )

    def _connected(self, connection: Caller) -> None:
        connection.on_close.append(lambda closed, reason: self.role.connection_closed(closed))

    def _health(self, loop_turns: Check) -> Health:
        def started() -> str | None:
            return None if self.serving else "not serving"

        def saved() -> str | None:
            failing = self.role.kv_file.failing
            return None if failing is None else f"the key-value table is not saved: {failing}"

        return Health(
            startup={"serving": started},
            live={"loop": loop_turns},
            ready={"serving": started, "kv_config": saved},
        )
