"""`aerobee broker config`: the settings of a running broker."""

from __future__ import annotations

import click

from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, output_options

__all__ = ["config"]

broker_option = click.option(
    "--broker", metavar="NAME", help="Name or address; needed where there are several."
)


@click.group(cls=CommandGroup, short_help="Settings of a running broker.")
def config() -> None:
    """Print the settings of a running broker, and change them."""


@config.command()
@click.argument("names", metavar="[KEY]...", nargs=-1)
@broker_option
@connection_options
@output_options
def get(names: tuple[str, ...], broker: str | None, connection: Connection, output: Output) -> None:
    """Print all settings, or those of these names."""
    with connection.admin() as admin:
        known = admin.broker_config(broker)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.ClickException(f"the broker has no setting {', '.join(unknown)}")
    output.rows({"key": name, "value": known[name]} for name in names or sorted(known))


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@broker_option
@connection_options
def set_values(values: tuple[str, ...], broker: str | None, connection: Connection) -> None:
    """Change settings while the broker runs.

    Example: aerobee broker config set deleteWhen=05
    """
    pairs = dict(split(value) for value in values)
    with connection.admin() as admin:
        admin.update_broker_config(pairs, broker)
    for name, value in pairs.items():
        click.echo(f"{name}={value}")


def split(text: str) -> tuple[str, str]:
    """Key and value. Raises: UsageError."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{text}: write KEY=VALUE")
    return name, value
