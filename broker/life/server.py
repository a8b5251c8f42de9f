"""The server that a process runs: a broker, a name server, or a supervisor.

It binds all ports first, says with `ReadyReport` that it serves, and ends by `stop`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from aerobee.broker.http import listener as http
from aerobee.broker.http.health import may_scrape_by
from aerobee.broker.process.cycles import YOUNG_S
from aerobee.remoting.server import boss

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import ExitStack

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.counters.server_stats import LoopStats
    from aerobee.broker.http.health import Health
    from aerobee.broker.live_settings.live_settings import LiveSettings
    from aerobee.broker.metrics.figures import ServerSources
    from aerobee.broker.process.listener_tls import ListenerTls
    from aerobee.broker.users.directory import UserDirectory


class ReadyReport(NamedTuple):
    """The report of a process that serves."""

    brokers: Sequence[str]
    """The addresses of its brokers; none of a name server."""
    namesrv: str
    data: str
    recovered: str = ""
    """How the start went, where there was something to recover."""


class Port(NamedTuple):
    """A port that a start binds. `remedy`: what to do when it is taken."""

    number: int
    remedy: str
    address: str


class Reloadable(Protocol):
    """A part with files of its own."""

    async def reload(self) -> None: ...


class Server:
    """The server that the process runs, from nothing to stopped. `run` may be called once."""

    loop: LoopStats
    live: LiveSettings
    tls: ListenerTls
    reloaded: Sequence[Reloadable] = ()
    """The parts that read their files again with the settings."""
    users: UserDirectory | None = None
    """The users of which the start may have made the first."""
    anew = False
    """Whether it stops in order to start again, by itself."""
    young_s = YOUNG_S
    """See `collect_cycles`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.stop_wanted = trio.Event()
        self.serving = False

    async def run(self, ready: Callable[[ReadyReport], None]) -> bool:
        """Serve until `stop`; whether the stop was clean.

        Raises: StoreRefused, TableDamaged, ConfigurationError, OSError when it does not start; and
        the error of any failed service.
        """
        raise NotImplementedError

    async def reload(self, reread: Callable[[], BrokerConfig]) -> None:
        """Take over live settings and certificates. `reread`: see `LiveSettings.reload`."""
        await self.live.reload(reread)
        for part in self.reloaded:
            await part.reload()

    def blocks_in_use(self) -> int:
        """How many blocks of memory its connections and tables take: see `collect_cycles`."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask for a clean stop; callable from anywhere in the loop."""
        self.stop_wanted.set()

    def lame_duck(self) -> None:
        """Ask for a stop that has clients leave first; those of a name server ask another one."""

    def renew(self) -> None:
        """Ask for a restart of all brokers, one by one; nothing where there is one process."""

    def reopened(self) -> None:
        """The log file was opened again."""

    def bind(
        self,
        opened: ExitStack,
        ports: Iterable[Port],
        http_listeners: Sequence[Callable[[], socket.socket | None]] = (),
    ) -> tuple[list[socket.socket], list[socket.socket | None]]:
        """The sockets of all ports, and those of HTTP, that of metrics first; an error names all
        ports that are taken. `http_listeners`: open those beside that of metrics.

        Bound before anything else: a port in use refuses the start at no cost. Raises: OSError.
        """
        remoting = self.config.remoting
        sockets: list[socket.socket] = []
        errors: list[OSError] = []
        for port in ports:
            try:
                sock = boss.bind(
                    port.address,
                    port.number,
                    send_bytes=remoting.server_socket_snd_buf_size_bytes,
                    receive_bytes=remoting.server_socket_rcv_buf_size_bytes,
                )
            except OSError as error:
                errors.append(http.with_remedy(error, "bindAddress", port.number, port.remedy))
            else:
                sockets.append(opened.enter_context(sock))
        of_http: list[socket.socket | None] = []
        openers: list[Callable[[], socket.socket | None]] = [
            partial(http.listener_of, self.config.metrics),
            *http_listeners,
        ]
        for open_listener in openers:
            try:
                listener = open_listener()
            except OSError as error:
                errors.append(error)
                continue
            of_http.append(None if listener is None else opened.enter_context(listener))
        http.refuse_all(errors)
        return sockets, of_http

    async def serve_http(
        self, listener: socket.socket, sources: ServerSources, health: Health
    ) -> None:
        """Serve metrics and probes until cancelled."""
        may_scrape, most = may_scrape_by(self.config), self.config.metrics
        await http.serve_http(
            listener,
            sources,
            health,
            may_scrape,
            self.tls.http if self.config.metrics.metrics_tls_enable else None,
            most=most.metrics_max_connections,
        )
