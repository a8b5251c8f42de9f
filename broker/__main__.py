"""The broker as a process: configuration in, exit code out. `aerobee broker run` calls `run`.

`aerobee nameserver run` calls `run_nameserver`: the same without a store.

Prints the ready line to stdout and nothing else; everything else is a log line on stderr.
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

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.settings.process import LogFormat
from aerobee.broker.errors import TableDamaged
from aerobee.broker.process import log as logging
from aerobee.broker.process.cycles import GC_THRESHOLDS, YOUNG_S, collect_cycles
from aerobee.broker.process.host import (
    descriptor_limit,
    descriptors_in_use,
    raise_descriptor_limit,
)
from aerobee.broker.process.log_stream import LineStream, LogFile, fill_standard_descriptors
from aerobee.broker.process.service_manager import ServiceManager
from aerobee.broker.process.signals import LAME_DUCK, RELOAD, RENEW, REOPEN, Signals
from aerobee.broker.process.stall_watch import StallWatch
from aerobee.broker.start_checks import may_start
from aerobee.remoting.server.boss import reserve
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.controller import BrokerController, Ready
    from aerobee.broker.counters.server_stats import LoopStats
    from aerobee.broker.live_settings.live_settings import LiveSettings
    from aerobee.broker.namesrv.controller import NamesrvController, NamesrvReady
    from aerobee.broker.supervisor.supervisor import Supervisor, SupervisorReady
    from aerobee.broker.users.directory import UserDirectory

DONE: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
STORE_REFUSED: Final = 3

IDLE_YOUNG_S: Final = 2.0
"""A supervisor makes few objects."""
FIRST_SECRET: Final = "first-admin.secret"
"""The file with the secret of the first admin, beside that of the users."""
FEW_DESCRIPTORS: Final = 128
"""With fewer descriptors left for connections than this, the start logs a warning."""

log = structlog.stdlib.get_logger(__name__)


def run(
    config: BrokerConfig,
    *,
    reread: Callable[[], BrokerConfig] | None = None,
    again: Callable[[int], Sequence[str]] = lambda number: (),
) -> int:
    """Run a broker in the foreground until a signal stops it; a second one ends it at once.

    On SIGHUP it takes over what `reread` gives, which may raise ConfigurationError. Several brokers
    run as processes of their own: `again` gives the command of the one with that number.
    Returns the exit code: 0 stopped clean, 1 failed, 2 a file of settings is wrong,
    3 the store refused to start.
    """
    reread = reread or (lambda: config)
    serve = partial(_serve, config, reread=reread)
    if config.broker.broker_count > 1:
        serve = partial(_serve_brokers, config, reread=reread, again=again)
    return _in_foreground(
        config,
        serve,
        may_start,
    )


def run_nameserver(config: BrokerConfig, *, reread: Callable[[], BrokerConfig]) -> int:
    """Run a name server alone, in the same way. Returns the same exit codes."""
    serve = partial(_serve_names, config, reread=reread)
    return _in_foreground(config, serve, lambda config, disk: True)


def refuse(config: BrokerConfig, error: ConfigurationError) -> int:
    """Tell in the log why one of several brokers does not start. Returns the exit code.

    `config`: says how to log, and for whom; `error`: of the settings that it was to run with.
    """

    async def serve(disk: Disk, surroundings: Surroundings) -> bool:
        raise ConfigurationError(["; ".join(error.problems)])

    return _in_foreground(config, serve, lambda config, disk: True)


def supervisor() -> socket.socket:
    """The socket to the supervisor that has started this process: its stdin."""
    return socket.fromfd(0, socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Surroundings:
    """What the process has around its loop: the log and the service manager."""

    def __init__(self, config: BrokerConfig) -> None:
        """Set up the log. Raises: OSError when its file cannot be opened."""
        said = self.said = config.process
        self.is_member = config.member
        path = said.log_file
        self.lines = LogFile(Path(path)) if path else LineStream(sys.stderr)
        self.service_manager = ServiceManager(os.environ, supervisor() if config.member else None)
        self.when_reopened: Callable[[], None] | None = None
        logging.configure(
            said.log_level.lower(),
            stream=self.lines,
            as_json=None if said.log_format == LogFormat.AUTO else said.log_format == "JSON",
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
        logging.set_level(self.said.log_level.lower())
        loop.stall_s = self.said.loop_stall_ms / 1000
        yield from ()


def _in_foreground(
    config: BrokerConfig,
    serve: Callable[[Disk, Surroundings], Awaitable[bool]],
    may_start: Callable[[BrokerConfig, Disk], bool],
) -> int:
    fill_standard_descriptors()
    os.umask(0o077)
    try:
        surroundings = Surroundings(config)
    except OSError as error:
        LineStream(sys.stderr).write(
            f"logFile: {config.process.log_file}: {error.strerror}; name a file in a directory that"
            " this user may write to\n"
        )
        return FAILED
    try:
        return _run(config, surroundings, serve, may_start)
    finally:
        surroundings.service_manager.close()
        surroundings.lines.drain()


def _run(
    config: BrokerConfig,
    surroundings: Surroundings,
    serve: Callable[[Disk, Surroundings], Awaitable[bool]],
    may_start: Callable[[BrokerConfig, Disk], bool],
) -> int:
    for warning in config.warnings:
        log.warning("config.warning", text=warning)
    raise_descriptor_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    disk = Disk()
    if not may_start(config, disk):
        return STORE_REFUSED
    code = FAILED
    try:
        clean = trio.run(serve, disk, surroundings, strict_exception_groups=True)
        code = DONE if clean else FAILED
    except* (StoreRefused, TableDamaged) as refusals:
        code = STORE_REFUSED
        _log_reasons(refusals)
    except* ConfigurationError as problems:
        code = WRONG_SETTINGS
        _log_reasons(problems)
    except* OSError as errors:
        _log_reasons(errors)
    return code


async def _serve(
    config: BrokerConfig,
    disk: Disk,
    surroundings: Surroundings,
    *,
    reread: Callable[[], BrokerConfig],
) -> bool:
    from aerobee.broker.controller import BrokerController

    controller = BrokerController(config, disk=disk, clock=SystemClock())
    life = Life(surroundings, controller, controller.broker.settings.live, reread)

    def serving(told: Ready) -> None:
        _announce_admin(controller.broker.users.directory)
        _announce(told)
        life.serving(f"serving at {told.broker}")

    parent = partial(_end_with_parent, controller) if config.member else None
    return await life.run(partial(controller.run, serving), parent)


async def _end_with_parent(controller: BrokerController) -> None:
    """Stop when the supervisor is gone: it holds the other end of stdin, and writes nothing."""
    await trio.lowlevel.wait_readable(0)
    if controller.stop_wanted.is_set():
        # Its second stop signal. The abort file stays, and the next start recovers.
        os._exit(FAILED)
    log.warning("member.orphaned")
    controller.stop()


async def _serve_brokers(
    config: BrokerConfig,
    disk: Disk,
    surroundings: Surroundings,
    *,
    reread: Callable[[], BrokerConfig],
    again: Callable[[int], Sequence[str]],
) -> bool:
    from aerobee.broker.supervisor.supervisor import Supervisor

    supervisor = Supervisor(
        config,
        command=again,
        environ=os.environ,
        disk=disk,
        clock=SystemClock(),
        silence_s=surroundings.service_manager.watchdog_s,
    )
    surroundings.when_reopened = partial(supervisor.members.signal, REOPEN)
    renew: dict[int, Callable[[], None]] = {RENEW: supervisor.renew}
    life = Life(surroundings, supervisor, supervisor.live, reread, renew, young_s=IDLE_YOUNG_S)

    def serving(told: SupervisorReady) -> None:
        _announce_brokers(told, len(supervisor.numbers))
        life.serving(f"serving at {', '.join(told.brokers)}")

    return await life.run(partial(supervisor.run, serving))


async def _serve_names(
    config: BrokerConfig,
    disk: Disk,
    surroundings: Surroundings,
    *,
    reread: Callable[[], BrokerConfig],
) -> bool:
    from aerobee.broker.namesrv.controller import NamesrvController

    controller = NamesrvController(config, disk=disk, clock=SystemClock())
    life = Life(surroundings, controller, controller.live, reread)

    def serving(told: NamesrvReady) -> None:
        _announce_admin(controller.users)
        _announce_names(told)
        life.serving(f"serving at {told.namesrv}")

    return await life.run(partial(controller.run, serving))


class Life:
    """The life of the process around a controller: signals, settings, the service manager."""

    def __init__(
        self,
        surroundings: Surroundings,
        controller: BrokerController | NamesrvController | Supervisor,
        live: LiveSettings,
        reread: Callable[[], BrokerConfig],
        actions: Mapping[int, Callable[[], None]] | None = None,
        young_s: float = YOUNG_S,
    ) -> None:
        """`actions`: for further signals. `young_s`: see `collect_cycles`."""
        self._young_s = young_s
        self._service_manager = surroundings.service_manager
        self._controller = controller
        self._reread = reread
        self._ready = trio.Event()
        self._status = ""
        # Of signals that come while it reads, one is enough.
        self._reload, self._reloads = trio.open_memory_channel[None](1)
        self._signals = Signals(
            controller.stop,
            {
                RELOAD: self._wish_reload,
                REOPEN: surroundings.reopen,
                LAME_DUCK: controller.lame_duck,
                **(actions or {}),
            },
            # A service manager may signal all processes, and the supervisor tells its members, too.
            patient=surroundings.is_member,
        )
        follow = partial(surroundings.follow, controller.loop)
        live.when_changed.append(follow)
        for _ in follow():
            pass

    def serving(self, status: str) -> None:
        """Note that it is ready."""
        self._status = status
        self._service_manager.ready(status)
        self._ready.set()

    async def run(
        self,
        serve: Callable[[], Awaitable[bool]],
        parent: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Serve and obey signals; settings are read again once it is ready.

        Cyclic garbage is searched for from here on, but not among what the imports have made.

        `parent`: what to do beside that where another process has started this one.
        """
        gc.freeze()
        gc.enable()
        self._signals.start()
        StallWatch(self._controller.loop, SystemClock()).start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._service_manager.attend, self._ready)
                nursery.start_soon(self._reload_when_asked)
                nursery.start_soon(self._tell_stop)
                nursery.start_soon(collect_cycles, self._young_s)
                if parent is not None:
                    nursery.start_soon(parent)
                clean = await serve()
                nursery.cancel_scope.cancel()
        finally:
            self._signals.end()
        return clean

    def _wish_reload(self) -> None:
        with suppress(trio.WouldBlock):
            self._reload.send_nowait(None)

    async def _reload_when_asked(self) -> NoReturn:
        await self._ready.wait()
        while True:
            await self._reloads.receive()
            self._service_manager.reloading()
            await self._controller.reload(self._reread)
            self._service_manager.ready(self._status)

    async def _tell_stop(self) -> None:
        await self._controller.stop_wanted.wait()
        self._service_manager.stopping()


def _announce(ready: Ready) -> None:
    recovery = ready.recovery
    how = "clean" if recovery.clean else "abnormal"
    if recovery.cut_bytes or not recovery.clean:
        how += f", cut {recovery.cut_bytes} B"
    # A stdout that is full or closed must not stop the broker: the log has the same line.
    LineStream(sys.stdout).write(
        f"aerobee ready broker={ready.broker} namesrv={ready.namesrv} data={ready.data} "
        f"recovered={how} in {_process_age_s():.2f} s\n"
    )
    log.info("broker.started", broker=ready.broker, namesrv=ready.namesrv, data=ready.data)
    _announce_descriptors()
    # Objects made at start-up need no search. Do not collect now: clients are being served, and it
    # takes tens of milliseconds.
    gc.freeze()


def _announce_brokers(ready: SupervisorReady, brokers: int) -> None:
    LineStream(sys.stdout).write(
        f"aerobee ready broker={','.join(ready.brokers)} namesrv={ready.namesrv} data={ready.data} "
        f"recovered={ready.serving} of {brokers} brokers in {_process_age_s():.2f} s\n"
    )
    log.info(
        "supervisor.started",
        brokers=brokers,
        serving=ready.serving,
        namesrv=ready.namesrv,
        data=ready.data,
    )
    gc.freeze()


def _announce_names(ready: NamesrvReady) -> None:
    LineStream(sys.stdout).write(
        f"aerobee ready namesrv={ready.namesrv} data={ready.data} in {_process_age_s():.2f} s\n"
    )
    log.info("namesrv.started", namesrv=ready.namesrv, data=ready.data)
    _announce_descriptors()
    gc.freeze()


def _announce_admin(users: UserDirectory) -> None:
    """Tell the secret of the first admin once, and not in the log: on a terminal, else in a file.

    A service manager, or a container, keeps what is written on stderr, and shows it to others.
    """
    if users.first_admin is None:
        return
    name, secret = users.first_admin
    place = users.users_file.file.path.with_name(FIRST_SECRET)
    told = f"secret key {secret} (told only now"
    if sys.stderr is None or not sys.stderr.isatty():
        try:
            _write_secret(place, secret)
        except OSError as error:
            log.error("user.secret_not_written", path=str(place), error=str(error))
        else:
            told = f"secret key in {place} (remove that file"
    LineStream(sys.stderr).write(
        "aerobee: there was no user, so this start has made one that may do everything:"
        f" access key {name}, {told}; change it with `aerobee users update {name} --secret`)\n"
    )


def _write_secret(path: Path, secret: str) -> None:
    """Write a file that its owner alone may read, in place of one that is there."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w") as file:
        file.write(f"{secret}\n")


def _announce_descriptors() -> None:
    """Log the limit on descriptors; each segment of the log and each queue file in use takes
    some.
    """
    limit = descriptor_limit()
    if limit is None:
        return
    reserved, in_use = reserve(limit), descriptors_in_use()
    log.info("broker.descriptors", limit=limit, reserved=reserved, in_use=in_use)
    left = limit - reserved - in_use
    if left < FEW_DESCRIPTORS:
        wanted = in_use + FEW_DESCRIPTORS
        # Of any limit at most a quarter is reserved.
        needed = wanted + reserve(-(-wanted * 4 // 3))
        log.warning(
            "broker.descriptors_few",
            for_connections=max(0, left),
            remedy=f"raise the limit on open files to {needed} at least (ulimit -n, LimitNOFILE)",
        )


def _process_age_s() -> float:
    """Seconds since the process began, interpreter start included; 0 if not known."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, AttributeError):
        return 0.0


def _log_reasons(group: BaseExceptionGroup[BaseException]) -> None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _log_reasons(error)
        else:
            log.error("broker.refused", reason=str(error))
