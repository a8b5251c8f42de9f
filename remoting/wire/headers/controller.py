"""Requests between a broker and the controller of its group, in RocketMQ's controller mode.

A `broker id` is the number that the controller gave a member: the master of a group, which name
servers know as 0, has one as well. Source: ControllerRequestProcessor.
"""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header


class AlterSyncStateSet(Header):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001): another sync set; the body is a SyncStateSet."""

    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    broker_name: str
    master_broker_id: I64
    master_epoch: I32


class AlterSyncStateSetResponse(Header):
    """The epoch of the set that was taken; 0 where it was refused."""

    new_sync_state_set_epoch: I32 = 0


class ElectMaster(Header):
    """CONTROLLER_ELECT_MASTER (1002): have a master elected; `designate_elect`: this one."""

    code = RequestCode.CONTROLLER_ELECT_MASTER
    cluster_name: str
    broker_name: str
    broker_id: I64 | None = None
    designate_elect: bool | None = None


class RegisterBrokerToController(Header):
    """CONTROLLER_REGISTER_BROKER (1003): where a member with an id is."""

    code = RequestCode.CONTROLLER_REGISTER_BROKER
    cluster_name: str
    broker_name: str
    broker_id: I64
    broker_address: str


class GetReplicaInfo(Header):
    """CONTROLLER_GET_REPLICA_INFO (1004): master and sync set of a group."""

    code = RequestCode.CONTROLLER_GET_REPLICA_INFO
    broker_name: str


class GetReplicaInfoResponse(Header):
    """The master; the body is a SyncStateSet."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None


class GetMetadataInfo(Header):
    """CONTROLLER_GET_METADATA_INFO (1005): which of the controllers leads. Each of them answers."""

    code = RequestCode.CONTROLLER_GET_METADATA_INFO


class GetMetadataInfoResponse(Header):
    """Without a leader the two fields of it are missing. `peers` is `n0:ip:port;n1:ip:port;`."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


class GetSyncStateData(Header):
    """CONTROLLER_GET_SYNC_STATE_DATA (1006): all members of the groups named in the body."""

    code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA


class GetBrokerEpochCache(Header):
    """GET_BROKER_EPOCH_CACHE (1007): the epochs of a broker's log."""

    code = RequestCode.GET_BROKER_EPOCH_CACHE


class NotifyBrokerRoleChanged(Header):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), to each living member; the body is a SyncStateSet."""

    code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    master_broker_id: I64 | None = None


class GetControllerConfig(Header):
    """GET_CONTROLLER_CONFIG (1010): the settings of a controller, as properties in the body."""

    code = RequestCode.GET_CONTROLLER_CONFIG


class GetNextBrokerId(Header):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012): an id that no member of the group has."""

    code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
    cluster_name: str
    broker_name: str


class GetNextBrokerIdResponse(Header):
    """The id; nobody has been promised it."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: I64 | None = None


class ApplyBrokerId(Header):
    """CONTROLLER_APPLY_BROKER_ID (1013): take an id. `register_check_code` is `address;ms`.

    The same code is granted the same id again, another one is not.
    """

    code = RequestCode.CONTROLLER_APPLY_BROKER_ID
    cluster_name: str
    broker_name: str
    applied_broker_id: I64
    register_check_code: str
