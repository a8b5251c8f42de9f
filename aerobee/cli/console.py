"""The command `aerobee console`: the console of a cluster, without a broker in the process."""

from __future__ import annotations

import click

from aerobee.cli.connection import Connection, connection_options


@click.command(short_help="The console of a cluster, without a broker.")
@click.option(
    "-p",
    "--port",
    type=click.IntRange(1, 65_535),
    default=8_088,
    show_default=True,
    help="Port of the console.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Local address of it.")
@click.option("--name", "names", multiple=True, help="A host name under which browsers reach it.")
@click.option("--bodies", is_flag=True, help="Show bodies of messages to who has logged in.")
@connection_options
def console(
    port: int, host: str, names: tuple[str, ...], bodies: bool, connection: Connection
) -> None:
    """Serve the console of a cluster in the foreground until Ctrl-C, for brokers of any kind.

    A broker of Aerobee has its own console; this one is for clusters of others. It acts as the
    account of the context, or of AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY: who logs in with these
    may do what brokers allow that account. Without an account it serves this host alone, and
    changes nothing.
    """
    from aerobee.broker.config.settings.console import ConsoleConfig
    from aerobee.broker.console.alone import run

    name = connection.profile.get("access_key", "")
    config = ConsoleConfig(
        console_port=port,
        console_host=host,
        console_names=",".join(names),
        console_body_readers=name if bodies else "",
    )
    run(connection, config)
