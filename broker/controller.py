"""The life of a broker: start and stop on this page. `parts` says what it is made of.

    house   ends last: the store's services, hold, saver, housekeeping, registration, HTTP, ticker
    └ door  ends first: bosses, selectors, handlers that wait

Start: bind → answer probes → lock and recover the store, in a thread → services → listen → ready.
Stop: unregister → answer held pulls → close the door → save the tables → last flush, checkpoint,
abort file. Whatever fails on the way takes the broker down: one that cannot flush must not answer.
Source: BrokerController, BrokerStartup.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec
import structlog
import trio

from aerobee.broker import routes
from aerobee.broker.core.housekeeping import Housekeeping
from aerobee.broker.metrics import http
from aerobee.broker.metrics.sources import make_health, make_sources
from aerobee.broker.parts import Parts
from aerobee.remoting.server import boss
from aerobee.remoting.server.reactor import Listener
from aerobee.store.flags import Flag

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.results import Recovery

__all__ = ["BrokerController", "Ready"]

DRAIN_S: Final = 5.0
"""How long answers in flight may take once the broker stops."""
DRAIN_LOOK_S: Final = 0.01
PROGRESS_S: Final = 2.0
"""Between two words about a recovery that lasts."""
CLOSE_S: Final = 60.0
"""How long saving and the last flush may take."""

log = structlog.stdlib.get_logger("aerobee.broker")


class Ready(NamedTuple):
    """What there is to say when the broker serves."""

    broker: str
    namesrv: str
    data: str
    recovery: Recovery


class BrokerController:
    """One broker, from nothing to stopped. `run` may be called once."""

    def __init__(self, config: BrokerConfig, *, disk: Disk, clock: Clock) -> None:
        self.config = config
        self.parts = Parts(config, disk=disk, clock=clock)
        self.stop_wanted = trio.Event()
        self.serving = False

    def stop(self) -> None:
        """Ask for a clean stop; callable from anywhere in the loop."""
        self.stop_wanted.set()

    async def run(self, ready: Callable[[Ready], None]) -> bool:
        """Serve until `stop`; whether everything was left clean.

        Raises: StoreRefused, TableDamaged, OSError when it does not start; whatever a service of
        the broker fails with.
        """
        parts = self.parts
        with ExitStack() as opened:
            # Bound before the store is touched: a taken port refuses the start at no cost. Until
            # it is recovered clients are refused, so that they go on to another broker.
            listeners, metrics = self._bind(opened)
            try:
                async with trio.open_nursery() as house:
                    await house.start(parts.ticker.run)
                    if metrics is not None:
                        house.start_soon(self._serve_http, metrics)
                    recovery = await self._recover()
                    await self._open_house(house)
                    opened.pop_all()
                    await self._open_door(listeners, recovery, ready)
                    house.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S):
                    clean = await parts.store.close()
        log.info("broker.stopped", clean=clean)
        return clean

    # -- start -----------------------------------------------------------------------------------

    def _bind(self, opened: ExitStack) -> tuple[list[Listener], socket.socket | None]:
        remoting, namesrv = self.config.remoting, self.config.namesrv
        processors = self.parts.processors
        names = routes.namesrv_routes(processors.route) if namesrv.embedded_namesrv else ()
        table = (*routes.broker_routes(processors), *names)
        wanted = [
            ("broker", "listenPort", remoting.listen_port, table),
            ("vip", "vipListenPort", remoting.vip_listen_port, table),
            ("namesrv", "namesrvListenPort", namesrv.namesrv_listen_port if names else 0, names),
        ]
        listeners = []
        for name, key, port, served in wanted:
            if port:
                try:
                    sock = boss.bind(
                        remoting.bind_address,
                        port,
                        send_bytes=remoting.server_socket_snd_buf_size_bytes,
                        receive_bytes=remoting.server_socket_rcv_buf_size_bytes,
                    )
                except OSError as error:
                    raise http.with_remedy(
                        error, "bindAddress", f"set {key} to another port"
                    ) from error
                opened.enter_context(sock)
                listeners.append(Listener(name, sock, served))
        metrics = self._bind_metrics()
        if metrics is not None:
            opened.enter_context(metrics)
        return listeners, metrics

    def _bind_metrics(self) -> socket.socket | None:
        config = self.config.metrics
        if config.metrics_exporter_type.name != "PROM":
            return None
        return http.open_listener(
            config.metrics_prom_exporter_host, config.metrics_prom_exporter_port
        )

    async def _recover(self) -> Recovery:
        """In a thread: nothing else touches the store yet, and the loop answers probes."""
        parts = self.parts
        async with trio.open_nursery() as beside:
            beside.start_soon(self._tell_progress)
            recovery = await trio.to_thread.run_sync(parts.load)
            beside.cancel_scope.cancel()
        parts.registration.register_own()
        return recovery

    async def _tell_progress(self) -> NoReturn:
        store = self.parts.store
        while True:
            await trio.sleep(PROGRESS_S)
            log.info("store.recovery_progress", **msgspec.structs.asdict(store.stats.recovery))

    async def _open_house(self, house: trio.Nursery) -> None:
        parts = self.parts
        for service in parts.services:
            await house.start(service.run)
        await house.start(self._housekeeping().run)
        house.start_soon(parts.hold.run, parts.reactor.flush)
        house.start_soon(parts.pop_hold.run, parts.finish_round)

    def _housekeeping(self) -> Housekeeping:
        parts = self.parts
        return Housekeeping(
            clients=parts.processors.client,
            locks=parts.locks,
            orders=parts.state.orders,
            routes=parts.routes,
            clock=parts.clock,
            channel_expired_timeout_ms=lambda: self.config.broker.channel_expired_timeout_ms,
            broker_scan_interval_ms=self.config.namesrv.scan_not_active_broker_interval_ms,
        )

    async def _serve_http(self, listener: socket.socket) -> None:
        parts = self.parts
        root = parts.store.root
        sources = make_sources(
            self.config,
            stats=parts.stats,
            store=parts.store,
            disk=parts.disk,
            root=root,
            remoting=parts.reactor.stats,
            pools=parts.reactor.pools,
            topics=parts.topics,
            groups=parts.groups,
            clients=parts.clients,
            transactions=parts.transactions,
            timers=parts.timers,
        )
        health = make_health(
            serving=lambda: self.serving,
            stopping=self.stop_wanted.is_set,
            stats=parts.stats,
            store=parts.store,
            disk=parts.disk,
            root=root,
            clock=parts.clock,
        )
        await http.serve_http(listener, sources, health)

    # -- serve and stop --------------------------------------------------------------------------

    async def _open_door(
        self,
        listeners: list[Listener],
        recovery: Recovery,
        ready: Callable[[Ready], None],
    ) -> None:
        parts = self.parts
        async with trio.open_nursery() as door:
            for listener in listeners:
                boss.listen_on(listener.sock, self.config.remoting.server_socket_backlog)
            await door.start(parts.reactor.run, listeners)
            self.serving = True
            ready(self._ready(recovery))
            await self.stop_wanted.wait()
            log.info("broker.stopping")
            self.serving = False
            await parts.registration.leave()
            parts.hold.release_all()
            parts.pop_hold.release_all()
            parts.reactor.flush()
            await self._drain()
            door.cancel_scope.cancel()
        saved = False
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S):
            parts.puts.close()
            await parts.store.space.make_room()
            await parts.half_messages.save_progress()
            if parts.timers is not None:
                await parts.timers.close()
            saved = await parts.saver.save_all()
        if not saved:
            # So that this is no clean stop: what a table lacks, the next start takes from the log.
            parts.store.flags.set(Flag.NOT_WRITEABLE, "the tables could not be saved")

    def _ready(self, recovery: Recovery) -> Ready:
        remoting, namesrv = self.config.remoting, self.config.namesrv
        names = self.config.broker.namesrv_addr or "none"
        if namesrv.embedded_namesrv:
            port = namesrv.namesrv_listen_port or remoting.listen_port
            names = f"{remoting.bind_address}:{port}"
        return Ready(
            f"{remoting.bind_address}:{remoting.listen_port}",
            names,
            str(self.parts.store.root.absolute()),
            recovery,
        )

    async def _drain(self) -> None:
        """Let what is being answered leave, for a while."""
        parts, reactor = self.parts, self.parts.reactor

        def answering() -> bool:
            depths = any(pool.depth for pool in reactor.pools.values())
            return depths or parts.hold.waking or parts.pop_hold.waking or reactor.unsent_bytes > 0

        with trio.move_on_after(DRAIN_S):
            # Nobody is told when the last answer leaves, and this runs once per life.
            while answering():  # noqa: ASYNC110  (see above)
                await trio.sleep(DRAIN_LOOK_S)
