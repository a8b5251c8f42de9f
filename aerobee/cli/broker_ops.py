"""Commands `aerobee broker clean` and `write-permission`: operations on a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import at_each
from aerobee.cli.options import dry_run_option, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.counted import counted
from aerobee.errors import BrokerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.blocking import AdminClient

WHAT = {
    "files": "log files that are past fileReservedTime, whatever deleteWhen says",
    "queues": "files of consume queues whose messages are all gone",
    "topics": "queues of topics that are deleted",
}


def cleaner(admin: AdminClient, what: str) -> Callable[[str], None]:
    """The request for one kind of cleaning."""
    return {
        "files": admin.delete_expired_files,
        "queues": admin.delete_expired_queues,
        "topics": admin.clean_unused_topics,
    }[what]


@click.command()
@click.argument("what", type=click.Choice(list(WHAT)))
@click.option("--broker", metavar="NAME", help="Only this one; else every master.")
@dry_run_option
@yes_option
@connection_options
@output_options
def clean(
    what: str,
    broker: str | None,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Have brokers delete at once what they would delete later by themselves.

    WHAT is files (log files that are past fileReservedTime), queues (files of consume queues
    whose messages are all gone) or topics (queues of topics that are deleted).
    """
    with connection.admin() as admin:
        info = admin.cluster_info()
        names = [
            known.name
            for known in (*info.brokers, *info.missing_masters)
            if known.is_master and broker in (None, known.name, known.address)
        ]
        if not names:
            there = ", ".join(dict.fromkeys(known.name for known in info.brokers)) or "none"
            wanted = broker or "any broker"
            text = f"the name server knows no master of {wanted}; it knows: {there}"
            raise BrokerNotFoundError(text)
        where = ", ".join(names)
        if not (dry_run or yes):
            confirm(f"delete {WHAT[what]} on {where}?")
        for _ in at_each(() if dry_run else names, cleaner(admin, what)):
            pass
    output.rows({"broker": name, "what": what, "asked": not dry_run} for name in names)
    output.say(f"{'would ask' if dry_run else 'asked'} {where} to delete {WHAT[what]}")


@click.command("write-permission")
@click.argument("broker", metavar="BROKER")
@click.argument("allowed", type=click.Choice(["on", "off"]))
@yes_option
@connection_options
@output_options
def write_permission(
    broker: str, allowed: str, yes: bool, connection: Connection, output: Output
) -> None:
    """Have producers leave BROKER (off), as before it is stopped, or come back (on).

    Name servers show the broker's topics as not writable; consumers stay. This lasts until the
    broker registers its topics again, at the latest at its next start.
    """
    if allowed == "off" and not yes:
        confirm(f"have producers leave {broker}?")
    with connection.admin() as admin:
        topics = admin.set_write_permission(broker, allowed == "on")
    if output.for_programs:
        output.record({"broker": broker, "write": allowed == "on", "topics": topics})
    output.say(f"{broker}: write permission of {counted(topics, 'topic')} is {allowed}")
