"""The command `aerobee nameserver run`: options, configuration, then the name server itself.

Every import costs start-up time, so this module and `broker` load nothing of the client.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.broker import data_option, log_level_option, log_setting, set_option
from aerobee.cli.lazy import CommandGroup, import_structlog

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig


@click.group(cls=CommandGroup, short_help="Run a name server alone.")
def nameserver() -> None:
    """Run a name server without a broker."""


@nameserver.command()
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration: .yaml, or RocketMQ's namesrv.properties.",
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port (listenPort); 9876 unless given.",
)
@data_option(help="Directory of the key-value table; ~/namesrv unless given.")
@set_option
@log_level_option
def run(
    file: Path | None,
    port: int | None,
    data: Path | None,
    overrides: tuple[str, ...],
    log_level: str | None,
) -> None:
    """Run a name server in the foreground until Ctrl-C.

    Prints one line when it is ready; logs go to stderr. SIGHUP reads the configuration again.
    Aerobee's and RocketMQ's brokers register with it. Run several name servers, and give their
    addresses to all brokers and clients.
    """
    # The objects of the imports stay: until `Life.run` a search for garbage would find none.
    gc.disable()
    from aerobee.broker.process.signals import block

    # Until they can be obeyed; otherwise one would kill the process in the imports.
    block()
    import_structlog()
    from aerobee.broker.__main__ import run_nameserver
    from aerobee.broker.namesrv.config import load_namesrv_config
    from aerobee.broker.process import host
    from aerobee.cli.config import or_problems

    settings = (
        *overrides,
        *log_setting(log_level),
        *([] if port is None else [f"listenPort={port}"]),
    )

    def read() -> BrokerConfig:
        return load_namesrv_config(
            file,
            environ=environ,
            overrides=settings,
            data=data.absolute() if data else None,
            cpu_count=host.cpu_count(),
            host_addresses=host.addresses(),
        )

    environ = dict(os.environ)
    config = or_problems(read)
    sys.exit(run_nameserver(config, reread=read))
