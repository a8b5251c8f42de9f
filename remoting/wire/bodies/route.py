"""The brokers and queues of a topic, and the clusters. Source: nameserver §4.2.

Go clients search the text of `brokerAddrs` without a parser, so the JSON is compact and the ids are
quoted: both are what msgspec writes. Nulls are left out, everything else is always present.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aerobee.remoting.wire.bodies.body import Body, without_nulls
from aerobee.remoting.wire.header import I32, I64

_encode = msgspec.json.Encoder(order="sorted").encode


class NullFree(Body):
    """A body that leaves its nulls out."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        """Compact JSON without nulls."""
        return _encode(without_nulls(msgspec.to_builtins(self, str_keys=True)))


class BrokerData(NullFree, msgspec.Struct, rename="camel", kw_only=True):
    """The brokers under one name. `broker_addrs`: id → "host:port", 0 is the master."""

    broker_addrs: dict[I64, str] = {}
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None


class QueueData(Body, msgspec.Struct, rename="camel", kw_only=True):
    """A topic's queues under one broker name."""

    broker_name: str
    perm: I32
    read_queue_nums: I32
    topic_sys_flag: I32 = 0
    write_queue_nums: I32


class TopicRouteData(NullFree, msgspec.Struct, rename="camel", kw_only=True):
    """A topic's route. `order_topic_conf`: "broker-a:4;broker-b:4" limits it to these queues."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, dict[str, Any]] | None = None


class LostBroker(Body, msgspec.Struct, rename="camel", kw_only=True):
    """A broker that left its name server without unregistering. RocketMQ does not know it."""

    cluster: str
    broker_name: str
    broker_id: I64
    broker_addr: str
    silent_ms: I64
    """Since it was heard last."""


class ClusterInfo(NullFree, msgspec.Struct, rename="camel", kw_only=True):
    """Broker name → brokers, cluster → broker names.

    `lost_brokers` is ours: there only where there are some, and passed over by other clients.
    """

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}
    lost_brokers: list[LostBroker] | None = None


class BrokerMemberGroup(msgspec.Struct, rename="camel", kw_only=True):
    """The addresses under one broker name, by id."""

    broker_addrs: dict[I64, str] = {}
    broker_name: str
    cluster: str


class BrokerMemberGroupBody(NullFree, msgspec.Struct, rename="camel", kw_only=True):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup
