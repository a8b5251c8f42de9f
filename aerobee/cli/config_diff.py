"""`aerobee config diff`: a file against the defaults, or against what a running broker has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.broker import data_option
from aerobee.cli.config import config_option, or_problems, read_config
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.output import Output, output_options

if TYPE_CHECKING:
    from pathlib import Path

DIFFERENT = 1
CLUSTER = "NAMESRV_ADDR"


@click.command(short_help="What a file changes: of the defaults, or of a running broker.")
@config_option
@data_option(help="What `broker run` gets as --data (storePathRootDir).")
@click.option("--broker", metavar="NAME", help="Compare with this running broker; name or address.")
@connection_options
@output_options
def diff(
    file: Path | None,
    data: Path | None,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Print what the configuration has otherwise than the defaults, or than a running broker.

    With --broker each row says whether SIGHUP is enough to bring the running value to that of the
    file, and the exit code is 1 when there is a difference. NAMESRV_ADDR of this shell does not
    count then, and of a secret only whether there is one.

    Example: aerobee config diff -c broker.yaml --broker broker-a
    """
    from aerobee.broker.config.report import compared, differing

    # The text says whom this command asks: of the broker's environment nothing is known.
    without = "" if broker is None else CLUSTER
    config = or_problems(lambda: read_config(file, data=data, without=without))
    if broker is None:
        output.rows(differing(config), none="nothing differs from the defaults")
        return
    with connection.admin() as admin:
        running = admin.broker_config(broker)
    rows = compared(config, running)
    output.rows(rows, none=f"nothing differs from {broker}")
    if rows:
        raise SystemExit(DIFFERENT)
