"""Options that several commands share."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

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
"""Of messages."""

namesrv_option = click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT",
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
