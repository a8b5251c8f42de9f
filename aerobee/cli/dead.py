"""The brokers that do not answer: shown as dead, left out of what is asked, and told at the end.

A broker that answers and refuses is not dead: it is shown as forbidden, or as failing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from aerobee.cli.border import FAILED, NOT_REACHABLE, complain, explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aerobee.admin import BrokerInfo, ClusterInfo
    from aerobee.blocking import AdminClient
    from aerobee.errors import AerobeeError, BrokerError, TransportError

N = TypeVar("N")
T = TypeVar("T")


class DeadBroker(NamedTuple):
    """A broker that does not answer, and how that is known."""

    broker: BrokerInfo
    why: str


class RefusingBroker(NamedTuple):
    """A broker that answers, and does not tell its statistics."""

    broker: BrokerInfo
    error: BrokerError

    @property
    def state(self) -> str:
        """Whether the account may not ask, or the broker cannot answer."""
        from aerobee.errors import PermissionDeniedError

        return "forbidden" if isinstance(self.error, PermissionDeniedError) else "failing"


class Look(NamedTuple):
    """The brokers with their statistics, and those that have none to tell."""

    alive: list[tuple[BrokerInfo, dict[str, str]]]
    dead: list[DeadBroker]
    error: TransportError | None
    refusing: Sequence[RefusingBroker] = ()

    @property
    def masters(self) -> list[str]:
        """The names of the dead masters, whose queues nobody knows."""
        return sorted({entry.broker.name for entry in self.dead if entry.broker.is_master})


def look_at(admin: AdminClient) -> Look:
    """Ask every broker for its statistics; one that does not answer, or that the name server has
    lost, is dead.
    """
    from aerobee.errors import BrokerError, TransportError

    info = admin.cluster_info()
    refusing: list[RefusingBroker] = []
    look = Look([], [], None, refusing)
    for broker in info.brokers:
        try:
            look.alive.append((broker, admin.broker_stats(broker.address)))
        except BrokerError as error:
            refusing.append(RefusingBroker(broker, error))
        except TransportError as error:
            look = look._replace(error=look.error or error)
            look.dead.append(DeadBroker(broker, explained(error)))
    slaves_alone = not any(broker.is_master for broker in info.brokers)
    look.dead.extend(
        entry
        for entry in absent_in(info)
        if entry.broker.address or not (slaves_alone and is_elsewhere(admin, look, entry.broker))
    )
    return look


def is_elsewhere(admin: AdminClient, look: Look, missing: BrokerInfo) -> bool:
    """Whether a master is missing as it has another name server, which is no fault: here is a
    shadow, or a slave that follows it.
    """
    from aerobee.cli.ha_members import FOLLOWS
    from aerobee.errors import AerobeeError

    for known, _ in look.alive:
        if (known.cluster, known.name) == (missing.cluster, missing.name):
            # Slaves of Java 4.9 do not tell.
            with suppress(AerobeeError):
                status = admin.replication_status(known.address)
                if status.shadow or status.state == FOLLOWS:
                    return True
    return False


def absent_in(info: ClusterInfo) -> list[DeadBroker]:
    """The brokers that the name server has lost, and the masters that are missing otherwise."""
    dead = lost_in(info)
    lost = {(entry.broker.cluster, entry.broker.name) for entry in dead if entry.broker.is_master}
    why = "only slaves of it are registered, `aerobee ha doctor` says why"
    dead += [
        DeadBroker(missing, why)
        for missing in info.missing_masters
        if (missing.cluster, missing.name) not in lost
    ]
    return dead


def lost_in(info: ClusterInfo) -> list[DeadBroker]:
    """The brokers that the name server has lost."""
    word = "it left the name server without a word; last heard of"
    return [DeadBroker(lost, f"{word} {lost.silent_s:.0f} s ago") for lost in info.lost]


def leave_dead_out(admin: AdminClient) -> Look:
    """Have the client ask only brokers that answer. A broker that does not tell this account how it
    is may tell it what is asked next.

    Raises: TransportError if none does, BrokerError of one that fails.
    """
    look = look_at(admin)
    for entry in look.refusing:
        if entry.state == "failing":
            raise entry.error
    if look.error is not None and not (look.alive or look.refusing):
        raise look.error
    leave_out(admin, look.dead)
    return look


def leave_out(admin: AdminClient, dead: Sequence[DeadBroker]) -> None:
    """Have the client ask these brokers nothing, nor miss the masters among them."""
    masters = [entry.broker.name for entry in dead if entry.broker.is_master]
    admin.leave_out([*(entry.broker.address for entry in dead), *masters])


def at_each(brokers: Iterable[N], ask: Callable[[N], T]) -> Iterator[T]:
    """The answers of brokers, by name; one that fails keeps the question from no other.

    Raises: the first AerobeeError, at the end; its note names the brokers without one.
    """
    from aerobee.client.steps.admin.brokers import raise_first
    from aerobee.errors import AerobeeError

    failed: list[AerobeeError] = []
    done: list[str] = []
    for name in brokers:
        try:
            answer = ask(name)
        except AerobeeError as error:
            failed.append(error)
        else:
            done.append(str(name))
            yield answer
    raise_first(failed, done)


def end_with(dead: Sequence[DeadBroker]) -> None:
    """Tell on stderr which brokers are dead, if any; the command ends with 4 then."""
    for broker, why in dead:
        state = f"({broker.address}) is dead" if broker.address else "has no master now"
        complain(f"broker {broker.name} {state}: {why}")
    if dead:
        click.get_current_context().exit(NOT_REACHABLE)


def end_without(look: Look, left_out: Sequence[str]) -> None:
    """As `end_with`, for what was asked of only some brokers: those of these names were dead."""
    end_with([entry for entry in look.dead if entry.broker.name in left_out])


def end_with_all(look: Look) -> None:
    """Tell of those that refuse, too; the command ends with 4 for a dead one, else with 1.

    Raises: BrokerError where all refuse.
    """
    if look.refusing and not look.alive:
        raise look.refusing[0].error
    for entry in look.refusing:
        complain(f"broker {entry.broker.name} ({entry.broker.address}): {explained(entry.error)}")
    end_with(look.dead)
    if look.refusing:
        click.get_current_context().exit(FAILED)


def unknown_group(group: str, look: Look | None) -> AerobeeError:
    """The error where no broker that answers knows a group: a dead one may know it."""
    from aerobee.errors import GroupNotFoundError, TransportError

    if look is None or not look.masters:
        return GroupNotFoundError(f"no broker knows group {group}")
    dead = ", ".join(look.masters)
    return TransportError(f"no broker that answers knows group {group}; no answer of {dead}")


def known_count(column: str, count: int, dead_masters: Sequence[str]) -> dict[str, Any]:
    """A count over all brokers as columns: where a master is dead, only the least is known."""
    if not dead_masters:
        return {column: count}
    return {column: None, f"{column}_at_least": count, "dead": list(dead_masters)}
