"""Topics: creation, changes, description, deletion and listing.

Source: admin §3 (updateTopic, topicStatus, deleteTopic, topicList), §4.1, client §13.3.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aerobee.admin import MessageType, QueueBounds, TopicConfig, TopicDescription
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.route import QUEUES_MAX
from aerobee.client.steps.admin.brokers import (
    ask,
    asked_of,
    at_each,
    cluster_info,
    masters,
    readers_of,
)
from aerobee.client.steps.admin.name_servers import told_to_all
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.system_names import is_system_topic
from aerobee.client.wire_queues import from_wire
from aerobee.errors import ConfigurationError, RequestTimeoutError, RouteNotFoundError
from aerobee.remoting.wire.bodies.queue import TopicStatsTable, queue_of
from aerobee.remoting.wire.bodies.route import TopicRouteData
from aerobee.remoting.wire.bodies.topic import (
    MAX_BYTES,
    MAX_RATE,
    MESSAGE_TYPE,
    GroupList,
    TopicList,
)
from aerobee.remoting.wire.bodies.topic import TopicConfig as WireTopicConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import GetTopicStatsInfo, QueryTopicConsumeByWho
from aerobee.remoting.wire.headers.namesrv import (
    DeleteTopicInNamesrv,
    GetAllTopicList,
    GetRouteInfo,
    GetSystemTopicListFromNs,
)
from aerobee.remoting.wire.headers.topic import CreateTopic, DeleteTopicInBroker, GetTopicConfig
from aerobee.store.format.system_names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection

    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

PERMS = frozenset({0, 2, 4, 6})
ROUTE_CHECK_S = 0.1
ROUTE_WITHIN_S = 10.0


# ── Creation and changes ──


def create_topic(
    routes: Routes,
    name: str,
    *,
    queues: int = 8,
    perm: int = 6,
    message_type: MessageType | None = None,
    order: bool = False,
    cluster: str | None = None,
    broker: str | None = None,
    wait: bool = True,
) -> Steps[None]:
    """Create a topic on every master, or change its settings; the queues are per broker.

    `perm` is 4 read + 2 write. `cluster` or `broker` restrict it to some masters. With `wait` it
    returns once the name server has the route. Raises: ConfigurationError, BrokerError,
    BrokerNotFoundError, TransportError, RequestTimeoutError if the route does not appear.
    """
    check_name("topic", name, TOPIC_MAX)
    check_queues(queues)
    check_perm(perm)
    attributes = {} if message_type is None else {MESSAGE_TYPE: message_type.value}
    targets = yield from masters(routes, cluster=cluster, broker=broker)

    def create(target: Broker) -> Steps[None]:
        wanted = TopicConfig(
            broker=target.name,
            read_queues=queues,
            write_queues=queues,
            perm=perm,
            order=order,
            attributes=attributes,
        )
        yield from put_config(routes, target, name, wanted)

    yield from at_each(targets, create)
    if wait:
        yield from until_routed(routes, name, {target.name for target in targets}, bool(perm))


def change_topic(
    routes: Routes,
    name: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: int | None = None,
    message_type: MessageType | None = None,
    order: bool | None = None,
    max_messages_per_s: int | None = None,
    max_bytes_per_s: int | None = None,
) -> Steps[list[TopicConfig]]:
    """Change the given settings of a topic on every broker that has it; the others stay.

    `queues` sets both kinds of queues. The rates at which clients may send count on each broker by
    itself, 0 is no limit, and only brokers of Aerobee know them. Returns the new settings. Raises:
    RouteNotFoundError, ConfigurationError, BrokerError, TransportError.
    """
    for count in (queues, read_queues, write_queues):
        if count is not None:
            check_queues(count)
    check_perm(perm or 0)
    edits = {
        MESSAGE_TYPE: None if message_type is None else message_type.value,
        MAX_RATE: max_messages_per_s,
        MAX_BYTES: max_bytes_per_s,
    }
    known = dict((yield from configs_by_broker(routes, name)))
    changed: list[TopicConfig] = []

    def change(target: Broker) -> Steps[None]:
        now = known[target]
        wanted = TopicConfig(
            broker=target.name,
            read_queues=first_given(read_queues, queues, now.read_queues),
            write_queues=first_given(write_queues, queues, now.write_queues),
            perm=first_given(perm, now.perm),
            order=now.order if order is None else order,
            attributes={key: str(value) for key, value in edits.items() if value is not None},
        )
        yield from put_config(routes, target, name, wanted)
        changed.append(wanted)

    yield from at_each(known, change)
    if not changed:
        raise RouteNotFoundError(f"no broker has topic {name} any more").about(topic=name)
    return changed


def first_given(*values: int | None) -> int:
    """The first value that is not None; the last one never is."""
    return next(value for value in values if value is not None)


def check_queues(queues: int) -> None:
    """Check the number of queues. Raises: ConfigurationError."""
    if not 1 <= queues <= QUEUES_MAX:
        raise ConfigurationError(f"a topic has 1 to {QUEUES_MAX} queues, not {queues}")


def check_perm(perm: int) -> None:
    """Check the permission bits. Raises: ConfigurationError."""
    if perm not in PERMS:
        raise ConfigurationError("perm is 6 (read and write), 4 (read), 2 (write) or 0")


def put_config(routes: Routes, target: Broker, name: str, wanted: TopicConfig) -> Steps[None]:
    """Write a topic's settings on one broker. Raises: BrokerError, TransportError."""
    header = CreateTopic(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=wanted.read_queues,
        write_queue_nums=wanted.write_queues,
        perm=wanted.perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=wanted.order,
        attributes=",".join(f"+{key}={value}" for key, value in wanted.attributes.items()),
        force=False,
    )
    yield from ask(routes, target, header)


def until_routed(
    routes: Routes, topic: str, brokers: Collection[str], has_queues: bool
) -> Steps[None]:
    """Wait until the route has these brokers. Raises: RequestTimeoutError."""
    deadline = routes.clock.monotonic() + ROUTE_WITHIN_S
    never = Signal()
    while routes.clock.monotonic() < deadline:
        try:
            route = yield from routes.fetch_route(topic, routes.config.request_timeout)
        except RouteNotFoundError:
            pass
        else:
            queues = route.to_subscribe or route.to_publish
            if route.brokers.keys() >= set(brokers) and (queues or not has_queues):
                return
        yield Wait(never, ROUTE_CHECK_S)
    raise RequestTimeoutError(
        f"topic {topic} is made, but the name server does not route it after {ROUTE_WITHIN_S} s"
    ).about(topic=topic)


# ── Describing ──


def topic_configs(routes: Routes, name: str) -> Steps[list[TopicConfig]]:
    """A topic's settings on each broker. Raises: RouteNotFoundError, BrokerError."""
    return [config for _, config in (yield from configs_by_broker(routes, name))]


def configs_by_broker(routes: Routes, name: str) -> Steps[list[tuple[Broker, TopicConfig]]]:
    """The brokers of a topic, each with the topic's settings there. A broker that has the topic no
    more is none of them, though the route still names it, as after a deletion that failed half.

    Raises: RouteNotFoundError, BrokerError, TransportError.
    """
    configs = []
    for target in (yield from readers_of(routes, name)):
        answered = yield from ask(
            routes,
            target,
            GetTopicConfig(topic=name),
            accept=(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answered.answer.code == ResponseCode.TOPIC_NOT_EXIST:
            continue
        if answered.answer.code == ResponseCode.SUCCESS:
            config = described(target.name, answered.body(WireTopicConfig))
        else:
            # 4.9 lacks this request: the route has nearly the same settings.
            config = yield from routed_config(routes, name, target.name)
        configs.append((target, config))
    return configs


def described(broker: str, config: WireTopicConfig) -> TopicConfig:
    """A broker's topic configuration, as a public value."""
    return TopicConfig(
        broker=broker,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        order=config.order,
        attributes=config.attributes,
    )


def routed_config(routes: Routes, name: str, broker: str) -> Steps[TopicConfig]:
    """The settings of a topic on one broker, from the route. Raises: RouteNotFoundError."""
    header = GetRouteInfo(topic=name, accept_standard_json_only=True)
    data = (yield from asked_of(routes, header)).body(TopicRouteData)
    for queue_data in data.queue_datas:
        if queue_data.broker_name == broker:
            return TopicConfig(
                broker=broker,
                read_queues=queue_data.read_queue_nums,
                write_queues=queue_data.write_queue_nums,
                perm=queue_data.perm,
                order=bool(data.order_topic_conf),
            )
    text = f"topic {name} has no queues on broker {broker}"
    raise RouteNotFoundError(text).about(topic=name, broker=broker)


def describe_topic(routes: Routes, name: str) -> Steps[TopicDescription]:
    """A topic's settings, the bounds of its queues, and the groups that consume it.

    Raises: RouteNotFoundError, BrokerError, TransportError.
    """
    configs = yield from configs_by_broker(routes, name)
    left_out: set[str] = set()
    if routes.left_out:
        route = yield from routes.fetch_route(name, routes.config.request_timeout)
        left_out = route.brokers.keys() - {target.name for target, _ in configs}
    queues: list[QueueBounds] = []
    for target, _ in configs:
        stats = yield from ask(routes, target, GetTopicStatsInfo(topic=name))
        queues += bounds_in(stats.body(TopicStatsTable))
    return TopicDescription(
        name=name,
        configs=[config for _, config in configs],
        queues=sorted(queues, key=lambda bounds: bounds.queue),
        groups=(yield from groups_at(routes, [target for target, _ in configs], name)),
        left_out=sorted(left_out),
    )


def bounds_in(table: TopicStatsTable) -> list[QueueBounds]:
    """The bounds of each queue in a broker's response."""
    bounds = []
    for key, offsets in table.offset_table.items():
        bounds.append(
            QueueBounds(
                queue=from_wire(queue_of(key)),
                first=offsets.min_offset,
                end=offsets.max_offset,
                last_stored_at=instant(offsets.last_update_timestamp),
            )
        )
    return bounds


def instant(ms: int) -> datetime | None:
    """The time of a timestamp in ms; None for "never"."""
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 < ms < LAST_MS else None


LAST_MS = 253_402_300_799_000
"""The end of the year 9999."""


def topic_groups(routes: Routes, name: str) -> Steps[list[str]]:
    """The groups that consume a topic or have offsets of it. Raises: as `describe_topic`."""
    return (yield from groups_at(routes, (yield from readers_of(routes, name)), name))


def groups_at(routes: Routes, targets: Collection[Broker], name: str) -> Steps[list[str]]:
    """The groups of a topic on any of these brokers. Raises: BrokerError."""
    groups: set[str] = set()
    for target in targets:
        answered = yield from ask(routes, target, QueryTopicConsumeByWho(topic=name))
        groups |= set(answered.body(GroupList).group_list)
    return sorted(groups)


# ── Listing and deletion ──


def topics(routes: Routes) -> Steps[list[str]]:
    """The names of all topics, sorted, including system topics. Raises: NoNameServerError."""
    answered = yield from asked_of(routes, GetAllTopicList())
    return sorted(answered.body(TopicList).topic_list)


def system_topics(routes: Routes) -> Steps[list[str]]:
    """The system topics of brokers, sorted, including those named after brokers and clusters.

    Raises: NoNameServerError.
    """
    answered = yield from asked_of(routes, GetSystemTopicListFromNs())
    own = set(answered.body(TopicList).topic_list)
    # Of slaves as well: a master may be lost, and a shadow has none.
    for known in (yield from cluster_info(routes)).brokers:
        own |= {known.name, known.cluster}
    return [name for name in (yield from topics(routes)) if name in own or is_system_topic(name)]


def delete_topic(routes: Routes, name: str, *, cluster: str | None = None) -> Steps[None]:
    """Delete a topic with its queues and offsets on every master, then its route.

    A broker that fails keeps the deletion from no other, and keeps the route: so it can be tried
    again. Raises: the first error, UnsupportedRequestError if a broker does not support it,
    BrokerError, BrokerNotFoundError, TransportError.
    """
    check_name("topic", name, TOPIC_MAX)
    targets = yield from masters(routes, cluster=cluster)
    yield from at_each(targets, lambda target: ask(routes, target, DeleteTopicInBroker(topic=name)))
    for cluster_name in sorted({target.cluster for target in targets}):
        yield from told_to_all(routes, DeleteTopicInNamesrv(topic=name, cluster_name=cluster_name))
    routes.routes.pop(name, None)
