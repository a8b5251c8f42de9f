"""The brokers that do not answer: shown as dead, left out of what is asked, and told at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aerobee.cli.border import NOT_REACHABLE, complain, explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.admin import BrokerInfo
    from aerobee.blocking import AdminClient
    from aerobee.errors import TransportError


class DeadBroker(NamedTuple):
    """A broker that does not answer, and how that is known."""

    broker: BrokerInfo
    why: str


class Look(NamedTuple):
    """The brokers with their statistics, and those that have none to tell."""

    alive: list[tuple[BrokerInfo, dict[str, str]]]
    dead: list[DeadBroker]
    error: TransportError | None

    @property
    def masters(self) -> list[str]:
        """The names of the dead masters, whose queues nobody knows."""
        return sorted({entry.broker.name for entry in self.dead if entry.broker.is_master})


def look_at(admin: AdminClient) -> Look:
    """Ask every broker for its statistics; one that does not answer, or that the name server has
    lost, is dead.
    """
    from aerobee.errors import TransportError

    info = admin.cluster_info()
    look = Look([], [], None)
    for broker in info.brokers:
        try:
            look.alive.append((broker, admin.broker_stats(broker.address)))
        except TransportError as error:
            look = look._replace(error=look.error or error)
            look.dead.append(DeadBroker(broker, explained(error)))
    for lost in info.lost:
        why = f"it left the name server without a word; last heard of {lost.silent_s:.0f} s ago"
        look.dead.append(DeadBroker(lost, why))
    return look


def leave_dead_out(admin: AdminClient) -> Look:
    """Have the client ask only brokers that answer. Raises: TransportError if none does."""
    look = look_at(admin)
    if look.error is not None and not look.alive:
        raise look.error
    admin.leave_out(entry.broker.address for entry in look.dead)
    return look


def end_with(dead: Sequence[DeadBroker]) -> None:
    """Tell on stderr which brokers are dead, if any; the command ends with 4 then."""
    for entry in dead:
        complain(f"broker {entry.broker.name} ({entry.broker.address}) is dead: {entry.why}")
    if dead:
        click.get_current_context().exit(NOT_REACHABLE)


def with_lag(lag: int, dead_masters: Sequence[str]) -> dict[str, Any]:
    """The lag of a group as columns: what is known of it is no lag where a broker is dead."""
    if not dead_masters:
        return {"lag": lag}
    return {"lag": None, "lag_at_least": lag, "dead": list(dead_masters)}
