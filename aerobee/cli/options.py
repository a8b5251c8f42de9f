"""Options that several commands share."""

from __future__ import annotations

import click

__all__ = ["dry_run_option", "namespace_option", "namesrv_option", "yes_option"]

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
