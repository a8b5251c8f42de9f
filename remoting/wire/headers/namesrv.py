"""Requests to a name server. Source: nameserver §4.1."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header, wire


class GetRouteInfo(Header):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = wire("__ZONE_MODE", default=None)
    zone_name: str | None = wire("__ZONE_NAME", default=None)


class RegisterBroker(Header):
    """REGISTER_BROKER (103). The CRC is that of the body as sent, 0 or absent: unchecked."""

    code = RequestCode.REGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: I32 | None = None
    zone_name: str | None = wire("__ZONE_NAME", default=None)


class RegisterBrokerResponse(Header):
    """The address of the master, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header):
    """UNREGISTER_BROKER (104)."""

    code = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersion(Header):
    """QUERY_DATA_VERSION (322): whether the broker's topics differ from the registered ones."""

    code = RequestCode.QUERY_DATA_VERSION
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersionResponse(Header):
    """Whether they differ; the body has the known version, if any."""

    changed: bool


class BrokerHeartbeat(Header):
    """BROKER_HEARTBEAT (904): a broker is alive. The optional fields are for controllers."""

    code = RequestCode.BROKER_HEARTBEAT
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None
    """After so long without another one a controller takes the broker for dead."""
    election_priority: I32 | None = None
    """Of two that are alike the one with the smaller number becomes the master."""


class GetBrokerMemberGroup(Header):
    """GET_BROKER_MEMBER_GROUP (901): the addresses under one broker name."""

    code = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChange(Header):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), to the brokers of one name. RocketMQ fills no name in."""

    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class GetBrokerClusterInfo(Header):
    """GET_BROKER_CLUSTER_INFO (106)."""

    code = RequestCode.GET_BROKER_CLUSTER_INFO


class GetAllTopicList(Header):
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""

    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class GetTopicsByCluster(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    code = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


class GetSystemTopicListFromNs(Header):
    """GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""

    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class GetUnitTopicList(Header):
    """GET_UNIT_TOPIC_LIST (311): topics of a unit."""

    code = RequestCode.GET_UNIT_TOPIC_LIST


class GetHasUnitSubTopicList(Header):
    """GET_HAS_UNIT_SUB_TOPIC_LIST (312): topics that units subscribe to."""

    code = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


class GetHasUnitSubUnunitTopicList(Header):
    """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313): those of them that are no unit's."""

    code = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class RegisterTopicInNamesrv(Header):
    """REGISTER_TOPIC_IN_NAMESRV (217): the queues of one topic, by a TopicRouteData."""

    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


class WipeWritePermOfBroker(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str


class WipeWritePermOfBrokerResponse(Header):
    """How many topics the broker has."""

    wipe_topic_count: I32


class AddWritePermOfBroker(Header):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    code = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str


class AddWritePermOfBrokerResponse(Header):
    """How many topics the broker has."""

    add_topic_count: I32


class DeleteTopicInNamesrv(Header):
    """DELETE_TOPIC_IN_NAMESRV (216), everywhere or on the brokers of one cluster."""

    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


class PutKvConfig(Header):
    """PUT_KV_CONFIG (100)."""

    code = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


class GetKvConfig(Header):
    """GET_KV_CONFIG (101)."""

    code = RequestCode.GET_KV_CONFIG
    namespace: str
    key: str


class GetKvConfigResponse(Header):
    """The value."""

    value: str


class DeleteKvConfig(Header):
    """DELETE_KV_CONFIG (102)."""

    code = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


class GetKvListByNamespace(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


class UpdateNamesrvConfig(Header):
    """UPDATE_NAMESRV_CONFIG (318); the settings are the body, as properties."""

    code = RequestCode.UPDATE_NAMESRV_CONFIG


class GetNamesrvConfig(Header):
    """GET_NAMESRV_CONFIG (319): the settings of the name server, as properties."""

    code = RequestCode.GET_NAMESRV_CONFIG
