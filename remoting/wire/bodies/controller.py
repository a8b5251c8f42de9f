"""Bodies between a broker and the controller of its group. Source: ControllerRequestProcessor."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body


class SyncStateSet(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The members that have all that was acknowledged, by their ids."""

    sync_state_set: list[int] = []
    sync_state_set_epoch: int = 0


class ReplicaIdentity(msgspec.Struct, rename="camel", kw_only=True):
    """A member of a group."""

    broker_name: str = ""
    broker_id: int
    broker_address: str = ""
    alive: bool = False
    """Whether the controller hears its heartbeats."""


class ReplicasInfo(msgspec.Struct, rename="camel", kw_only=True):
    """All members of a group."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []


class BrokerReplicasInfo(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Groups by the name of their brokers."""

    replicas_info_table: dict[str, ReplicasInfo] = {}


class EpochEntry(msgspec.Struct, rename="camel", kw_only=True):
    """An epoch of a log. The last one has no end yet: Java writes the largest number."""

    epoch: int
    start_offset: int
    end_offset: int


class EpochEntryCache(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The epochs of a broker's log, with the end of the log."""

    cluster_name: str
    broker_name: str
    broker_id: int
    """0 of the master, whatever its id."""
    epoch_list: list[EpochEntry]
    max_offset: int
