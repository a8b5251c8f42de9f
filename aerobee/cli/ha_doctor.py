"""The command `aerobee ha doctor`: says why replication lags, stands or refuses."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import DONE, FAILED, complain, explained
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.options import SECONDS_MAX, Number
from aerobee.cli.output import Output, echo, escaped, output_options
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.blocking import AdminClient
    from aerobee.cli.ha_findings import GroupLook, Look
    from aerobee.cli.ha_members import Member
    from aerobee.diagnosis import Finding


@click.command()
@click.option("--broker", metavar="NAME", help="Only the group of this brokerName.")
@click.option(
    "--for",
    "seconds",
    type=Number(0, SECONDS_MAX),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to watch logs of which one is behind; 0: not at all.",
)
@connection_options
@output_options
def doctor(broker: str | None, seconds: float, connection: Connection, output: Output) -> int:
    """Say why a slave lags, stands still or is refused, and what to do.

    Asks each member of each group how it stands, for its settings and its disk; it changes nothing.
    Java brokers of 5.x are asked as well. Exit code 0: nothing is an error; 1: something is.
    """
    from aerobee.cli.ha_findings import findings_of
    from aerobee.cli.ha_members import rows_of
    from aerobee.diagnosis import Severity

    unknown: list[str] = []
    with connection.admin() as admin:
        groups = list(looks_at(admin, broker, seconds, unknown))
    if not groups:
        complain(f"the name server knows no broker {broker}" if broker else "no broker is known")
        return FAILED
    findings = [findings_of(group) for group in groups]
    members = [list(rows_of([look.member for look in group.looks])) for group in groups]
    well = not any(
        finding.severity is Severity.ERROR for of_group in findings for finding in of_group
    )
    if output.for_programs:
        output.record(
            {
                "well": well,
                "findings": [
                    {"broker": group.name, **described(finding)}
                    for group, of_group in zip(groups, findings, strict=True)
                    for finding in of_group
                ],
                "members": [row for rows in members for row in rows],
                "unknown": unknown,
            }
        )
    else:
        for group, of_group, rows in zip(groups, findings, members, strict=True):
            show(group, of_group, rows, output)
        for text in unknown:
            echo(f"not known: {escaped(text)}")
    return DONE if well else FAILED


def looks_at(
    admin: AdminClient, broker: str | None, seconds: float, unknown: list[str]
) -> Iterator[GroupLook]:
    """Each group as its members say it is; `unknown` gets what they do not say."""
    from aerobee.cli.ha_findings import GroupLook, is_late
    from aerobee.cli.ha_members import members_of

    groups: dict[str, list[Member]] = {}
    for member in members_of(admin, broker):
        groups.setdefault(member.broker.name, []).append(member)
    for name, members in sorted(groups.items()):
        members.sort(key=lambda member: member.broker.broker_id)
        looks = [look_at(admin, member, unknown) for member in members]
        group = GroupLook(name, looks)
        late = [replica for replica in group.replicas.values() if replica.lag and is_late(replica)]
        if late and seconds:
            grown, elapsed = growth(admin, members, seconds)
            group = GroupLook(
                name,
                [look._replace(grown=grown.get(look.address, 0)) for look in looks],
                elapsed,
            )
        yield group


def look_at(admin: AdminClient, member: Member, unknown: list[str]) -> Look:
    """The answers of a member about itself, as far as it may be asked."""
    from aerobee.cli.ha_findings import Look
    from aerobee.errors import AerobeeError

    settings: dict[str, str] = {}
    stats: dict[str, str] = {}
    address = member.broker.address
    if member.status is not None:
        try:
            stats = admin.broker_stats(address)
            settings = admin.broker_config(address)
        except AerobeeError as error:
            unknown.append(f"settings and disk of {address}: {explained(error)}")
    return Look(member, settings, stats)


def growth(
    admin: AdminClient, members: Sequence[Member], seconds: float
) -> tuple[dict[str, int], float]:
    """The bytes by which each log grows in that time, by address, and the time that it was."""
    addresses = [member.broker.address for member in members if member.status is not None]
    began, before = time.monotonic(), ends_of(admin, addresses)
    time.sleep(seconds)
    after = ends_of(admin, addresses)
    grown = {address: after[address] - before[address] for address in before.keys() & after.keys()}
    return grown, time.monotonic() - began


def ends_of(admin: AdminClient, addresses: Sequence[str]) -> dict[str, int]:
    """Where each log ends now; without those that do not answer any more."""
    from aerobee.errors import AerobeeError

    ends = {}
    for address in addresses:
        with suppress(AerobeeError):
            ends[address] = admin.replication_status(address).max_offset
    return ends


def described(finding: Finding) -> dict[str, Any]:
    """A finding for programs."""
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "text": finding.text,
        "advice": finding.advice,
        "members": list(finding.members),
    }


def show(
    group: GroupLook, findings: Sequence[Finding], rows: Sequence[dict[str, Any]], output: Output
) -> None:
    """A group for people: findings first, its members below."""
    masters, slaves = counted(len(group.masters), "master"), counted(len(group.slaves), "slave")
    echo(f"group {escaped(group.name)}: {masters}, {slaves}")
    for finding in findings:
        echo(f"{finding.severity.value}: {escaped(finding.text)}")
        echo(f"  to do: {escaped(finding.advice)}")
    if not findings:
        echo("nothing is wrong")
    output.rows(rows)
