"""`aerobee cluster info`, `aerobee cluster kv` and `aerobee connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import NOT_REACHABLE, complain, explained
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.kv import kv
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.admin import ClientConnection
    from aerobee.blocking import AdminClient
    from aerobee.errors import TransportError

__all__ = ["cluster", "connections"]


@click.group(cls=CommandGroup, short_help="What brokers there are.")
def cluster() -> None:
    """Show the brokers of a cluster, and what its name servers keep."""


cluster.add_command(kv)


@cluster.command()
@connection_options
@output_options
def info(connection: Connection, output: Output) -> None:
    """Print every broker with its version, rates and disk.

    One that does not answer has neither; the exit code is 4 then.
    """
    silent: list[TransportError] = []
    with connection.admin() as admin:
        output.rows(described_brokers(admin, silent.append))
    for error in silent:
        complain(explained(error))
    if silent:
        click.get_current_context().exit(NOT_REACHABLE)


def described_brokers(
    admin: AdminClient, unanswered: Callable[[TransportError], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Each registered broker, with its own statistics.

    `unanswered` is told why one does not answer; without it the error ends all of it.
    """
    from aerobee.errors import TransportError

    for broker in admin.cluster_info().brokers:
        try:
            stats = admin.broker_stats(broker.address)
        except TransportError as error:
            if unanswered is None:
                raise
            unanswered(error)
            stats = {}
        # The spelling of 4.9.
        out = stats.get("getTransferredTps", stats.get("getTransferedTps"))
        yield {
            "cluster": broker.cluster,
            "broker": broker.name,
            "id": broker.broker_id,
            "address": broker.address,
            "version": stats.get("brokerVersionDesc"),
            "in_per_s": first_number(stats.get("putTps")),
            "out_per_s": first_number(out),
            "in_today": today(stats, "msgPut"),
            "disk": first_number(stats.get("commitLogDiskRatio")),
        }


def first_number(text: str | None) -> float | None:
    """The value for the last 10 s, if a broker gives several."""
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def today(stats: dict[str, str], what: str) -> int | None:
    """The number of messages since midnight."""
    try:
        return int(stats[f"{what}TotalTodayNow"]) - int(stats[f"{what}TotalTodayMorning"])
    except (KeyError, ValueError):
        return None


@click.command(short_help="Who is connected.")
@click.option("--group", help="Only this consumer or producer group.")
@connection_options
@output_options
def connections(group: str | None, connection: Connection, output: Output) -> None:
    """Print the connected consumers and producers.

    Producers without --group need a broker that serves GET_ALL_PRODUCER_INFO (328).
    """
    with connection.admin() as admin:
        output.rows(described(*one) for one in connected(admin, group))


def described(kind: str, group: str, one: ClientConnection) -> dict[str, Any]:
    """A connection on one line."""
    return {
        "kind": kind,
        "group": group,
        "client": one.client_id,
        "address": one.address,
        "language": one.language,
        "version": one.version,
        "broker": one.broker,
    }


def connected(
    admin: AdminClient, group: str | None, *, tell: bool = True
) -> Iterator[tuple[str, str, ClientConnection]]:
    """Kind, group and client of every connection; `tell` on stderr what a broker does not serve."""
    from aerobee.errors import UnsupportedRequestError

    for name in [group] if group else admin.groups():
        for one in admin.consumers(name).members:
            yield "consumer", name, one
    if group:
        for one in admin.producers(group):
            yield "producer", group, one
        return
    try:
        for name, listed in admin.all_producers().items():
            for one in listed:
                yield "producer", name, one
    except UnsupportedRequestError as error:
        if tell:
            complain(f"producers are left out: {error}")
