"""Options that several commands share."""

from __future__ import annotations

import click

__all__ = ["namesrv_option", "yes_option"]

namesrv_option = click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT",
    help="Name server, several with ';'; else the context's, NAMESRV_ADDR, 127.0.0.1:9876.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
