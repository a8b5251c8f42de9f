"""`aerobee topic create` and `aerobee topic list`."""

from __future__ import annotations

import click

from aerobee.cli.options import json_option, namesrv_option

__all__ = ["topic"]

QUEUES_MAX = 1_024
"""The most that a broker of ours gives a topic."""
PERMS = {"r": 4, "w": 2, "rw": 6, "4": 4, "2": 2, "6": 6}


@click.group(short_help="Create and list topics.")
def topic() -> None:
    """Create and list topics."""


@topic.command()
@click.argument("name")
@namesrv_option
@click.option(
    "--queues", type=click.IntRange(1, QUEUES_MAX), default=8, help="Queues per broker; 8."
)
@click.option("--perm", type=click.Choice(sorted(PERMS)), default="rw", help="Who may; rw.")
def create(name: str, namesrv: str | None, queues: int, perm: str) -> None:
    """Create topic NAME on every master, or change it to these settings."""
    from aerobee.blocking import AdminClient

    with AdminClient(namesrv) as admin:
        admin.create_topic(name, queues=queues, perm=PERMS[perm])
    click.echo(f"topic {name}: {queues} queues per broker, {perm}")


@topic.command("list")
@namesrv_option
@click.option("--all", "everything", is_flag=True, help="System and retry topics too.")
@json_option
def list_topics(namesrv: str | None, everything: bool, as_json: bool) -> None:
    """Print the names of all topics."""
    from aerobee.blocking import AdminClient
    from aerobee.client.system_names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

    hidden = (DLQ_PREFIX, RETRY_PREFIX)
    with AdminClient(namesrv) as admin:
        names = [
            name
            for name in admin.topics()
            if everything or not (is_system_topic(name) or name.startswith(hidden))
        ]
    for name in names:
        if as_json:
            import msgspec

            click.echo(msgspec.json.encode({"topic": name}))
        else:
            click.echo(name)
