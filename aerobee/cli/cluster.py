"""`aerobee cluster info`, `aerobee cluster kv`, `aerobee connections` and `connections close`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import complain
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import Look, end_with, end_with_all, leave_dead_out, look_at
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import dry_run_option, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.cli.times import duration_text
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.admin import BrokerInfo, ClientConnection
    from aerobee.blocking import AdminClient

RUNTIME = re.compile(r"\[ (\d{1,9}) days, (\d{1,9}) hours, (\d{1,9}) minutes, (\d{1,9}) seconds \]")
FIGURE_MAX = 2**63
"""No figure of a broker is as large; a sum of such numbers may be none that JSON has."""


@click.group(cls=CommandGroup, short_help="What brokers there are.")
def cluster() -> None:
    """Show the brokers of a cluster, and what its name servers keep."""


@cluster.command()
@connection_options
@output_options
def info(connection: Connection, output: Output) -> None:
    """Print every broker with its versions, uptime, rates and disk.

    A broker that does not answer, or that left without unregistering, is dead; the exit code is 4
    then. A broker that refuses to tell is forbidden, or failing; the exit code is 1 then.
    """
    with connection.admin() as admin:
        look = look_at(admin)
    output.rows(for_people(row, output) for row in broker_rows(look))
    end_with_all(look)


def for_people(row: dict[str, Any], output: Output) -> dict[str, Any]:
    """A row as it is printed: people get the uptime in words."""
    if output.for_programs:
        return row
    return {
        name.removesuffix("_s") if name == "uptime_s" else name: (
            duration_text(value) if name == "uptime_s" else value
        )
        for name, value in row.items()
    }


def broker_rows(look: Look) -> list[dict[str, Any]]:
    """Each broker on one line: those that answer with their statistics, the others without."""
    states = [(broker, stats, "up") for broker, stats in look.alive]
    states += [(entry.broker, {}, "dead") for entry in look.dead]
    states += [(entry.broker, {}, entry.state) for entry in look.refusing]
    states.sort(key=lambda state: (state[0].cluster, state[0].name, state[0].broker_id))
    return [broker_row(*state) for state in states]


def broker_row(broker: BrokerInfo, stats: dict[str, str], state: str) -> dict[str, Any]:
    """A broker on one line; `version` is the protocol's, `aerobee` ours."""
    # The spelling of 4.9.
    out = stats.get("getTransferredTps", stats.get("getTransferedTps"))
    return {
        "cluster": broker.cluster,
        "broker": broker.name,
        "id": broker.broker_id,
        "address": broker.address,
        "state": state,
        "version": stats.get("brokerVersionDesc"),
        "aerobee": stats.get("aerobeeVersion"),
        "uptime_s": uptime(stats.get("runtime")),
        "in_per_s": first_number(stats.get("putTps")),
        "out_per_s": first_number(out),
        "in_today": today(stats, "msgPut"),
        "disk": first_number(stats.get("commitLogDiskRatio")),
        "replication": stats.get("aerobeeReplication") or None,
    }


def uptime(text: str | None) -> int | None:
    """Seconds of what every broker tells as `[ 0 days, 1 hours, 2 minutes, 3 seconds ]`."""
    match = RUNTIME.match(text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def first_number(text: str | None) -> float | None:
    """The value for the last 10 s, if a broker gives several; None if that is no figure."""
    try:
        number = float((text or "").split()[0])
    except (ValueError, IndexError):
        return None
    # Nor are NaN and infinity figures.
    return number if abs(number) < FIGURE_MAX else None


def today(stats: dict[str, str], what: str) -> int | None:
    """The number of messages since midnight."""
    try:
        number = int(stats[f"{what}TotalTodayNow"]) - int(stats[f"{what}TotalTodayMorning"])
    except (KeyError, ValueError):
        return None
    return number if abs(number) < FIGURE_MAX else None


@click.group(cls=CommandGroup, short_help="Who is connected.", invoke_without_command=True)
@click.option("--group", help="Only this consumer or producer group.")
@connection_options
@output_options
def connections(group: str | None, connection: Connection, output: Output) -> None:
    """Print the connected consumers and producers.

    Producers without --group need a broker that serves GET_ALL_PRODUCER_INFO (328).
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    with connection.admin() as admin:
        look = leave_dead_out(admin)
        rows = [described(*member) for member in connected(admin, group)]
    output.rows(rows, none="nobody is connected")
    end_with(look.dead)


@connections.command()
@click.argument("client", metavar="CLIENT")
@dry_run_option
@yes_option
@connection_options
@output_options
def close(client: str, dry_run: bool, yes: bool, connection: Connection, output: Output) -> None:
    """Close all connections of the client with this id, as `aerobee connections` shows it.

    Most clients connect again by themselves: to keep one out, disable its user or pause its group.
    The broker's audit log has a line. Needs brokers of Aerobee.
    """
    with connection.admin() as admin:
        if dry_run:
            closed = connections_of(admin, client)
        else:
            if not yes:
                confirm(f"close the connections of {client}?")
            closed = Counter(admin.close_client(client))
    output.rows(
        {"client": client, "broker": broker, "connections": count, "closed": not dry_run}
        for broker, count in sorted(closed.items())
    )
    done = "would be closed" if dry_run else "are closed"
    output.say(f"connections of {client} on {counted(len(closed), 'broker')} {done}")


def connections_of(admin: AdminClient, client: str) -> Counter[str]:
    """How many connections a client has, by broker."""
    every = {
        (at.broker, at.address) for _, _, at in connected(admin, None) if at.client_id == client
    }
    return Counter(broker for broker, _ in every)


def described(kind: str, group: str, client: ClientConnection) -> dict[str, Any]:
    """A connection on one line."""
    return {
        "kind": kind,
        "group": group,
        "client": client.client_id,
        "address": client.address,
        "language": client.language,
        "version": client.version,
        "broker": client.broker,
    }


def connected(
    admin: AdminClient, group: str | None, *, tell: bool = True
) -> Iterator[tuple[str, str, ClientConnection]]:
    """Kind, group and client of every connection; `tell` on stderr what a broker does not serve."""
    from aerobee.errors import UnsupportedRequestError

    for name in [group] if group else admin.groups():
        for member in admin.consumers(name).members:
            yield "consumer", name, member
    if group:
        for member in admin.producers(group):
            yield "producer", group, member
        return
    try:
        for name, listed in admin.all_producers().items():
            for member in listed:
                yield "producer", name, member
    except UnsupportedRequestError as error:
        if tell:
            complain(f"producers are left out: {error}")


# ── Key-value settings of the name servers ──


@cluster.group(cls=CommandGroup, short_help="Key-value settings of the name servers.")
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
        values = admin.kv(section)
    rows = ({"key": key, "value": values[key]} for key in sorted(values))
    output.rows(rows, none=f"namespace {section} is empty")


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
    show_change(key, before, value, dry_run, output)


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
            confirm(f"remove {key}, which is {before}?")
        if not dry_run:
            admin.delete_kv(section, key)
    show_change(key, before, None, dry_run, output)


def show_change(
    key: str, before: str | None, after: str | None, dry_run: bool, output: Output
) -> None:
    """Show the values that were changed, or would be."""
    output.record(
        {"key": key, "before": before, "after": after, "changed": not dry_run and before != after}
    )
