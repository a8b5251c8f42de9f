"""Options that several commands share."""

from __future__ import annotations

import click

__all__ = ["json_option", "namesrv_option"]

namesrv_option = click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT",
    help="Name server, several with ';'; else NAMESRV_ADDR, else 127.0.0.1:9876.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
