"""`aerobee cluster kv`: what name servers keep under a namespace, such as ORDER_TOPIC_CONFIG."""

from __future__ import annotations

import click

from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import dry_run_option, yes_option
from aerobee.cli.output import Output, output_options


@click.group(cls=CommandGroup, short_help="Key-value settings of the name servers.")
def kv() -> None:
    """Print, write and remove what the name servers keep under a namespace.

    ORDER_TOPIC_CONFIG has the queues of ordered topics, as 'broker-a:4;broker-b:4'.
    """


@kv.command("list")
@click.argument("section", metavar="NAMESPACE")
@connection_options
@output_options
def list_values(section: str, connection: Connection, output: Output) -> None:
    """Print what is kept under NAMESPACE."""
    with connection.admin() as admin:
        found = admin.kv(section)
    output.rows({"key": key, "value": found[key]} for key in sorted(found))


@kv.command("set")
@click.argument("section", metavar="NAMESPACE")
@click.argument("key")
@click.argument("value")
@dry_run_option
@connection_options
@output_options
def set_value(
    section: str, key: str, value: str, dry_run: bool, connection: Connection, output: Output
) -> None:
    """Write one value on every name server."""
    with connection.admin() as admin:
        before = admin.kv(section).get(key)
        if not dry_run:
            admin.put_kv(section, key, value)
    show(key, before, value, dry_run, output)


@kv.command()
@click.argument("section", metavar="NAMESPACE")
@click.argument("key")
@dry_run_option
@yes_option
@connection_options
@output_options
def delete(
    section: str, key: str, dry_run: bool, yes: bool, connection: Connection, output: Output
) -> None:
    """Remove one value from every name server."""
    with connection.admin() as admin:
        before = admin.kv(section).get(key)
        if not (dry_run or yes):
            click.confirm(f"remove {key}, which is {before}?", abort=True, err=True)
        if not dry_run:
            admin.delete_kv(section, key)
    show(key, before, None, dry_run, output)


def show(key: str, before: str | None, after: str | None, dry_run: bool, output: Output) -> None:
    """What was changed, or would be."""
    output.record(
        {"key": key, "before": before, "after": after, "changed": not dry_run and before != after}
    )
