"""The broker as a process: configuration in, exit code out. `aerobee broker run` calls `run`.

`aerobee nameserver run` calls `run_nameserver`: the same without a store.

Prints the ready line to stdout and nothing else; everything else is a log line on stderr.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.errors import TableDamaged
from aerobee.broker.life.life import Life, Surroundings
from aerobee.broker.process.cycles import GC_THRESHOLDS
from aerobee.broker.process.host import raise_descriptor_limit
from aerobee.broker.process.log_stream import LineStream, fill_standard_descriptors
from aerobee.broker.start_checks import may_start
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.life.server import Server

DONE: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
STORE_REFUSED: Final = 3
ANEW: Final = -1
"""No exit code: the process runs the same command again."""

log = structlog.stdlib.get_logger(__name__)


class BeginsAnew(Exception):
    """The broker has stopped in order to start again."""


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
    several = config.broker.broker_count > 1
    server = partial(_supervisor, again=again) if several else _broker
    serve = partial(_serve, config, server=server, reread=reread or (lambda: config))
    return _in_foreground(config, serve, may_start)


def run_nameserver(config: BrokerConfig, *, reread: Callable[[], BrokerConfig]) -> int:
    """Run a name server alone, in the same way. Returns the same exit codes."""
    serve = partial(_serve, config, server=_name_server, reread=reread)
    return _in_foreground(config, serve, lambda config, disk: True)


def refuse(config: BrokerConfig, error: ConfigurationError) -> int:
    """Tell in the log why one of several brokers does not start. Returns the exit code.

    `config`: says how to log, and for whom; `error`: of the settings that it was to run with.
    """

    async def serve(disk: Disk, surroundings: Surroundings) -> bool:
        raise ConfigurationError(["; ".join(error.problems)])

    return _in_foreground(config, serve, lambda config, disk: True)


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
    code = FAILED
    try:
        code = _run(config, surroundings, serve, may_start)
    finally:
        surroundings.service_manager.close()
        surroundings.lines.drain()
    if code == ANEW:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return code


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
    code: int = FAILED
    try:
        clean = trio.run(serve, disk, surroundings, strict_exception_groups=True)
        code = DONE if clean else FAILED
    except* BeginsAnew:
        code = ANEW
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
    server: Callable[[BrokerConfig, Disk, Surroundings], Server],
    reread: Callable[[], BrokerConfig],
) -> bool:
    if config.failover.enable_controller_mode:
        from aerobee.broker.numbered import numbered

        with_number = await numbered(config, disk, SystemClock())
        if with_number is None:
            return True
        config = with_number
    made = server(config, disk, surroundings)
    clean = await Life(surroundings, made, reread).run()
    if made.anew:
        raise BeginsAnew
    return clean


def _broker(config: BrokerConfig, disk: Disk, surroundings: Surroundings) -> Server:
    from aerobee.broker.controller import BrokerController
    from aerobee.broker.replication.saved_role import in_saved_role

    if not config.failover.is_on:
        config = in_saved_role(config, disk)
    return BrokerController(config, disk=disk, clock=SystemClock())


def _name_server(config: BrokerConfig, disk: Disk, surroundings: Surroundings) -> Server:
    from aerobee.broker.namesrv.controller import NamesrvController

    return NamesrvController(config, disk=disk, clock=SystemClock())


def _supervisor(
    config: BrokerConfig,
    disk: Disk,
    surroundings: Surroundings,
    *,
    again: Callable[[int], Sequence[str]],
) -> Server:
    from aerobee.broker.supervisor.supervisor import Supervisor

    return Supervisor(
        config,
        command=again,
        environ=os.environ,
        disk=disk,
        clock=SystemClock(),
        silence_s=surroundings.service_manager.watchdog_s,
    )


def _log_reasons(group: BaseExceptionGroup[BaseException]) -> None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _log_reasons(error)
        else:
            log.error("broker.refused", reason=str(error))
