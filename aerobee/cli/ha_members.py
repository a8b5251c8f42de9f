"""The members of the groups that name servers know, with what each says of its replication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.cli.border import explained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aerobee.admin import BrokerInfo, ReplicaInfo, ReplicationStatus
    from aerobee.blocking import AdminClient
    from aerobee.errors import AerobeeError

FOLLOWS = "following"
STANDINGS = {
    "silent": "it is connected and has not said what it has",
    "ahead": "it has bytes that the master never sent, or has lost",
    "deleted": "it asks for bytes that the master has deleted",
    "unreadable": "the master cannot read its own log where it goes on",
}
"""Why a slave that is connected is not sent anything, by what its master says of it."""


class Member(NamedTuple):
    """A broker of a group and what it says; without a status `problem` says why."""

    broker: BrokerInfo
    status: ReplicationStatus | None
    problem: str = ""
    error: AerobeeError | None = None


def members_of(admin: AdminClient, name: str | None) -> Iterator[Member]:
    """Each registered broker, and those that the name server has lost."""
    from aerobee.errors import AerobeeError

    info = admin.cluster_info()
    for broker in info.brokers:
        if name not in (None, broker.name):
            continue
        try:
            yield Member(broker, admin.replication_status(broker.address))
        except AerobeeError as error:
            yield Member(broker, None, explained(error), error)
    for lost in info.lost:
        if name in (None, lost.name):
            why = f"it left the name server without a word {lost.silent_s:.0f} s ago"
            yield Member(lost, None, why)


def rows_of(members: Sequence[Member]) -> Iterator[dict[str, Any]]:
    """Each member on one line, the master of its group first."""
    groups: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        groups.setdefault((member.broker.cluster, member.broker.name), []).append(member)
    for _, group in sorted(groups.items()):
        group.sort(key=lambda replica: replica.broker.broker_id)
        masters = [
            replica.status for replica in group if replica.status and replica.status.is_master
        ]
        for member in group:
            yield row_of(member, masters, replicas_of(group, masters))


def replicas_of(
    group: Sequence[Member], masters: Sequence[ReplicationStatus]
) -> Mapping[str, ReplicaInfo]:
    """The connection of each slave at its master, by the slave's address.

    They are told by host alone; of several from one host each slave gets the one nearest to its
    log. A slave that is registered under a name, or under the address of a router, and follows this
    master, gets one of those that no other slave explains.
    """
    free = [replica for master in masters for replica in master.replicas]
    known = [(member.broker.address, member.status) for member in group if member.status]
    slaves = [(address, status) for address, status in known if not status.is_master]
    there = {host_of(address) for address, status in known if status.is_master}
    replicas: dict[str, ReplicaInfo] = {}
    for by_host in (True, False):
        for address, status in slaves:
            follows = status.state == FOLLOWS and host_of(status.master_address) in there
            if address in replicas or not (by_host or follows):
                continue
            near = [item for item in free if not by_host or item.host == host_of(address)]
            if near:
                best = nearest(near, status.max_offset)
                free.remove(best)
                replicas[address] = best
    return replicas


def nearest(replicas: Iterable[ReplicaInfo], end: int) -> ReplicaInfo:
    """The connection that has acknowledged what is nearest to the end of a log."""
    return min(replicas, key=lambda replica: abs(replica.acknowledged - end))


def host_of(address: str) -> str:
    """The host of `host:port`."""
    return address.rpartition(":")[0].strip("[]")


def row_of(
    member: Member, masters: Sequence[ReplicationStatus], replicas: Mapping[str, ReplicaInfo]
) -> dict[str, Any]:
    """A member on one line."""
    broker, status = member.broker, member.status
    replica = replicas.get(broker.address)
    slave = status is not None and not status.is_master
    end = None if status is None else status.max_offset
    lag = max(0, masters[0].max_offset - end) if slave and end is not None and masters else None
    return {
        "cluster": broker.cluster,
        "broker": broker.name,
        "id": broker.broker_id,
        "address": broker.address,
        "state": state_of(member),
        "role": role_of(status),
        "epoch": None if status is None else status.epoch,
        "max_offset": end,
        "lag_bytes": lag,
        "lag_s": None if replica is None else replica.lag_s,
        "in_sync": (replica is not None and replica.in_sync) if slave else None,
        "sync_set": in_set_of(status),
        "log_read": log_read_of(status),
        "problem": problem_of(member, masters, replica) or None,
    }


def state_of(member: Member) -> str:
    """As `aerobee cluster info` has it: whether a member answers, and lets the account ask."""
    from aerobee.errors import BrokerError, PermissionDeniedError

    if member.status is not None:
        return "up"
    if isinstance(member.error, PermissionDeniedError):
        return "forbidden"
    return "failing" if isinstance(member.error, BrokerError) else "dead"


def decide(statuses: Iterable[ReplicationStatus | None]) -> bool:
    """Whether the members of a group decide on its master by themselves."""
    return any(status is not None and status.member is not None for status in statuses)


def in_set_of(status: ReplicationStatus | None) -> str | None:
    """The members that a master waits for, in a group that decides by itself; else None."""
    if status is None or status.member is None:
        return None
    return ",".join(map(str, status.sync_set)) or "none"


def log_read_of(status: ReplicationStatus | None) -> str | None:
    """How far a member of such a group has read its log through; else None."""
    if status is None or status.member is None:
        return None
    return "all" if status.passes else f"to {status.read_to}"


def role_of(status: ReplicationStatus | None) -> str | None:
    """The role of a broker, by its own answer."""
    if status is None:
        return None
    if status.shadow:
        return "shadow"
    return "master" if status.is_master else "slave"


def problem_of(
    member: Member, masters: Sequence[ReplicationStatus], replica: ReplicaInfo | None
) -> str:
    """Why a member is not as it should be, in words; empty: it is."""
    status = member.status
    if status is None:
        return member.problem
    if status.damage:
        return f"its log is damaged: {status.damage}"
    if status.is_master:
        if status.unclean_epoch:
            return f"epoch {status.unclean_epoch} began without the sync set: messages were lost"
        return status.problem if len(masters) < 2 else "the group has two masters"
    if status.state != FOLLOWS:
        return status.problem or status.state
    if status.shadow:
        return ""
    if not masters:
        return "no master of the group answers"
    if replica is None:
        return "its master has no connection from it"
    if replica.standing in STANDINGS:
        return STANDINGS[replica.standing]
    return "" if replica.in_sync else "it is further behind than haMaxGapNotInSync of the master"
