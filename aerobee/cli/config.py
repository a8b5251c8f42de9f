"""`aerobee config check` and `aerobee config convert`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.lazy import CommandGroup

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["config"]

WRONG_USAGE = 2


@click.group(cls=CommandGroup, short_help="Check and convert configuration files.")
def config() -> None:
    """Check and convert configuration files."""


@config.command()
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--all", "every", is_flag=True, help="Every setting, not only what differs.")
def check(file: Path | None, every: bool) -> None:
    """Print what FILE and the environment change, each with its source, or what is wrong."""
    from aerobee.broker.config.load import check_report, load_config
    from aerobee.broker.process import host

    def report() -> str:
        loaded = load_config(
            file,
            environ=os.environ,
            cpu_count=host.cpu_count(),
            host_addresses=host.addresses(),
            host_name=host.host_name(),
        )
        return check_report(loaded, every=every)

    click.echo(or_problems(report))


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def convert(file: Path) -> None:
    """Print a RocketMQ FILE as YAML, or a YAML one as RocketMQ's."""
    from aerobee.broker.config.load import convert as converted

    click.echo(or_problems(lambda: converted(file)), nl=False)


def or_problems(make: Callable[[], str]) -> str:
    """The text, or the problems on stderr and exit code 2."""
    from aerobee.broker.config.load import ConfigurationError

    try:
        return make()
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"aerobee: {problem}", err=True)
        sys.exit(WRONG_USAGE)
