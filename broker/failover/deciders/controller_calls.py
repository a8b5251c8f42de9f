"""The answers of RocketMQ's controller about a group, as a record; and which answers refuse. Pure.

The controller has no lease with a moment: a record that it shows names the epoch of the master in
the place of one. Source: ReplicasInfoManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aerobee.broker.failover.record import Record, RecordIllegal
from aerobee.remoting.errors import BodyError, HeaderError
from aerobee.remoting.wire.bodies.controller import BrokerReplicasInfo, SyncStateSet
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.controller import (
    AlterSyncStateSetResponse,
    GetReplicaInfoResponse,
)

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.controller import ReplicaIdentity
    from aerobee.remoting.wire.command import Command

REFUSALS: Final = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
    }
)
"""The controller has done nothing, and says why."""


UNCLEAN_SETTING: Final = b"enableElectUncleanMaster"


class GroupState(NamedTuple):
    """A group as the controller has it at one moment."""

    epoch: int = 0
    """Of the master; it grows with each election, one that finds nobody as well."""
    master: int | None = None
    """None: nobody is, and none of the sync set is heard."""
    address: str = ""
    """The master's."""
    sync_set: tuple[int, ...] = ()
    """Empty: there was never a master."""
    set_epoch: int = 0
    """The condition of the next change of the set."""


NO_GROUP: Final = GroupState()


def group_state(answer: Command) -> GroupState:
    """The state of the group in an answer to GET_REPLICA_INFO. Raises: RecordIllegal."""
    if answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
        return NO_GROUP
    if answer.code != ResponseCode.SUCCESS:
        raise RecordIllegal(f"CONTROLLER_GET_REPLICA_INFO: {answer.code} {answer.remark}")
    try:
        header = answer.header(GetReplicaInfoResponse)
        body = SyncStateSet.from_bytes(answer.body)
    except (HeaderError, BodyError) as error:
        raise RecordIllegal(str(error)) from error
    return GroupState(
        header.master_epoch or 0,
        header.master_broker_id,
        header.master_address or "",
        tuple(sorted(set(body.sync_state_set))),
        body.sync_state_set_epoch,
    )


def record_of(state: GroupState, last_master: int) -> Record | None:
    """The record of a group that had a master; without one now it names `last_master`.

    Raises: RecordIllegal.
    """
    if not state.sync_set:
        return None
    master = state.master
    if master is None:
        master = last_master if last_master in state.sync_set else state.sync_set[0]
    return Record(
        epoch=state.epoch,
        master=master,
        sync_set=state.sync_set,
        # Elections that find nobody count the epochs of masters, and not those of sets.
        set_epoch=max(state.epoch, state.set_epoch),
        lease="" if state.master is None else str(state.epoch),
    )


def with_changed_set(state: GroupState, record: Record, answer: Command) -> GroupState:
    """The group after a change of its set that was taken. Raises: RecordIllegal."""
    try:
        set_epoch = answer.header(AlterSyncStateSetResponse).new_sync_state_set_epoch
    except HeaderError as error:
        raise RecordIllegal(str(error)) from error
    return state._replace(sync_set=record.sync_set, set_epoch=set_epoch)


def set_body(record: Record, state: GroupState) -> bytes:
    """The body of a change of the set: the new one, with the epoch of the present one."""
    return SyncStateSet(
        sync_state_set=list(record.sync_set), sync_state_set_epoch=state.set_epoch
    ).to_bytes()


def elects_unclean(answer: Command) -> bool | None:
    """Whether a controller elects outside of the sync set; None: it does not say."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    for line in bytes(answer.body).splitlines():
        name, _, value = line.partition(b"=")
        if name.strip() == UNCLEAN_SETTING:
            return value.strip().lower() == b"true"
    return None


def names_body(broker: str) -> bytes:
    """The body of GET_SYNC_STATE_DATA for one group."""
    return msgspec.json.encode([broker])


def members_of(answer: Command, broker: str) -> dict[int, str]:
    """The members of a group: their ids, and their addresses. Raises: RecordIllegal."""
    return {replica.broker_id: replica.broker_address for replica in _replicas(answer, broker)}


def alive_of(answer: Command, broker: str) -> set[int]:
    """The members of a group that the controllers hear. Raises: RecordIllegal."""
    return {replica.broker_id for replica in _replicas(answer, broker) if replica.alive}


def _replicas(answer: Command, broker: str) -> list[ReplicaIdentity]:
    if answer.code != ResponseCode.SUCCESS:
        raise RecordIllegal(f"CONTROLLER_GET_SYNC_STATE_DATA: {answer.code} {answer.remark}")
    try:
        table = BrokerReplicasInfo.from_bytes(answer.body).replicas_info_table
    except BodyError as error:
        raise RecordIllegal(str(error)) from error
    group = table.get(broker)
    return [] if group is None else [*group.in_sync_replicas, *group.not_in_sync_replicas]
