"""Options that several commands share."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from aerobee.errors import ConfigurationError

Command = TypeVar("Command", bound=Callable[..., Any])

SECONDS_MAX = 366 * 86_400.0
"""The longest time that an option gives."""
SIZE_MAX = 4 << 20
"""The longest body that a producer sends by default."""


class Number(click.FloatRange):
    """A number between two bounds. `nan` is between any two for click, and inf above none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


RATE = Number(1e-5, 1e6)
"""Per second: from one a day to more than any broker takes."""
COUNT = click.IntRange(1, 10**12)
"""A number of messages."""

PER_SECOND = re.compile(r"([0-9]{1,9})(B|KiB|MiB|GiB|)(?:/s)?")
BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class PerSecond(click.ParamType[int]):
    """A limit such as 1000/s, or `none`."""

    name = "rate"

    def __init__(self, units: dict[str, int]) -> None:
        self.units = units

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "none":
            return 0
        parts = PER_SECOND.fullmatch(value)
        if parts is None or parts[2] not in self.units:
            example = "10MiB/s" if "MiB" in self.units else "1000/s"
            self.fail(f"{value!r} is neither a limit such as {example} nor none.", param, ctx)
        return int(parts[1]) * self.units[parts[2]]


def rate_options(messages: str, of: str) -> Callable[[Command], Command]:
    """--max-rate and --max-bytes: what the first one counts, and what the second one is of."""

    def added(command: Command) -> Command:
        of_messages = click.option(
            "--max-rate",
            type=PerSecond({"": 1}),
            metavar="N/s",
            help=f"{messages}; none: no limit.",
        )
        of_bytes = click.option(
            "--max-bytes",
            type=PerSecond(BYTES),
            metavar="SIZE/s",
            help=f"Bytes of {of}, such as 10MiB/s; none: no limit.",
        )
        return of_messages(of_bytes(command))

    return added


def not_empty(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The value. Raises: BadParameter for an empty one, as of a variable that is not set: it must
    not stand for the cluster of the environment.
    """
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty")
    return value


namesrv_option = click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT",
    callback=not_empty,
    help="Name server, several with ';'; else the context's, NAMESRV_ADDR, 127.0.0.1:9876.",
)
namespace_option = click.option(
    "--namespace",
    metavar="NAME",
    help="Of 4.x clients: topic T and group G of it are NAME%T and NAME%G for all others.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would change.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def asked(what: str, instead: str, *, twice: bool = False) -> str:
    """A secret that is typed unseen. Raises: ConfigurationError without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigurationError(f"there is no terminal to ask for the {what}: {instead}")
    prompt: Callable[..., str] = click.prompt
    return prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
