"""The life of a process around its server: signals, settings that are read again, the service
manager, the ready line. `Surroundings` are there before the loop runs.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.config.settings.process import LogFormat
from aerobee.broker.process import log as logging
from aerobee.broker.process.cycles import collect_cycles
from aerobee.broker.process.host import descriptor_limit, descriptors_in_use
from aerobee.broker.process.log_stream import LineStream, LogFile
from aerobee.broker.process.service_manager import ServiceManager
from aerobee.broker.process.signals import KILLED, LAME_DUCK, RELOAD, RENEW, REOPEN, Signals
from aerobee.broker.process.stall_watch import StallWatch
from aerobee.remoting.server import boss
from aerobee.store.files.system_clock import SystemClock
from aerobee.threads import RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.counters.server_stats import LoopStats
    from aerobee.broker.life.server import ReadyReport, Server
    from aerobee.broker.users.directory import UserDirectory

FIRST_SECRET: Final = "first-admin.secret"
"""The file with the secret of the first admin, beside that of the users."""
FEW_DESCRIPTORS: Final = 128
"""With fewer descriptors left for connections than this, the start logs a warning."""

log = structlog.stdlib.get_logger(__name__)


def supervisor_socket() -> socket.socket:
    """The socket to the supervisor that has started this process: its stdin."""
    return socket.fromfd(0, socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Surroundings:
    """The surroundings of the process's loop: the log and the service manager."""

    def __init__(self, config: BrokerConfig) -> None:
        """Set up the log. Raises: OSError when its file cannot be opened."""
        process = self.process = config.process
        self.is_member = config.member
        path = process.log_file
        self.lines = LogFile(Path(path)) if path else LineStream(sys.stderr)
        self.service_manager = ServiceManager(
            os.environ, supervisor_socket() if config.member else None
        )
        self.when_reopened: Callable[[], None] | None = None
        logging.configure(
            process.log_level.lower(),
            stream=self.lines,
            as_json=None if process.log_format == LogFormat.AUTO else process.log_format == "JSON",
            journal=not path and sys.stderr is not None and logging.is_journal(2, os.environ),
            broker=config.broker.broker_name if config.member else None,
        )

    def reopen(self) -> None:
        """Open the log file again, which was renamed."""
        if self.when_reopened is not None:
            self.when_reopened()
        if isinstance(self.lines, LogFile):
            try:
                self.lines.reopen()
            except OSError as error:
                log.error("log.not_reopened", path=str(self.lines.path), error=str(error))
            else:
                log.info("log.reopened", path=str(self.lines.path))

    def follow(self, loop: LoopStats) -> Iterator[None]:
        """Take over the settings that may change while it runs."""
        logging.set_level(self.process.log_level.lower())
        loop.stall_s = self.process.loop_stall_ms / 1000
        yield from ()


class Life:
    """The life of the process around a controller: signals, settings, the service manager."""

    def __init__(
        self,
        surroundings: Surroundings,
        server: Server,
        reread: Callable[[], BrokerConfig],
    ) -> None:
        self._surroundings = surroundings
        self._service_manager = surroundings.service_manager
        self._server = server
        self._reread = reread
        self._ready = trio.Event()
        self._status = ""
        # Of the signals that come while it reads, one has an effect.
        self._reload, self._reloads = trio.open_memory_channel[None](1)
        surroundings.when_reopened = server.reopened
        self._signals = Signals(
            server.stop,
            {
                RELOAD: self._request_reload,
                REOPEN: surroundings.reopen,
                LAME_DUCK: server.lame_duck,
                RENEW: server.renew,
            },
            # A service manager may signal all processes, and the supervisor tells its members, too.
            patient=surroundings.is_member,
        )
        follow = partial(surroundings.follow, server.loop)
        server.live.when_changed.append(follow)
        for _ in follow():
            pass

    async def run(self) -> bool:
        """Serve and obey signals; settings are read again once it is ready. Whether the stop was
        clean.

        Cyclic garbage is searched for from here on, but not among what the imports have made.
        """
        gc.freeze()
        gc.enable()
        self._signals.start()
        RESERVE.hold()
        StallWatch(self._server.loop, SystemClock()).start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._service_manager.attend, self._ready)
                nursery.start_soon(self._reload_on_request)
                nursery.start_soon(self._tell_stop)
                nursery.start_soon(collect_cycles, self._server.young_s, self._server.blocks_in_use)
                if self._surroundings.is_member:
                    nursery.start_soon(self._end_with_parent)
                clean = await self._server.run(self._serving)
                nursery.cancel_scope.cancel()
        finally:
            RESERVE.let_go()
            self._signals.end()
        return clean

    def _serving(self, ready: ReadyReport) -> None:
        """Tell everybody that it is ready."""
        if self._server.users is not None:
            announce_admin(self._server.users)
        announce(ready)
        self._status = f"serving at {', '.join(ready.brokers) or ready.namesrv}"
        self._service_manager.ready(self._status)
        self._ready.set()

    async def _end_with_parent(self) -> None:
        """Stop when the supervisor is gone: it holds the other end of stdin, and writes nothing."""
        await trio.lowlevel.wait_readable(0)
        if self._server.stop_wanted.is_set():
            # Its second stop signal. The abort file stays, and the next start recovers.
            os._exit(KILLED)
        log.warning("member.orphaned")
        self._server.stop()

    def _request_reload(self) -> None:
        with suppress(trio.WouldBlock):
            self._reload.send_nowait(None)

    async def _reload_on_request(self) -> NoReturn:
        await self._ready.wait()
        while True:
            await self._reloads.receive()
            self._service_manager.reloading()
            await self._server.reload(self._reread)
            self._service_manager.ready(self._status)

    async def _tell_stop(self) -> None:
        await self._server.stop_wanted.wait()
        if self._server.anew:
            self._service_manager.reloading()
        else:
            self._service_manager.stopping()


def announce(ready: ReadyReport) -> None:
    """Print the ready line."""
    facts = {
        "broker": ",".join(ready.brokers),
        "namesrv": ready.namesrv,
        "data": ready.data,
        "recovered": ready.recovered,
    }
    words = " ".join(f"{name}={text}" for name, text in facts.items() if text)
    # A stdout that is full or closed must not stop the process: the log has the same line.
    LineStream(sys.stdout).write(f"aerobee ready {words} in {process_age_s():.2f} s\n")
    announce_descriptors()
    # Objects made at start-up need no search. Do not collect now: clients are being served, and it
    # takes tens of milliseconds.
    gc.freeze()


def announce_admin(users: UserDirectory) -> None:
    """Tell the secret of the first admin once, and not in the log: on a terminal, else in a file.

    A service manager, or a container, keeps what is written on stderr, and shows it to others.
    """
    if users.first_admin is None:
        return
    name, secret = users.first_admin
    place = users.users_file.file.path.with_name(FIRST_SECRET)
    words = f"secret key {secret} (told only now"
    if sys.stderr is None or not sys.stderr.isatty():
        try:
            write_secret(place, secret)
        except OSError as error:
            log.error("user.secret_not_written", path=str(place), error=str(error))
        else:
            words = f"secret key in {place} (remove that file"
    LineStream(sys.stderr).write(
        "aerobee: there was no user, so this start has made one that may do everything:"
        f" access key {name}, {words}; change it with `aerobee users update {name} --secret`)\n"
    )


def write_secret(path: Path, secret: str) -> None:
    """Write a file that its owner alone may read, in place of one that is there."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w") as file:
        file.write(f"{secret}\n")


def announce_descriptors() -> None:
    """Log the limit on descriptors; each segment of the log and each queue file in use takes
    some.
    """
    limit = descriptor_limit()
    if limit is None:
        return
    reserved, in_use = boss.reserve(limit), descriptors_in_use()
    log.info("broker.descriptors", limit=limit, reserved=reserved, in_use=in_use)
    left = limit - reserved - in_use
    if left < FEW_DESCRIPTORS:
        wanted = in_use + FEW_DESCRIPTORS
        # Of any limit at most a quarter is reserved.
        needed = wanted + boss.reserve(-(-wanted * 4 // 3))
        log.warning(
            "broker.descriptors_few",
            for_connections=max(0, left),
            remedy=f"raise the limit on open files to {needed} at least (ulimit -n, LimitNOFILE)",
        )


def process_age_s() -> float:
    """Seconds since the process began, interpreter start included; 0 if not known."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, AttributeError):
        return 0.0
