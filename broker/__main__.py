"""The broker as a process: configuration in, exit code out. `aerobee broker run` calls `run`.

`aerobee nameserver run` calls `run_nameserver`: the same without a store.

Prints the ready line to stdout and nothing else; everything else is a log line on stderr.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.config.report import beyond_disk
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.errors import TableDamaged
from aerobee.broker.process import log as logging
from aerobee.broker.process.host import (
    descriptor_limit,
    descriptors_in_use,
    disk_bytes,
    nearest,
    raise_descriptor_limit,
)
from aerobee.broker.process.log_stream import LineStream, fill_standard_descriptors
from aerobee.remoting.server.boss import reserve
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.broker.controller import BrokerController, Ready
    from aerobee.broker.namesrv_controller import NamesrvController, NamesrvReady

__all__ = ["run", "run_nameserver"]

DONE: Final = 0
FAILED: Final = 1
STORE_REFUSED: Final = 3
VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "overlay"})

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Ctrl-\\ sends SIGQUIT: it must stop the broker cleanly."""
RELOADS: Final = signal.SIGHUP
"""Reads the settings again. A terminal that closes sends it too: then it is a stop."""
IGNORED: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are ignored: their default action would end the process."""

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

log = structlog.stdlib.get_logger(__name__)


def run(
    config: BrokerConfig,
    log_level: str = "info",
    *,
    reread: Callable[[], BrokerConfig] | None = None,
) -> int:
    """Run a broker in the foreground until a signal stops it; a second one ends it at once.

    On SIGHUP it takes over what `reread` gives, which may raise ConfigurationError.
    Returns the exit code: 0 stopped clean, 1 failed, 3 the store refused to start.
    """
    serve = partial(_serve, config, reread=reread or (lambda: config))
    return _in_foreground(
        config,
        log_level,
        serve,
        lambda *start: keeps_data(*start) and may_write(*start) and fits_disk(*start),
    )


def run_nameserver(
    config: BrokerConfig, log_level: str = "info", *, reread: Callable[[], BrokerConfig]
) -> int:
    """Run a name server alone, in the same way. Returns the same exit codes."""
    serve = partial(_serve_names, config, reread=reread)
    return _in_foreground(config, log_level, serve, lambda config, disk: True)


def _in_foreground(
    config: BrokerConfig,
    log_level: str,
    serve: Callable[[Disk], Awaitable[bool]],
    may_start: Callable[[BrokerConfig, Disk], bool],
) -> int:
    fill_standard_descriptors()
    lines = LineStream(sys.stderr)
    logging.configure(log_level, stream=lines)
    try:
        return _run(config, serve, may_start)
    finally:
        lines.drain()


def _run(
    config: BrokerConfig,
    serve: Callable[[Disk], Awaitable[bool]],
    may_start: Callable[[BrokerConfig, Disk], bool],
) -> int:
    for warning in config.warnings:
        log.warning("config.warning", text=warning)
    raise_descriptor_limit()
    os.umask(0o077)
    gc.set_threshold(*GC_THRESHOLDS)
    disk = Disk()
    if not may_start(config, disk):
        return STORE_REFUSED
    code = FAILED
    try:
        clean = trio.run(serve, disk, strict_exception_groups=True)
        code = DONE if clean else FAILED
    except* (StoreRefused, TableDamaged) as refusals:
        code = STORE_REFUSED
        _say_why(refusals)
    except* OSError as errors:
        _say_why(errors)
    return code


async def _serve(config: BrokerConfig, disk: Disk, *, reread: Callable[[], BrokerConfig]) -> bool:
    from aerobee.broker.controller import BrokerController

    controller = BrokerController(config, disk=disk, clock=SystemClock())
    ready = trio.Event()

    def serving(told: Ready) -> None:
        _announce(told)
        ready.set()

    reload = partial(controller.broker.settings.live.reload, reread)
    return await _until_stopped(controller, partial(controller.run, serving), ready, reload)


async def _serve_names(
    config: BrokerConfig, disk: Disk, *, reread: Callable[[], BrokerConfig]
) -> bool:
    from aerobee.broker.namesrv_controller import NamesrvController

    controller = NamesrvController(config, disk=disk, clock=SystemClock())
    ready = trio.Event()

    def serving(told: NamesrvReady) -> None:
        _announce_names(told)
        ready.set()

    reload = partial(controller.live.reload, reread)
    return await _until_stopped(controller, partial(controller.run, serving), ready, reload)


async def _until_stopped(
    controller: BrokerController | NamesrvController,
    serve: Callable[[], Awaitable[bool]],
    ready: trio.Event,
    reload: Callable[[], Awaitable[None]],
) -> bool:
    """Serve and obey signals; settings are read again once it is ready."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)

    async def reload_when_asked() -> NoReturn:
        await ready.wait()
        while True:
            await reloads.receive()
            await reload()

    # Of signals that come while it reads, one is enough.
    wanted, reloads = trio.open_memory_channel[None](1)
    obeyed = (*STOPS, *reload_signals())
    early = signal.sigpending() & set(obeyed)
    # What holds again after this block: one that comes while the process ends is no crash.
    signal.signal(RELOADS, signal.SIG_IGN)
    with trio.open_signal_receiver(*obeyed) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {RELOADS})
        for number in early:
            signal.raise_signal(number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, controller, wanted, Terminal())
            nursery.start_soon(reload_when_asked)
            nursery.start_soon(collect_cycles)
            clean = await serve()
            nursery.cancel_scope.cancel()
    return clean


def reload_signals() -> list[signal.Signals]:
    """SIGHUP; not where it was ignored at the start (nohup)."""
    return [] if signal.getsignal(RELOADS) is signal.SIG_IGN else [RELOADS]


class Terminal:
    """The terminal that the broker was started from, if any."""

    def __init__(self) -> None:
        self._descriptors = [one for one in range(3) if os.isatty(one)]

    @property
    def closed(self) -> bool:
        """Whether there was one, and it is gone."""
        return bool(self._descriptors) and not any(map(os.isatty, self._descriptors))


async def _obey(
    signals: AsyncIterator[int],
    controller: BrokerController | NamesrvController,
    reload: trio.MemorySendChannel[None],
    terminal: Terminal,
) -> NoReturn:
    """First stop: stop. Second: exit now; the abort file stays and the next start recovers."""
    async for number in signals:
        if number == RELOADS and not terminal.closed:
            with contextlib.suppress(trio.WouldBlock):
                reload.send_nowait(None)
            continue
        if controller.stop_wanted.is_set():
            os._exit(FAILED)
        controller.stop()
    raise AssertionError("signals never end")


async def collect_cycles() -> NoReturn:
    """Search for cyclic garbage a little at a time."""
    whole_at = trio.current_time() + WHOLE_S
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
        if trio.current_time() >= whole_at:
            whole_at = trio.current_time() + WHOLE_S
            gc.unfreeze()
            gc.collect()


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
        log.warning(
            "broker.descriptors_few",
            for_connections=max(0, left),
            remedy="raise the limit on open files (ulimit -n, LimitNOFILE)",
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
    problems = beyond_disk(config, SCHEMA.values(), disk_bytes(config, disk))
    for problem in problems:
        log.error("broker.refused", reason=problem)
    return not problems


def _say_why(group: BaseExceptionGroup[BaseException]) -> None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _say_why(error)
        else:
            log.error("broker.refused", reason=str(error))
