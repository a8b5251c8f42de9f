"""The command `aerobee broker run`: parses options, loads the configuration, starts the broker.

Every import costs start-up time, so this module and `broker` load nothing of the client.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.lazy import LazyGroup, import_structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.broker.config.model import BrokerConfig

LISTEN_PORT = 10_911
LOG_LEVELS = ("debug", "info", "warning", "error")


set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting; repeatable."
)
log_level_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    help="logLevel, also AEROBEE_LOG_LEVEL; info unless given.",
)


class DataDirectory(click.Path):
    """A directory, or a name for one that is to be made."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path. Raises: BadParameter."""
        if value == "":  # The current directory for Path; rather a variable that is not set.
            self.fail("it is empty: name a directory", param, ctx)
        path = super().convert(value, param, ctx)
        # Click lets devices pass.
        if os.path.exists(path) and not os.path.isdir(path):
            self.fail(f"{os.fspath(value)} is no directory", param, ctx)
        return path


data_option = partial(click.option, "--data", type=DataDirectory())


def log_setting(level: str | None) -> list[str]:
    """The setting that `--log-level` stands for."""
    return [] if level is None else [f"logLevel={level.upper()}"]


def shadow_settings(address: str) -> tuple[str, ...]:
    """The settings that `--shadow-of` stands for; the log is at the port above listenPort.

    Raises: UsageError.
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(LISTEN_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_535:
        raise click.UsageError(f"--shadow-of {address}: give HOST or HOST:PORT of its listenPort")
    master = f"haMasterAddress={host}:{int(port) + 1}"
    return "brokerRole=SLAVE", "brokerId=1", "shadow=true", master


@click.group(
    cls=LazyGroup,
    table={
        "config": ("aerobee.cli.broker_config:config", "Settings of a running broker."),
        "log-level": (
            "aerobee.cli.broker_config:log_level",
            "Print or set the level of a broker's log.",
        ),
        "clean": ("aerobee.cli.broker_ops:clean", "Have brokers delete what is past its time."),
        "write-permission": (
            "aerobee.cli.broker_ops:write_permission",
            "Have producers leave a broker, or come back.",
        ),
    },
    short_help="Run a broker, change a running one.",
)
def broker() -> None:
    """Run a broker, or look at the settings of a running one and change them."""


@broker.command()
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration: .yaml, or a RocketMQ broker.conf.",
)
@click.option("-n", "--namesrv", metavar="HOST:PORT", help="Also register at these name servers.")
@data_option(help="Data directory (storePathRootDir).")
@set_option
@click.option(
    "--shadow-of",
    metavar="HOST[:PORT]",
    help="Follow the broker with this listenPort, 10911 unless given, unnoticed; read only.",
)
@click.option("--ephemeral", is_flag=True, help="The data may be lost: a tmpfs is fine.")
@log_level_option
@click.option("--member", multiple=True, hidden=True, help="KEY=VALUE, from a supervisor.")
def run(
    file: Path | None,
    namesrv: str | None,
    data: Path | None,
    overrides: tuple[str, ...],
    shadow_of: str | None,
    ephemeral: bool,
    log_level: str | None,
    member: tuple[str, ...],
) -> None:
    """Run a broker and its name server in the foreground until Ctrl-C.

    Prints one line when it is ready; logs go to stderr. SIGHUP reads the configuration again.
    """
    # The objects of the imports stay: until `Life.run` a search for garbage would find none.
    gc.disable()
    from aerobee.broker.process.signals import block

    # Until they can be obeyed; otherwise one would kill the process in the imports.
    block()
    import_structlog()
    from aerobee.broker.__main__ import run as run_broker
    from aerobee.broker.config.load import load_config
    from aerobee.broker.config.members import member_settings
    from aerobee.broker.process import host
    from aerobee.cli.config import or_problems

    shadow = () if shadow_of is None else shadow_settings(shadow_of)
    settings = (
        *shadow,
        *overrides,
        *(("ephemeral=true",) if ephemeral else ()),
        *log_setting(log_level),
    )

    def read() -> BrokerConfig:
        return load_config(
            file,
            environ=environ,
            overrides=settings,
            namesrv=namesrv,
            data=data.absolute() if data else None,
            cpu_count=host.cpu_count(),
            host_addresses=host.addresses(),
            host_name=host.host_name(),
            member=member,
        )

    environ = dict(os.environ)
    if shadow:
        # Clients of these name servers would read from it: that takes -n.
        environ.pop("NAMESRV_ADDR", None)
    config = or_problems(read) if not member else _or_logged(read, member)

    def again(number: int) -> list[str]:
        """The command of one of several brokers. The options that tell it from the others were read
        once: the file may be another one when it is started again.
        """
        own = member_settings(config, number, host.addresses())
        pairs = (f"--member={key}={text}" for key, text in own.items())
        return [sys.executable, *sys.orig_argv[1:], *pairs]

    sys.exit(run_broker(config, reread=read, again=again))


def _or_logged(read: Callable[[], BrokerConfig], member: Sequence[str]) -> BrokerConfig:
    """The settings of one of several brokers; with problems, a line in their one log, and exit."""
    from aerobee.broker.__main__ import refuse
    from aerobee.broker.config.files.entries import ConfigurationError
    from aerobee.broker.config.load import load_config
    from aerobee.broker.config.members import log_settings

    try:
        return read()
    except ConfigurationError as error:
        own = load_config(
            None, environ={}, cpu_count=1, host_addresses=(), member=log_settings(member)
        )
        sys.exit(refuse(own, error))
