"""`aerobee ha`: masters and slaves, how far they are, and how their roles are changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.border import DONE, FAILED, complain
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.ha_doctor import doctor
from aerobee.cli.ha_members import decide, members_of, rows_of
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import dry_run_option, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.cli.ha_members import Member

MASTER_ALIVE, BEHIND, DIVERGED = "master-alive", "behind", "diverged"
INCOMPLETE = "incomplete"
UNCLEAN = "unclean"
"""The reason that an election in a group lets pass."""
LOSSES = {
    MASTER_ALIVE: "two masters: what the old one acknowledges from now on is lost here",
    BEHIND: "what another member has and this one has not is lost",
    DIVERGED: "the messages in which its log differs from the master's are lost",
    INCOMPLETE: "what only the old master has in front of its log is lost to who has not read it",
}
"""Reasons against a promotion, and what is lost when one is accepted."""


@click.group(cls=CommandGroup, short_help="Masters and slaves: how far they are.")
def ha() -> None:
    """Show the replication between the brokers of a group, those of one brokerName; change it."""


ha.add_command(doctor)


@ha.command()
@click.option("--broker", metavar="NAME", help="Only the group of this brokerName.")
@connection_options
@output_options
def status(broker: str | None, connection: Connection, output: Output) -> int:
    """Print every member of every group: its role, its log, and how far behind it is.

    Java brokers of 5.x are shown as well. Exit code 0: each slave follows its master and is in
    sync; 1: one does not, and the line says why.
    """
    with connection.admin() as admin:
        members = list(members_of(admin, broker))
    rows = list(rows_of(members))
    output.rows(rows)
    if not members:
        complain(f"the name server knows no broker {broker}" if broker else "no broker is known")
        return FAILED
    return FAILED if any(row["problem"] for row in rows) else DONE


@ha.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--accept",
    "accepted",
    type=click.Choice(sorted(LOSSES)),
    multiple=True,
    help="A reason against it to let pass; repeatable.",
)
@dry_run_option
@yes_option
@connection_options
@output_options
def promote(
    address: str,
    accepted: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> int:
    """Make the slave at HOST:PORT (its listenPort) the master of its group.

    Refused while that would lose messages: the master still answers, another slave has more, or
    the logs differ, or this one begins later. Needs a slave of Aerobee. The slave remembers its
    role over restarts. Before the old master is started again, set its brokerRole to SLAVE, with a
    brokerId of its own.
    """
    with connection.admin() as admin:
        broker = next(
            (broker for broker in admin.cluster_info().brokers if broker.address == address), None
        )
        if broker is None:
            raise click.UsageError(
                f"the name server knows no broker at {address}: `aerobee ha status` shows them all"
            )
        members = list(members_of(admin, broker.name))
        if decide(member.status for member in members):
            complain(
                f"nothing was changed: {broker.name} decides on its master by itself: `aerobee ha"
                f" switch --to {address}` hands the role over; `aerobee ha elect --unclean"
                f" {address}` is for a sync set that does not come back"
            )
            return FAILED
        against = dict(objections(members, address))
        for name, reason in against.items():
            complain(f"{name}: {reason}")
            if name in accepted:
                complain(f"accepted: {LOSSES[name]}")
        if not against.keys() <= set(accepted):
            complain("nothing was changed; --accept lets a reason pass, with what it says is lost")
            return FAILED
        if dry_run:
            output.record({"address": address, "promoted": False, "against": list(against)})
            return DONE
        if accepted and not yes:
            confirm(f"make {address} the master?")
        end = admin.promote(address, accepted=accepted)
    output.record({"address": address, "promoted": True, "max_offset": end})
    return DONE


@ha.command()
@click.argument("group", metavar="GROUP", required=False)
@click.option(
    "--to", "address", metavar="HOST:PORT", required=True, help="The slave, by its listenPort."
)
@dry_run_option
@connection_options
@output_options
def switch(
    group: str | None, address: str, dry_run: bool, connection: Connection, output: Output
) -> int:
    """Exchange the roles of the master of GROUP and the slave at HOST:PORT, while both run.

    Sends are refused for a moment, and no message is lost. The old master follows the new one, and
    both remember their roles over restarts. GROUP is the brokerName, by default that of the slave.
    Both are brokers of Aerobee, with haPeers set.
    """
    with connection.admin() as admin:
        brokers = admin.cluster_info().brokers
        slave = next((broker for broker in brokers if broker.address == address), None)
        if slave is None or group not in (None, slave.name):
            where = f" in {group}" if group else ""
            raise click.UsageError(
                f"the name server knows no broker at {address}{where}: `aerobee ha status` shows"
                " them all"
            )
        members = list(members_of(admin, slave.name))
        masters = [
            member.broker.address
            for member in members
            if member.status is not None and member.status.is_master
        ]
        if not masters:
            raise_denial(members)
        if len(masters) != 1 or masters == [address]:
            what = "no master answers" if not masters else f"masters answer: {', '.join(masters)}"
            complain(f"nothing was changed: of {slave.name} {what}")
            return FAILED
        made = admin.switch(masters[0], address, dry_run=dry_run)
    output.record(
        {
            "address": address,
            "switched": not dry_run,
            "max_offset": made.max_offset,
            "epoch": made.epoch,
            "paused_s": made.paused_s,
        }
    )
    return DONE


@ha.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--unclean", is_flag=True, required=True, help="Accept that acknowledged messages are lost."
)
@yes_option
@connection_options
@output_options
def elect(address: str, unclean: bool, yes: bool, connection: Connection, output: Output) -> int:
    """Make the member at HOST:PORT the master of its group, though it may lack messages.

    For a group with etcd none of whose sync set comes back: what only they had is lost. Nobody else
    is the master then. The record says from then on that this was done.
    """
    with connection.admin() as admin:
        if not yes:
            confirm(f"make {address} the master? Acknowledged messages that it lacks are lost")
        end = admin.promote(address, accepted=[UNCLEAN])
    output.record({"address": address, "elected": True, "max_offset": end})
    return DONE


@ha.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--master", metavar="HOST:PORT", required=True, help="The other master, by its listenPort."
)
@click.option(
    "--cut", is_flag=True, help="Keep what only the slave has in a directory, and give it up."
)
@dry_run_option
@yes_option
@connection_options
@output_options
def follow(
    address: str,
    master: str,
    cut: bool,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> int:
    """Have the slave at HOST:PORT (its listenPort) follow another master, over restarts as well.

    For a slave that is stuck or has diverged, too. `common_offset` is the end of what both logs
    have. Where the slave has messages behind it, only --cut goes on: they are kept in the directory
    that is named, and the next start of the slave ends the cut. Needs a slave of Aerobee.
    """
    with connection.admin() as admin:
        made = admin.follow(address, master, cut=cut, dry_run=True)
        if made.refused:
            complain(f"nothing was changed; {made.refused}")
        elif not dry_run:
            if made.messages and not yes:
                cut_off = counted(made.messages, "message")
                confirm(f"cut {cut_off} behind {made.common_offset} off {address}?")
            # Messages that have come behind the look were in no question.
            made = admin.follow(address, master, cut=cut and (yes or bool(made.messages)))
    done = not (dry_run or made.refused)
    output.record(
        {
            "address": address,
            "master": master,
            "epoch": made.epoch,
            "changed": done,
            "max_offset": made.max_offset,
            "common_offset": made.common_offset,
            "cut_messages": made.messages,
            "cut_bytes": made.size_bytes,
            "kept_in": made.kept_in or None,
        }
    )
    if made.kept_in:
        complain(f"restart the broker at {address}: its start ends the cut, and it follows then")
    return FAILED if made.refused else DONE


def raise_denial(members: Sequence[Member]) -> None:
    """Say that it is not for this account, where that is why nothing is known of the members.

    Raises: PermissionDeniedError.
    """
    from aerobee.errors import PermissionDeniedError

    for member in members:
        if isinstance(member.error, PermissionDeniedError):
            raise member.error


def objections(members: Sequence[Member], address: str) -> Iterator[tuple[str, str]]:
    """The names of what is against a promotion, with the reason in words."""
    own = next((member.status for member in members if member.broker.address == address), None)
    for member in members:
        status, where = member.status, member.broker.address
        if status is None or where == address:
            continue
        if status.is_master:
            yield MASTER_ALIVE, f"the master at {where} answers: stop it first"
        elif own is not None and status.max_offset > own.max_offset:
            more = status.max_offset - own.max_offset
            yield BEHIND, f"the slave at {where} has {more} bytes more: promote that one"
    if own is not None and own.state == DIVERGED:
        yield DIVERGED, own.problem
