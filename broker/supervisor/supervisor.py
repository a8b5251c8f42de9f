"""The supervisor of several brokers with one configuration: their processes, the name server, and
one HTTP listener for all. It never touches a message.

    services       end last: HTTP
    └ name_server  ends after the brokers
      └ members    end first: the brokers, each a process with a data directory of its own

Start: refuse a directory of another number of brokers → lock → bind HTTP, try the ports → the name
server → all brokers at once → ready when each of them serves or has been tried. Stop: all brokers
at once → the name server. Where none of them can start, it ends with their exit code.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.members import (
    CONSOLE_KEY,
    member_directory,
    member_name,
    member_ports,
    supervisor_config,
)
from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.http import listener as http
from aerobee.broker.http.health import Health, loop_turns, may_scrape_by
from aerobee.broker.life.server import Port, ReadyReport, Server
from aerobee.broker.namesrv.controller import NamesrvController
from aerobee.broker.namesrv.metrics import MemberFigures
from aerobee.broker.namesrv.registrations import MASTER_ID
from aerobee.broker.process.signals import LAME_DUCK, RELOAD, REOPEN
from aerobee.broker.supervisor.asking import merge_expositions, metrics_of, not_ready_reason
from aerobee.broker.supervisor.members import Members, State
from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.lock_file import LockFile
from aerobee.store.recovery import start_check

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

LOCK: Final = "lock"
"""The file that one broker alone would lock."""
ORPHANS_S: Final = 15.0
"""How long a start waits for brokers whose supervisor was killed: they are about to stop."""
LOOK_S: Final = 0.1
IDLE_YOUNG_S: Final = 2.0
"""A supervisor makes few objects."""
TICK_S: Final = 0.25
"""The tick of its loop, through which no message goes: an idle supervisor costs next to nothing."""
READY_S: Final = 60.0
"""After this time it is ready with the brokers that serve, if others are still starting."""
WRONG_SETTINGS, REFUSED_STORE = 2, 3
"""Exit codes of a broker."""
CLEAN: Final = frozenset({0, None, -signal.SIGTERM, -LAME_DUCK})
"""Exit codes of members after which nothing is left to repair: also of one that was not started, or
stopped by a signal before it obeyed any, when it has not opened its store.
"""

log = structlog.stdlib.get_logger(__name__)


class Supervisor(Server):
    """All brokers of one configuration, from nothing to stopped. `run` may be called once."""

    young_s = IDLE_YOUNG_S

    def __init__(
        self,
        config: BrokerConfig,
        *,
        command: Callable[[int], Sequence[str]],
        environ: Mapping[str, str],
        disk: Disk,
        clock: Clock,
        silence_s: float,
    ) -> None:
        """`command`, `silence_s`: see `Members`."""
        super().__init__(config)
        self.numbers = range(config.broker.broker_count)
        self.disk = disk
        self.names = NamesrvController(supervisor_config(config), disk=disk, clock=clock)
        self.loop = self.names.loop
        self.names.ticker.tick_s = TICK_S
        self.live = self.names.live
        self.members = Members(
            [member_name(config, number) for number in self.numbers],
            command,
            environ,
            silence_s=silence_s,
        )
        self.lock = LockFile(disk, self.names.root / LOCK)
        self.health = Health(
            startup={"brokers": self._starting},
            live={"loop": loop_turns(self.loop, clock)},
            ready={},
        )
        self.tls = self.names.tls
        # Of the requests that come during a restart, one has an effect.
        self._renew, self._renewals = trio.open_memory_channel[None](1)
        self.saved = False
        """Whether the name server stopped cleanly."""
        self.settled = False
        """Whether every member serves or was tried, and at least one serves."""
        self.refused: int | None = None
        """The exit code of the members, where none of them could start."""

    def blocks_in_use(self) -> int:
        """See `Server.blocks_in_use`."""
        return self.names.blocks_in_use()

    def stop(self) -> None:
        """Ask for a clean stop of all; callable from anywhere in the loop."""
        super().stop()
        self.members.stop()

    def lame_duck(self) -> None:
        """Ask all brokers to have their clients leave, and stop then."""
        self.members.stop(LAME_DUCK)

    def renew(self) -> None:
        """Ask for a restart of all brokers, one by one: a new version of Aerobee serves then."""
        with suppress(trio.WouldBlock):
            self._renew.send_nowait(None)

    async def _renew_when_asked(self) -> NoReturn:
        while True:
            await self._renewals.receive()
            await self.members.roll()

    def reopened(self) -> None:
        """The brokers open their log files again, too."""
        self.members.signal(REOPEN)

    async def reload(self, reread: Callable[[], BrokerConfig]) -> None:
        """Have all brokers read their settings again, and do so."""
        self.members.signal(RELOAD)
        await self.names.reload(lambda: supervisor_config(reread()))

    async def run(self, ready: Callable[[ReadyReport], None]) -> bool:
        """See `Server.run`; a stop is clean when that of every part was."""
        with ExitStack() as opened:
            start_check.make_directory(self.disk, self.names.root)
            self.lock.acquire()
            opened.callback(self.lock.release)
            await self._wait_for_orphans()
            probes = self._listener(opened)
            async with trio.open_nursery() as services:
                if probes is not None:
                    services.start_soon(self._serve_http, probes)
                async with trio.open_nursery() as name_server:
                    await name_server.start(self._serve_names)
                    async with trio.open_nursery() as members:
                        members.start_soon(self._settle, ready)
                        members.start_soon(self._renew_when_asked)
                        await self.members.run()
                        members.cancel_scope.cancel()
                    # Lame ducks take their time: only now it is a stop, with a limit of its own.
                    self.stop_wanted.set()
                    self.names.stop()
                services.cancel_scope.cancel()
        return self._ended()

    # ── Start ──

    async def _wait_for_orphans(self) -> None:
        """Wait until no broker uses the directory of a member. Raises: StoreLocked."""
        deadline = trio.current_time() + ORPHANS_S
        for number in self.numbers:
            root = Path(member_directory(str(self.names.root), number))
            while self._is_locked(root):
                if trio.current_time() > deadline:
                    raise StoreLocked(f"{root / LOCK} is locked by another broker: stop that one")
                await trio.sleep(LOOK_S)

    def _is_locked(self, root: Path) -> bool:
        if not self.disk.exists(root / LOCK):
            return False
        lock = LockFile(self.disk, root / LOCK)
        try:
            lock.acquire()
        except StoreLocked:
            return True
        except StoreUnusable:
            return False  # Its own start says why, and the other brokers serve.
        lock.release()
        return False

    def _listener(self, opened: ExitStack) -> socket.socket | None:
        """The HTTP listener; the ports of the members are tried. Raises: OSError."""
        hosts = {http.PORT_KEY: "127.0.0.1", CONSOLE_KEY: self.config.console.console_host}
        ports = [
            Port(
                port,
                f"set {key} to another port (this is the {key} of broker {number})",
                hosts.get(key, self.config.remoting.bind_address),
            )
            for number in self.numbers
            for key, port in member_ports(self.config, number).items()
            if port and (key != CONSOLE_KEY or key in self.config.sources)
        ]
        sockets, [probes] = self.bind(opened, ports)
        for sock in sockets:
            sock.close()
        return probes

    async def _serve_names(self, *, task_status: trio.TaskStatus[None]) -> None:
        def ready(report: ReadyReport) -> None:
            task_status.started()

        self.saved = await self.names.run(ready)

    async def _settle(self, ready: Callable[[ReadyReport], None]) -> None:
        """Say that it is ready, or stop it where no member could start; nothing where it is stopped
        meanwhile.
        """
        members = self.members.all
        with trio.move_on_after(READY_S):
            while not all(member.served or member.exit_code is not None for member in members):
                await self.members.change()
        while not self.members.stopping and not any(member.served for member in members):
            codes = [member.exit_code for member in members]
            if None not in codes:
                self.refused = max(code or 0 for code in codes)
                self.stop()
                return
            await self.members.change()
        if self.members.stopping:
            return
        self.settled = True
        serving = sum(member.state is State.READY for member in members)
        report = self._ready(serving)
        log.info(
            "supervisor.started",
            brokers=len(members),
            serving=serving,
            namesrv=report.namesrv,
            data=report.data,
        )
        ready(report)

    def _ready(self, serving: int) -> ReadyReport:
        bound, names = self.config.remoting.bind_address, self.config.namesrv.namesrv_listen_port
        ports = (member_ports(self.config, number)["listenPort"] for number in self.numbers)
        return ReadyReport(
            [with_port(bound, port) for port in ports],
            with_port(bound, names),
            str(self.names.root),
            f"{serving} of {len(self.numbers)} brokers",
        )

    def _starting(self) -> str | None:
        return None if self.settled else "brokers are starting"

    # ── Serve ──

    async def _serve_http(self, listener: socket.socket) -> None:
        await http.prepared()
        from aerobee.broker.http.app import Slots, serve
        from aerobee.broker.supervisor.http_app import make_app

        may_scrape = may_scrape_by(self.config)
        app = make_app(self.health, self._not_ready_reasons, self._scrape, may_scrape)
        slots = Slots(self.config.metrics.metrics_max_connections, self.names.reactor.stats)
        await serve(app, listener, slots, self.names.tls.http)

    def _http_port(self, number: int) -> int:
        return member_ports(self.config, number)[http.PORT_KEY]

    async def _not_ready_reasons(self) -> dict[str, str | None]:
        """Why each member, and the name server, is not ready."""
        from aerobee.broker.supervisor.http_app import NAMESRV

        reasons: dict[str, str | None] = {NAMESRV: self.names.health.ready["kv_config"]()}
        if self.stop_wanted.is_set():
            reasons[NAMESRV] = "the brokers are stopping"

        async def ask(name: str, number: int) -> None:
            reason = await not_ready_reason(self._http_port(number))
            reasons[name] = reason or self._unregistered(name)

        async with trio.open_nursery() as asking:
            for member in self.members.all:
                reasons[member.name] = member.trouble
                if member.state is State.READY:
                    asking.start_soon(ask, member.name, member.number)
        return reasons

    def _unregistered(self, name: str) -> str | None:
        """Why no client finds a member that is ready by itself; None: they do.

        A slave has the number of the settings, until it is made the master.
        """
        holder = self.names.role.route_table.holder
        numbers = {self.config.broker.broker_id, MASTER_ID}
        if any(holder(name, number) is not None for number in numbers):
            return None
        return "not registered with the name server: namesrv.unreachable in its log says why"

    async def _scrape(self, authorization: str) -> bytes:
        from aerobee.broker.metrics.metrics import pages

        texts: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            texts[number] = await metrics_of(self._http_port(number), authorization)

        async with trio.open_nursery() as asking:
            for member in self.members.all:
                if member.state is State.READY:
                    asking.start_soon(ask, member.number)
        own = replace(self.names.sources(), members=self._figures)
        named = [(self.members.all[number].name, texts[number]) for number in sorted(texts)]
        named.append((self.config.broker.broker_name, b"".join(pages(own))))
        return await merge_expositions(named)

    def _figures(self) -> list[MemberFigures]:
        return [
            MemberFigures(member.name, member.state is State.READY, max(0, member.starts - 1))
            for member in self.members.all
        ]

    # ── Stop ──

    def _ended(self) -> bool:
        """Whether all ended cleanly. Raises: what says why no member could start."""
        if self.refused is not None:
            text = f"none of the {len(self.numbers)} brokers could start: see their lines above"
            if self.refused == WRONG_SETTINGS:
                raise ConfigurationError([text])
            if self.refused == REFUSED_STORE:
                raise StoreLocked(text)
            raise OSError(text)
        return self.saved and all(member.exit_code in CLEAN for member in self.members.all)
