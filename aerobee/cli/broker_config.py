"""`aerobee broker config`: the settings of a running broker."""

from __future__ import annotations

import click

from aerobee.cli.broker import LOG_LEVELS
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, escaped, output_options

__all__ = ["config", "log_level"]

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
    """Print all settings, or those of these names, in any spelling."""
    from aerobee.broker.config.schema import canon

    with connection.admin() as admin:
        known = admin.broker_config(broker)
    proper = {canon(name): name for name in known}
    unknown = [name for name in names if canon(name) not in proper]
    if unknown:
        raise click.UsageError(f"the broker has no setting {', '.join(unknown)}")
    wanted = [proper[canon(name)] for name in names] or sorted(known)
    output.rows({"key": name, "value": known[name]} for name in wanted)


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@broker_option
@connection_options
@output_options
def set_values(
    values: tuple[str, ...], broker: str | None, connection: Connection, output: Output
) -> None:
    """Change settings while the broker runs, now and for later starts; all of them, or none.

    Those that may be changed are marked live in `aerobee config explain KEY`.

    Example: aerobee broker config set deleteWhen=05
    """
    pairs = dict(split(value) for value in values)
    with connection.admin() as admin:
        remark = admin.update_broker_config(pairs, broker)
    if remark:
        click.echo(f"aerobee: {escaped(remark)}", err=True)
    if output.for_programs:
        output.rows({"key": name, "value": value} for name, value in pairs.items())
    for name, value in pairs.items():
        output.say(f"{name}={value}")


@click.command("log-level")
@click.argument("level", type=click.Choice(LOG_LEVELS, case_sensitive=False), required=False)
@broker_option
@connection_options
@output_options
def log_level(
    level: str | None, broker: str | None, connection: Connection, output: Output
) -> None:
    """Print the level of a broker's log, or set it, now and for later starts."""
    with connection.admin() as admin:
        if level is not None:
            admin.update_broker_config({"logLevel": level.upper()}, broker)
        now = admin.broker_config(broker)["logLevel"].lower()
    if output.for_programs:
        output.record({"level": now})
    output.say(now)


def split(text: str) -> tuple[str, str]:
    """Key and value. Raises: UsageError."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{text}: write KEY=VALUE")
    return name, value
