"""`aerobee config check`, `explain` and `convert`; `config_diff` has `diff`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from aerobee.cli.lazy import LazyGroup
from aerobee.cli.output import Output, echo, output_options, write_exactly

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.config.model import BrokerConfig

T = TypeVar("T")

WRONG_USAGE = 2


@click.group(
    cls=LazyGroup,
    table={
        "diff": (
            "aerobee.cli.config_diff:diff",
            "What a file changes: of the defaults, or of a running broker.",
        )
    },
    short_help="Check, explain, compare and convert settings.",
)
def config() -> None:
    """Check, explain, compare and convert settings."""


config_option = click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration: .yaml, or a RocketMQ broker.conf.",
)
"""The configuration file; environment variables apply in addition."""


def read_config(file: Path | None, *, data: Path | None = None, without: str = "") -> BrokerConfig:
    """The configuration of a start with this file and data directory, and the environment but for
    the variable `without`. Raises: ConfigurationError.
    """
    from aerobee.broker.config.load import load_config
    from aerobee.broker.process import host

    return load_config(
        file,
        data=data.absolute() if data else None,
        environ={name: text for name, text in os.environ.items() if name != without},
        cpu_count=host.cpu_count(),
        host_addresses=host.addresses(),
        host_name=host.host_name(),
    )


@config.command()
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--all", "every", is_flag=True, help="Every setting, not only what differs.")
def check(file: Path | None, every: bool) -> None:
    """Print what FILE and the environment change, each with its source, or what is wrong."""
    from aerobee.broker.config.report import check_report

    echo(or_problems(lambda: check_report(read_config(file), every=every)))


@config.command()
@click.argument("names", metavar="KEY...", nargs=-1, required=True)
@config_option
@output_options
def explain(names: tuple[str, ...], file: Path | None, output: Output) -> None:
    """Print what a setting is for, which values it takes, and what it is here and why.

    KEY in any spelling: flush_disk_type, flushDiskType.
    """
    from aerobee.broker.config.explained import explained

    settings = or_problems(lambda: read_config(file))
    try:
        explanations = [explained(settings, name) for name in names]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from error
    if output.for_programs:
        output.rows(explanations)
        return
    for number, explanation in enumerate(explanations):
        if number:
            output.say("")
        output.record(explanation)


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def convert(file: Path) -> None:
    """Print a RocketMQ FILE as YAML, or a YAML one as RocketMQ's."""
    from aerobee.broker.config.load import convert as converted

    text = or_problems(lambda: converted(file))
    if sys.stdout.isatty():
        echo(text, nl=False)
    else:
        write_exactly(text.encode())


def or_problems(make: Callable[[], T]) -> T:
    """Call a function and return its result; print its problems on stderr and exit with code 2."""
    from aerobee.broker.config.files.entries import ConfigurationError

    try:
        return make()
    except ConfigurationError as error:
        for problem in error.problems:
            echo(f"aerobee: {problem}", err=True)
        sys.exit(WRONG_USAGE)
