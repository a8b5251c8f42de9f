"""The table of permissions: what each request code of broker and name server needs.

A need is a resource, and actions of which one must be allowed; all needs of a request must be met.
A code without a row is refused. Topics and groups are read from the same fields and bodies as the
handlers read them, so nobody is checked for one name and served another. Source: semantics §18.3
(DefaultAuthorizationContextBuilder).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.core.names import is_sendable
from aerobee.remoting.wire.bodies.client import CheckClientConfigBody, HeartbeatData
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupConfigs
from aerobee.remoting.wire.bodies.pop import AssignmentRequest, BatchAckRequest, RequestModeRequest
from aerobee.remoting.wire.bodies.queue import LockBatchRequest
from aerobee.remoting.wire.bodies.topic import TopicConfigs
from aerobee.remoting.wire.codes import RequestCode
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Kind(StrEnum):
    """The kind of a resource."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Action(StrEnum):
    """The action on a resource."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


Actions = frozenset[Action]


class Need(NamedTuple):
    """One resource, and the actions of which one must be allowed."""

    kind: Kind
    name: str
    actions: Actions


class ResourceField(NamedTuple):
    """A header field that names a resource, or a list of them; where it is absent it names none."""

    field: str
    kind: Kind
    actions: Actions
    separator: str | None = None
    """The separator of the names of a list."""


class Row(NamedTuple):
    """The rights that a request code needs. An empty row needs a known account and nothing else."""

    named: tuple[ResourceField, ...] = ()
    body: Callable[[bytes | memoryview], Iterator[Need]] | None = None
    """Reads what the body names. Raises: BodyError."""
    cluster: Actions = frozenset()
    """Actions on the cluster, if there are any."""
    unnamed: Actions = frozenset()
    """Actions on the cluster when the request names no topic."""
    pop: bool = False
    """Whether its topic may be a retry topic of POP, which is named after a group and a topic."""


def needs_of(
    row: Row, fields: Mapping[str, str], body: bytes | memoryview, cluster: str
) -> list[Need]:
    """Everything that a request needs. Raises: BodyError."""
    needs = []
    for field, kind, actions, separator in row.named:
        text = fields.get(field)
        if not text:
            continue
        for name in (text,) if separator is None else filter(None, text.split(separator)):
            if kind is Kind.TOPIC and name.startswith(RETRY_PREFIX):
                group = fields.get("consumerGroup", "") if row.pop else ""
                needs += of_retry_topic(name[len(RETRY_PREFIX) :], actions, group)
            else:
                needs.append(Need(kind, name, actions))
    if row.body is not None:
        for need in row.body(body):
            kind, name, actions = need
            if kind is Kind.TOPIC and name.startswith(RETRY_PREFIX):
                needs += of_retry_topic(name[len(RETRY_PREFIX) :], actions)
            else:
                needs.append(need)
    if row.cluster:
        needs.append(Need(Kind.CLUSTER, cluster, row.cluster))
    elif row.unnamed and not fields.get("topic"):
        needs.append(Need(Kind.CLUSTER, cluster, row.unnamed))
    if any(map(reads_all_topics, needs)):
        needs.append(Need(Kind.CLUSTER, cluster, LIST))
    return needs


def reads_all_topics(need: Need) -> bool:
    """Whether it reads what the broker keeps for itself: halves, timers, delayed messages and check
    points of all topics.
    """
    reads = Action.SUB in need.actions and Action.PUB not in need.actions
    return reads and need.kind is Kind.TOPIC and not is_sendable(need.name)


def of_retry_topic(rest: str, actions: Actions, group: str = "") -> list[Need]:
    """The needs for `%RETRY%` + `rest`: it belongs to a group and a topic if there is a plus
    between them, which is in no other name, and else to the group `rest`.

    In a request of POP by `group` it may be the first form of that group's retry topic of a topic.
    """
    owner, plus, topic = rest.partition("+")
    if not plus and group and rest.startswith(f"{group}_"):
        return [Need(Kind.TOPIC, rest[len(group) + 1 :], actions)]
    needs = [Need(Kind.GROUP, owner, RETRIED.get(actions, actions))]
    return [Need(Kind.TOPIC, topic, actions), *needs] if plus else needs


# ── Bodies ──


def heartbeat(body: bytes | memoryview) -> Iterator[Need]:
    """The consumer groups and their subscriptions; producer groups are no resource."""
    for consumer in HeartbeatData.from_client(body).consumer_data_set:
        yield Need(Kind.GROUP, consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            yield Need(Kind.TOPIC, subscription.topic, SUB)


def client_config(body: bytes | memoryview) -> Iterator[Need]:
    """The subscription whose expression is to be checked."""
    request = CheckClientConfigBody.from_client(body)
    yield Need(Kind.GROUP, request.group, SUB)
    yield Need(Kind.TOPIC, request.subscription_data.topic, SUB)


def queue_locks(body: bytes | memoryview) -> Iterator[Need]:
    """The group and the topics of its queues."""
    request = LockBatchRequest.from_client(body)
    yield Need(Kind.GROUP, request.consumer_group, SUB)
    for topic in dict.fromkeys(queue.topic for queue in request.mq_set):
        yield Need(Kind.TOPIC, topic, SUB)


def acknowledgements(body: bytes | memoryview) -> Iterator[Need]:
    """The groups and topics whose messages are acknowledged."""
    for ack in BatchAckRequest.from_client(body).acks:
        yield Need(Kind.GROUP, ack.group, SUB)
        yield Need(Kind.TOPIC, ack.topic, SUB)


def assignment(body: bytes | memoryview) -> Iterator[Need]:
    """The group and the topic whose queues are to be assigned."""
    request = AssignmentRequest.from_client(body)
    yield Need(Kind.GROUP, request.consumer_group, SUB)
    yield Need(Kind.TOPIC, request.topic, SUB)


def request_mode(body: bytes | memoryview) -> Iterator[Need]:
    """The group whose way to consume is to change."""
    yield Need(Kind.GROUP, RequestModeRequest.from_client(body).consumer_group, UPDATE)


def new_topics(body: bytes | memoryview) -> Iterator[Need]:
    """The topics of a list."""
    for config in TopicConfigs.from_client(body).topic_config_list:
        yield Need(Kind.TOPIC, config.topic_name, CREATE)


def new_group(body: bytes | memoryview) -> Iterator[Need]:
    """The group."""
    yield Need(Kind.GROUP, SubscriptionGroupConfig.from_client(body).group_name, CREATE)


def new_groups(body: bytes | memoryview) -> Iterator[Need]:
    """The groups of a list."""
    for config in SubscriptionGroupConfigs.from_client(body).group_config_list:
        yield Need(Kind.GROUP, config.group_name, CREATE)


# ── The table ──


PUB: Final = frozenset({Action.PUB})
SUB: Final = frozenset({Action.SUB})
CREATE: Final = frozenset({Action.CREATE})
UPDATE: Final = frozenset({Action.UPDATE})
DELETE: Final = frozenset({Action.DELETE})
GET: Final = frozenset({Action.GET})
LIST: Final = frozenset({Action.GET, Action.LIST})
LOOK: Final = SUB | GET
ROUTE: Final = PUB | SUB | GET
COMMIT: Final = SUB | UPDATE

RETRIED: Final[Mapping[Actions, Actions]] = {PUB: SUB, ROUTE: LOOK}
"""Actions on a retry topic → those on its group, whose consumers write there, too."""


def topic(actions: Actions, field: str = "topic") -> Row:
    """A row of a request about one topic."""
    return Row((ResourceField(field, Kind.TOPIC, actions),))


def group(actions: Actions, field: str = "consumerGroup") -> Row:
    """A row of a request about one group."""
    return Row((ResourceField(field, Kind.GROUP, actions),))


def both(actions: Actions, field: str = "consumerGroup", *, pop: bool = False) -> Row:
    """A row of a request about a topic and a group."""
    return Row(topic(actions).named + group(actions, field).named, pop=pop)


READS_CLUSTER: Final = Row(cluster=LIST)
CHANGES_CLUSTER: Final = Row(cluster=UPDATE)

PERMISSIONS: Final[Mapping[int, Row]] = {
    # Producers
    RequestCode.SEND_MESSAGE: topic(PUB),
    RequestCode.SEND_MESSAGE_V2: topic(PUB, "b"),
    RequestCode.SEND_BATCH_MESSAGE: topic(PUB, "b"),
    RequestCode.SEND_REPLY_MESSAGE: topic(PUB),
    RequestCode.SEND_REPLY_MESSAGE_V2: topic(PUB, "b"),
    RequestCode.RECALL_MESSAGE: topic(PUB),
    RequestCode.END_TRANSACTION: topic(PUB),
    # Consumers
    RequestCode.PULL_MESSAGE: both(SUB),
    RequestCode.LITE_PULL_MESSAGE: both(SUB),
    RequestCode.CONSUMER_SEND_MSG_BACK: Row(
        (ResourceField("originTopic", Kind.TOPIC, SUB), ResourceField("group", Kind.GROUP, SUB))
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: both(LOOK),
    RequestCode.UPDATE_CONSUMER_OFFSET: both(COMMIT),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: group(LOOK),
    RequestCode.LOCK_BATCH_MQ: Row(body=queue_locks),
    RequestCode.UNLOCK_BATCH_MQ: Row(body=queue_locks),
    RequestCode.POP_MESSAGE: both(SUB),
    RequestCode.ACK_MESSAGE: both(SUB, pop=True),
    RequestCode.BATCH_ACK_MESSAGE: Row(body=acknowledgements),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: both(SUB, pop=True),
    RequestCode.PEEK_MESSAGE: both(SUB),
    RequestCode.NOTIFICATION: both(SUB),
    RequestCode.POLLING_INFO: both(SUB),
    RequestCode.QUERY_ASSIGNMENT: Row(body=assignment),
    # All clients
    RequestCode.GET_ROUTEINFO_BY_TOPIC: topic(ROUTE),
    RequestCode.HEART_BEAT: Row(body=heartbeat),
    RequestCode.UNREGISTER_CLIENT: group(SUB),
    RequestCode.CHECK_CLIENT_CONFIG: Row(body=client_config),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: topic(LOOK),
    RequestCode.GET_MAX_OFFSET: topic(LOOK),
    RequestCode.GET_MIN_OFFSET: topic(LOOK),
    RequestCode.GET_EARLIEST_MSG_STORETIME: topic(LOOK),
    RequestCode.QUERY_MESSAGE: topic(LOOK),
    RequestCode.VIEW_MESSAGE_BY_ID: topic(LOOK)._replace(unnamed=GET),
    # Topics
    RequestCode.UPDATE_AND_CREATE_TOPIC: topic(CREATE),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Row(body=new_topics),
    RequestCode.DELETE_TOPIC_IN_BROKER: topic(DELETE),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: topic(DELETE),
    RequestCode.GET_TOPIC_CONFIG: topic(GET),
    RequestCode.GET_TOPIC_STATS_INFO: topic(GET),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topic(GET),
    RequestCode.QUERY_CONSUME_QUEUE: both(GET),
    RequestCode.GET_ALL_TOPIC_CONFIG: READS_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: READS_CLUSTER,
    # Groups
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Row(body=new_group),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Row(body=new_groups),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: group(DELETE, "groupName"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: group(GET, "group"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: group(UPDATE, "group"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: Row(body=request_mode),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: both(UPDATE, "group"),
    RequestCode.CLONE_GROUP_OFFSET: Row(
        group(GET, "srcGroup").named + both(UPDATE, "destGroup").named, unnamed=UPDATE
    ),
    RequestCode.GET_CONSUME_STATS: Row(
        (*both(GET).named, ResourceField("topicList", Kind.TOPIC, GET, separator=";"))
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: both(GET, "group"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: group(GET, "group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: group(GET, "group"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: group(GET),
    RequestCode.GET_CONSUMER_RUNNING_INFO: group(GET),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: both(UPDATE)._replace(unnamed=UPDATE),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: READS_CLUSTER,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: READS_CLUSTER,
    RequestCode.GET_ALL_CONSUMER_OFFSET: READS_CLUSTER,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: READS_CLUSTER,
    RequestCode.GET_ALL_PRODUCER_INFO: READS_CLUSTER,
    # The broker
    RequestCode.GET_BROKER_CONFIG: READS_CLUSTER,
    RequestCode.UPDATE_BROKER_CONFIG: CHANGES_CLUSTER,
    RequestCode.GET_BROKER_RUNTIME_INFO: READS_CLUSTER,
    RequestCode.VIEW_BROKER_STATS_DATA: READS_CLUSTER,
    RequestCode.GET_BROKER_CONSUME_STATS: READS_CLUSTER,
    RequestCode.GET_BROKER_HA_STATUS: READS_CLUSTER,
    RequestCode.EXCHANGE_BROKER_HA_INFO: CHANGES_CLUSTER,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: CHANGES_CLUSTER,
    RequestCode.GET_BROKER_EPOCH_CACHE: READS_CLUSTER,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: CHANGES_CLUSTER,
    RequestCode.GET_ALL_DELAY_OFFSET: READS_CLUSTER,
    RequestCode.GET_TIMER_CHECK_POINT: READS_CLUSTER,
    RequestCode.GET_TIMER_METRICS: READS_CLUSTER,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: CHANGES_CLUSTER,
    RequestCode.CLEAN_UNUSED_TOPIC: CHANGES_CLUSTER,
    RequestCode.DELETE_EXPIRED_COMMITLOG: CHANGES_CLUSTER,
    RequestCode.AEROBEE_CLOSE_CLIENT: CHANGES_CLUSTER,
    RequestCode.AEROBEE_PROMOTE: CHANGES_CLUSTER,
    RequestCode.AEROBEE_SWITCH: CHANGES_CLUSTER,
    RequestCode.AEROBEE_FOLLOW: CHANGES_CLUSTER,
    # Users
    RequestCode.AUTH_CREATE_USER: CHANGES_CLUSTER,
    RequestCode.AUTH_UPDATE_USER: CHANGES_CLUSTER,
    RequestCode.AUTH_DELETE_USER: CHANGES_CLUSTER,
    RequestCode.AUTH_GET_USER: READS_CLUSTER,
    RequestCode.AUTH_LIST_USER: READS_CLUSTER,
    RequestCode.AUTH_CREATE_ACL: CHANGES_CLUSTER,
    RequestCode.AUTH_UPDATE_ACL: CHANGES_CLUSTER,
    RequestCode.AUTH_DELETE_ACL: CHANGES_CLUSTER,
    RequestCode.AUTH_GET_ACL: READS_CLUSTER,
    RequestCode.AUTH_LIST_ACL: READS_CLUSTER,
    # The name server
    # Clients begin with it: which brokers there are is what all routes together say.
    RequestCode.GET_BROKER_CLUSTER_INFO: Row(),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: READS_CLUSTER,
    RequestCode.GET_TOPICS_BY_CLUSTER: READS_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: READS_CLUSTER,
    RequestCode.GET_UNIT_TOPIC_LIST: READS_CLUSTER,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: READS_CLUSTER,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: READS_CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP: READS_CLUSTER,
    RequestCode.GET_KV_CONFIG: READS_CLUSTER,
    RequestCode.GET_KVLIST_BY_NAMESPACE: READS_CLUSTER,
    RequestCode.GET_NAMESRV_CONFIG: READS_CLUSTER,
    RequestCode.PUT_KV_CONFIG: CHANGES_CLUSTER,
    RequestCode.DELETE_KV_CONFIG: CHANGES_CLUSTER,
    RequestCode.UPDATE_NAMESRV_CONFIG: CHANGES_CLUSTER,
    RequestCode.REGISTER_BROKER: CHANGES_CLUSTER,
    RequestCode.UNREGISTER_BROKER: CHANGES_CLUSTER,
    RequestCode.BROKER_HEARTBEAT: CHANGES_CLUSTER,
    RequestCode.QUERY_DATA_VERSION: CHANGES_CLUSTER,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: CHANGES_CLUSTER,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: CHANGES_CLUSTER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: CHANGES_CLUSTER,
}
"""Request code → what it needs."""
