"""The broker as a process: configuration in, exit code out. `aerobee broker run` calls `run`.

`aerobee nameserver run` calls `run_nameserver`: the same without a store.

Prints the ready line to stdout and nothing else; everything else is a log line on stderr.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.report import beyond_disk
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.config.services import LogFormat
from aerobee.broker.errors import TableDamaged
from aerobee.broker.process import log as logging
from aerobee.broker.process.host import (
    descriptor_limit,
    descriptors_in_use,
    disk_bytes,
    nearest,
    raise_descriptor_limit,
)
from aerobee.broker.process.log_stream import LineStream, LogFile, fill_standard_descriptors
from aerobee.broker.process.service_manager import ServiceManager
from aerobee.broker.process.signals import LAME_DUCK, RELOAD, REOPEN, Signals
from aerobee.broker.process.stall_watch import StallWatch
from aerobee.remoting.server.boss import reserve
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.broker.controller import BrokerController, Ready
    from aerobee.broker.live_settings.live_settings import LiveSettings
    from aerobee.broker.namesrv_controller import NamesrvController, NamesrvReady
    from aerobee.broker.process.loop_stats import LoopStats

__all__ = ["run", "run_nameserver"]

DONE: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
STORE_REFUSED: Final = 3
VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "overlay"})

GC_THRESHOLDS: Final = (20_000, 1_000_000, 1_000_000)
"""Objects of a request are freed by reference count; frequent searches for cycles only cost time.
Set at the start, because the import of the web framework would trigger search after search. Later
`collect_cycles` mostly searches before so many objects exist, which takes 3 ms at most."""
YOUNG_S: Final = 0.05
"""How often the youngest generation is searched for cycles. The interpreter counts allocations less
deallocations: with thousands of held pulls, each of which evicts another, hundreds of thousands of
young objects accumulate uncounted, and one search of all of them took 0.2 s."""
LOOKS: Final = 5
"""After so many searches, the objects that survived are searched once more and then frozen."""
FEW_S: Final = 0.004
"""If the searches took longer, or the interpreter started one itself, too many objects survived:
they are frozen until the next full search. What thousands of new connections allocate has no
cycles."""
FEW_DESCRIPTORS: Final = 128
"""With fewer descriptors left for connections than this, the start logs a warning."""
WHOLE_S: Final = 86_400.0
"""How often everything is searched, which takes 0.1 s per million objects."""
GROWN_BLOCKS: Final = 1_000_000
"""Everything is searched sooner when so many blocks of memory were allocated since (some 100 MB),
and half as many again as there were: what was frozen before it became garbage would stay. Each bad
request to the HTTP port leaves 2 KiB of cycles, so a port scan could take all memory in a day."""

log = structlog.stdlib.get_logger(__name__)


def run(config: BrokerConfig, *, reread: Callable[[], BrokerConfig] | None = None) -> int:
    """Run a broker in the foreground until a signal stops it; a second one ends it at once.

    On SIGHUP it takes over what `reread` gives, which may raise ConfigurationError.
    Returns the exit code: 0 stopped clean, 1 failed, 2 a file of settings is wrong,
    3 the store refused to start.
    """
    return _in_foreground(
        config,
        partial(_serve, config, reread=reread or (lambda: config)),
        lambda *start: keeps_data(*start) and may_write(*start) and fits_disk(*start),
    )


def run_nameserver(config: BrokerConfig, *, reread: Callable[[], BrokerConfig]) -> int:
    """Run a name server alone, in the same way. Returns the same exit codes."""
    serve = partial(_serve_names, config, reread=reread)
    return _in_foreground(config, serve, lambda config, disk: True)


class Surroundings:
    """What the process has around its loop: the log and the service manager."""

    def __init__(self, config: BrokerConfig) -> None:
        """Set up the log. Raises: OSError when its file cannot be opened."""
        said = self.said = config.process
        path = said.log_file
        self.lines = LogFile(Path(path)) if path else LineStream(sys.stderr)
        self.service_manager = ServiceManager(os.environ)
        logging.configure(
            said.log_level.lower(),
            stream=self.lines,
            as_json=None if said.log_format == LogFormat.AUTO else said.log_format == "JSON",
            journal=not path and sys.stderr is not None and logging.is_journal(2, os.environ),
        )

    def reopen(self) -> None:
        """Open the log file again, which was renamed."""
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
        _say_why(refusals)
    except* ConfigurationError as problems:
        code = WRONG_SETTINGS
        _say_why(problems)
    except* OSError as errors:
        _say_why(errors)
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
        _announce_admin(controller.broker.users.directory.first_admin)
        _announce(told)
        life.serving(f"serving at {told.broker}")

    return await life.run(partial(controller.run, serving))


async def _serve_names(
    config: BrokerConfig,
    disk: Disk,
    surroundings: Surroundings,
    *,
    reread: Callable[[], BrokerConfig],
) -> bool:
    from aerobee.broker.namesrv_controller import NamesrvController

    controller = NamesrvController(config, disk=disk, clock=SystemClock())
    life = Life(surroundings, controller, controller.live, reread)

    def serving(told: NamesrvReady) -> None:
        _announce_admin(controller.users.first_admin)
        _announce_names(told)
        life.serving(f"serving at {told.namesrv}")

    return await life.run(partial(controller.run, serving))


class Life:
    """The life of the process around a controller: signals, settings, the service manager."""

    def __init__(
        self,
        surroundings: Surroundings,
        controller: BrokerController | NamesrvController,
        live: LiveSettings,
        reread: Callable[[], BrokerConfig],
    ) -> None:
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
            },
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

    async def run(self, serve: Callable[[], Awaitable[bool]]) -> bool:
        """Serve and obey signals; settings are read again once it is ready."""
        self._signals.start()
        StallWatch(self._controller.loop, SystemClock()).start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._service_manager.attend, self._ready)
                nursery.start_soon(self._reload_when_asked)
                nursery.start_soon(self._tell_stop)
                nursery.start_soon(collect_cycles)
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


async def collect_cycles() -> NoReturn:
    """Search for cyclic garbage a little at a time."""
    whole_at = trio.current_time() + WHOLE_S
    before = sys.getallocatedblocks()
    while True:
        spent_s = 0.0
        looks = young_collections()
        for _ in range(LOOKS):
            await trio.sleep(YOUNG_S)
            began = trio.current_time()
            gc.collect(0)
            spent_s += trio.current_time() - began
        if spent_s <= FEW_S and young_collections() == looks + LOOKS:
            gc.collect(1)
        else:
            gc.freeze()
        grown = sys.getallocatedblocks() - before
        if grown > max(GROWN_BLOCKS, before // 2) or trio.current_time() >= whole_at:
            whole_at = trio.current_time() + WHOLE_S
            gc.unfreeze()
            gc.collect()
            before = sys.getallocatedblocks()


def young_collections() -> int:
    """How many searches of the youngest generation there were, started by anyone."""
    looks: int = gc.get_stats()[0]["collections"]
    return looks


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


def _announce_names(ready: NamesrvReady) -> None:
    LineStream(sys.stdout).write(
        f"aerobee ready namesrv={ready.namesrv} data={ready.data} in {_process_age_s():.2f} s\n"
    )
    log.info("namesrv.started", namesrv=ready.namesrv, data=ready.data)
    _announce_descriptors()
    gc.freeze()


def _announce_admin(admin: tuple[str, str] | None) -> None:
    """Tell the secret of the first admin on stderr, once, and not in the log."""
    if admin is not None:
        LineStream(sys.stderr).write(
            f"aerobee: there was no user, so this start has made one that may do everything:"
            f" access key {admin[0]}, secret key {admin[1]} (told only now; change it with"
            f" `aerobee users update {admin[0]} --secret`)\n"
        )


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


def keeps_data(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the data directory outlives the machine or container, or does not have to."""
    root = Path(config.store.store_path_root_dir).expanduser().absolute()
    kind = disk.file_system(nearest(root, disk))
    if kind not in VOLATILE_FILE_SYSTEMS or config.broker.ephemeral:
        return True
    remedy = "mount a volume there, or say --ephemeral if the data may be lost"
    if config.in_image:
        log.error("store.ephemeral", path=str(root), file_system=kind, remedy=remedy)
        return False
    log.warning("store.ephemeral", path=str(root), file_system=kind, remedy=remedy)
    return True


def may_write(config: BrokerConfig, disk: Disk) -> bool:
    """Whether this user may write in the data directory, or make it."""
    root = Path(config.store.store_path_root_dir).expanduser().absolute()
    place = nearest(root, disk)
    # A file system that is mounted read-only is reported by the first write.
    writable = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    if writable or os.statvfs(place).f_flag & os.ST_RDONLY:
        return True
    user = os.geteuid()
    reason = (
        f"user {user} may not write in {place}: chown -R {user} {place} as root"
        " (of a container's mount: the folder of the host), or choose another storePathRootDir"
    )
    log.error("broker.refused", reason=reason)
    return False


def fits_disk(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the disk has more room than the settings keep free of it."""
    try:
        problems = beyond_disk(config, SCHEMA.values(), disk_bytes(config, disk))
    except OSError as error:
        path = error.filename or config.store.store_path_root_dir
        problems = [f"{path}: {error.strerror}; choose another storePathRootDir"]
    for problem in problems:
        log.error("broker.refused", reason=problem)
    return not problems


def _say_why(group: BaseExceptionGroup[BaseException]) -> None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _say_why(error)
        else:
            log.error("broker.refused", reason=str(error))
