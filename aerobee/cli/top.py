"""`aerobee top`: a cluster live."""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.cluster import described_brokers
from aerobee.cli.connection import Connection, connection_options, tell_outages
from aerobee.cli.output import Output, output_options, table_of

if TYPE_CHECKING:
    from aerobee.blocking import AdminClient

__all__ = ["top"]

GROUPS_SHOWN = 20
SORTS = ("lag", "members", "group")


@click.command(short_help="A cluster live: rates, lag, connections.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds."
)
@click.option("--sort", type=click.Choice(SORTS), default="lag", show_default=True)
@click.option("--once", is_flag=True, help="Print it once and end; so in a pipe.")
@connection_options
@output_options
def top(interval: float, sort: str, once: bool, connection: Connection, output: Output) -> None:
    """Show brokers, and groups by their lag, until Ctrl-C."""
    tell_outages()
    with connection.admin() as admin:
        if once or output.for_programs or not sys.stdout.isatty():
            brokers, groups = look(admin, sort)
            if output.for_programs:
                output.record({"brokers": brokers, "groups": groups})
            else:
                output.rows(brokers)
                output.rows(groups)
            return
        live(admin, interval, sort)


def look(admin: AdminClient, sort: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of both tables."""
    from aerobee.cli.group import summary
    from aerobee.client.system_names import is_system_group

    groups = [summary(admin, name) for name in admin.groups() if not is_system_group(name)]
    groups.sort(key=lambda row: row[sort] if sort == "group" else -row[sort])
    return list(described_brokers(admin)), groups[:GROUPS_SHOWN]


def live(admin: AdminClient, interval: float, sort: str) -> None:
    """Draw again and again; an outage is a line, and the next try."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from aerobee.errors import AerobeeError

    try:
        with Live(screen=True, auto_refresh=False) as screen:
            while True:
                try:
                    tables = [table_of(rows) for rows in look(admin, sort) if rows]
                    screen.update(Group(*tables), refresh=True)
                except AerobeeError as error:
                    screen.update(Text(str(error)), refresh=True)
                sleep(interval)
    except KeyboardInterrupt:
        pass
