"""Requests about replication: how far the brokers of a group are. Source: admin §4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.admin import NewMaster, ReplicaInfo, ReplicationStatus, RoleSwitch
from aerobee.client.steps.admin.brokers import ask, one_broker
from aerobee.errors import TransportError
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.statistics import HARuntimeInfo
from aerobee.remoting.wire.headers.admin import (
    Follow,
    FollowResponse,
    GetBrokerHaStatus,
    GetBrokerRuntimeInfo,
    Promote,
    PromoteResponse,
    Switch,
    SwitchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

PROMOTE_S = 30.0
"""How long a slave may take to finish what it has copied."""
FOLLOW_S = 600.0
"""How long a slave may compare the logs, and copy what is cut: a tail of many segments."""
CONNECTED, APART = "following", "unreachable"
"""The states of a Java slave, which tells only whether it is connected."""


def replication_status(routes: Routes, broker: str | None = None) -> Steps[ReplicationStatus]:
    """How far a broker and its slaves are; of the only broker if none is named.

    Raises: BrokerNotFoundError, BrokerError, TransportError; UnsupportedRequestError from brokers
    older than RocketMQ 5.0.
    """
    target = yield from one_broker(routes, broker)
    answered = yield from ask(routes, target, GetBrokerHaStatus())
    info = answered.body(HARuntimeInfo)
    if info.master:
        replicas = [
            ReplicaInfo(
                peer=connection.addr.lstrip("/"),
                acknowledged=connection.slave_ack_offset,
                lag=connection.diff,
                in_sync=connection.in_sync,
                lag_s=connection.lag_millis / 1000 if connection.standing else None,
                standing=connection.standing,
            )
            for connection in info.ha_connection_info
        ]
        return ReplicationStatus(
            is_master=True,
            max_offset=info.master_commit_log_max_offset,
            replicas=replicas,
            problem="" if info.record is None else info.record.problem,
            epoch=info.epoch if info.epoch >= 0 else None,
            **group_of(info),
        )
    # A slave's answer has no end of its log in RocketMQ.
    answered = yield from ask(routes, target, GetBrokerRuntimeInfo())
    text = answered.body(KVTable).table.get("commitLogMaxOffset", "")
    if not text.isdecimal():
        raise TransportError(f"{target.address} does not say where its log ends: {text!r}")
    client = info.ha_client_runtime_info
    return ReplicationStatus(
        is_master=False,
        max_offset=int(text),
        master_address=(client.master_addr or "").lstrip("/"),
        state=client.state or (CONNECTED if client.activated else APART),
        problem=problem_of(info),
        epoch=info.epoch if info.epoch >= 0 else None,
        shadow=info.shadow,
        **group_of(info),
    )


def group_of(info: HARuntimeInfo) -> dict[str, Any]:
    """The answers of a member about its group; nothing of any other broker."""
    record = info.record
    if record is None:
        return {}
    return {
        "member": record.member,
        "sync_set": tuple(record.sync_set),
        "unclean_epoch": record.unclean_epoch,
        "damage": record.damage,
        "read_to": record.read_to,
        "passes": record.passes,
    }


def problem_of(info: HARuntimeInfo) -> str:
    """Why a slave does not follow, in words; empty: it does. Without a master in its group that is
    the reason, whatever became of its last connection.
    """
    client = info.ha_client_runtime_info
    if client.activated:
        return client.problem
    if info.record is not None and info.record.problem:
        return info.record.problem
    if client.state:
        return client.problem
    return f"it is not connected to its master, {client.master_addr or 'which it does not know'}"


def promote(routes: Routes, broker: str, *, accepted: Iterable[str] = ()) -> Steps[int]:
    """Make a slave the master of its group; returns the end of its log at that moment.

    `accepted`: reasons against it to let pass: master-alive, behind, diverged, incomplete; in a
    group that decides on its master by itself only `unclean`, for a sync set that is lost. The
    settings of the slave stay as they are: it remembers its role. Needs a slave of Aerobee.
    Raises: BrokerNotFoundError, BrokerError with the reason it refuses, TransportError.
    """
    target = yield from one_broker(routes, broker)
    header = Promote(accepted=";".join(accepted) or None)
    answered = yield from ask(routes, target, header, within_s=PROMOTE_S)
    return answered.answer.header(PromoteResponse).max_offset


def switch(routes: Routes, broker: str, to: str, *, dry_run: bool = False) -> Steps[RoleSwitch]:
    """Have a master hand its role to the slave at `to` (`host:port`), and follow it.

    Both are Aerobee brokers, and run on. `dry_run`: only ask whether the slave could take over.
    Raises: BrokerNotFoundError, BrokerError with the reason, and who is the master, TransportError.
    """
    target = yield from one_broker(routes, broker)
    header = Switch(to=to, check_only=dry_run or None)
    answered = yield from ask(routes, target, header, within_s=PROMOTE_S)
    reply = answered.answer.header(SwitchResponse)
    return RoleSwitch(
        max_offset=reply.max_offset, epoch=reply.epoch, paused_s=reply.paused_ms / 1000
    )


def follow(
    routes: Routes, broker: str, master: str, *, cut: bool = False, dry_run: bool = False
) -> Steps[NewMaster]:
    """Have a slave follow the master at `master` (`host:port`) from now on, over restarts as well.

    `cut`: what the slave's log has and the master's has not is kept in a directory, and goes with
    the next start of the slave, which follows then. `dry_run`: only ask what would be done. Needs
    a slave that is an Aerobee broker. Raises: BrokerNotFoundError, BrokerError with the reason it
    refuses, TransportError.
    """
    target = yield from one_broker(routes, broker)
    header = Follow(master=master, check_only=dry_run or None, cut=cut or None)
    answered = yield from ask(routes, target, header, within_s=FOLLOW_S)
    reply = answered.answer.header(FollowResponse)
    return NewMaster(
        epoch=reply.epoch,
        max_offset=reply.max_offset,
        common_offset=reply.common_offset,
        messages=reply.messages,
        size_bytes=reply.size_bytes,
        kept_in=reply.kept_in or "",
        refused=reply.refused or "",
    )
