"""`aerobee broker config`: the settings of a running broker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from aerobee.cli.broker import LOG_LEVELS
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import at_each
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, echo, escaped, output_options
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.blocking import AdminClient

broker_option = click.option(
    "--broker", metavar="NAME", help="Name or address; where there are several, this or --all."
)
all_option = click.option("--all", "every", is_flag=True, help="All brokers, one after the other.")


@click.group(cls=CommandGroup, short_help="Settings of a running broker.")
def config() -> None:
    """Print the settings of a running broker, and change them."""


@config.command()
@click.argument("names", metavar="[KEY]...", nargs=-1)
@broker_option
@all_option
@connection_options
@output_options
def get(
    names: tuple[str, ...],
    broker: str | None,
    every: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Print all settings, or those of these names, in any spelling."""
    rows: list[dict[str, str]] = []
    with connection.admin() as admin:

        def rows_of(name: str | None) -> list[dict[str, str]]:
            place = {"broker": name} if every and name else {}
            return [{**place, **row} for row in settings_of(admin, name, names)]

        try:
            for part in at_each(named(admin, broker, every=every), rows_of):
                rows += part
        except AerobeeError:
            if rows:
                output.rows(rows)
            raise
    output.rows(rows)


def settings_of(
    admin: AdminClient, broker: str | None, names: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """The rows of a broker's settings. Raises: UsageError for a name that it does not have."""
    from aerobee.broker.config.schema import canon

    known = admin.broker_config(broker)
    proper = {canon(name): name for name in known}
    unknown = [name for name in names if canon(name) not in proper]
    if unknown:
        raise click.UsageError(f"the broker has no setting {', '.join(unknown)}")
    wanted = [proper[canon(name)] for name in names] or sorted(known)
    return ({"key": name, "value": known[name]} for name in wanted)


def named(admin: AdminClient, broker: str | None, *, every: bool) -> list[str | None]:
    """The brokers that a command is for; None is the only one there is. Raises: UsageError."""
    if not every:
        return [broker]
    if broker is not None:
        raise click.UsageError("--broker or --all, not both")
    info = admin.cluster_info()
    return [broker.name for broker in (*info.brokers, *info.missing_masters) if broker.is_master]


@config.command("set")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True)
@broker_option
@all_option
@connection_options
@output_options
def set_values(
    values: tuple[str, ...],
    broker: str | None,
    every: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Change settings while the broker runs, now and for later starts; all of them, or none.

    Settings that may be changed are marked live in `aerobee config explain KEY`.

    Example: aerobee broker config set deleteWhen=05
    """
    pairs = dict(split(value) for value in values)
    with connection.admin() as admin:
        shown = {""}
        for remark in at_each(
            named(admin, broker, every=every), partial(admin.update_broker_config, pairs)
        ):
            if remark not in shown:
                shown.add(remark)
                echo(f"aerobee: {escaped(remark)}", err=True)
    if output.for_programs:
        output.rows({"key": name, "value": value} for name, value in pairs.items())
    for name, value in pairs.items():
        output.say(f"{name}={value}")


@click.command("log-level")
@click.argument("level", type=click.Choice(LOG_LEVELS, case_sensitive=False), required=False)
@broker_option
@all_option
@connection_options
@output_options
def log_level(
    level: str | None, broker: str | None, every: bool, connection: Connection, output: Output
) -> None:
    """Print the level of a broker's log, or set it, now and for later starts."""
    with connection.admin() as admin:

        def level_of(name: str | None) -> dict[str, str]:
            if level is not None:
                admin.update_broker_config({"logLevel": level.upper()}, name)
            now = admin.broker_config(name)["logLevel"].lower()
            return {"level": now} if name is None or not every else {"broker": name, "level": now}

        levels: list[dict[str, str]] = []
        try:
            levels.extend(at_each(named(admin, broker, every=every), level_of))
        finally:
            if levels:
                show_levels(levels, every, output)


def show_levels(levels: Sequence[dict[str, str]], every: bool, output: Output) -> None:
    """The levels of all brokers, or that of one."""
    if output.for_programs and every:
        output.rows(levels)
    elif output.for_programs:
        output.record(levels[0])
    for row in levels:
        output.say(" ".join(row.values()))


def split(text: str) -> tuple[str, str]:
    """Key and value. Raises: UsageError."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{text}: write KEY=VALUE")
    return name, value
