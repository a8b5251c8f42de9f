"""Collects the state of one consumer group from brokers and members.

The rules are in `group_findings`. Brokers and members that do not answer are noted and skipped,
because a diagnosis is needed when something is down. Source: admin §3 (consumerProgress,
consumerStatus), §4.2, §4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.brokers import ask, cluster_info, config_of, masters
from aerobee.client.steps.admin.clients import MEMBER_S, SILENT_MAX, consumers_at, running_info
from aerobee.client.steps.admin.groups import configs_at, lags_at
from aerobee.client.steps.admin.topics import bounds_in, described, routed_config
from aerobee.client.wire_queues import from_wire
from aerobee.counted import counted
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    GroupNotFoundError,
    PermissionDeniedError,
    RouteNotFoundError,
)
from aerobee.remoting.wire.bodies.group import GroupForbidden
from aerobee.remoting.wire.bodies.queue import TopicStatsTable
from aerobee.remoting.wire.bodies.statistics import ConsumeTimeSpans
from aerobee.remoting.wire.bodies.topic import TopicConfig as WireTopicConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import GetTopicStatsInfo, QueryConsumeTimeSpan
from aerobee.remoting.wire.headers.group import UpdateGroupForbidden
from aerobee.remoting.wire.headers.pop import PollingInfo, PollingInfoResponse
from aerobee.remoting.wire.headers.topic import GetTopicConfig
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.admin import QueueBounds, QueueLag, RunningInfo, TopicConfig
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
    from aerobee.remoting.wire.bodies.statistics import Connection, ConsumerConnection

ACCOUNTS_MAX = 64
"""The most members that are asked for their running info."""
TOPICS_MAX = 100
PERM_READ = 4
PERMISSION = "brokerPermission"
ANY_QUEUE = -1
REFUSALS = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
NO_TOPIC = (
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SYSTEM_ERROR,
)


@dataclass(slots=True)
class GroupLook:
    """The collected state of a group. Keys of `configs` and `connections` are broker names."""

    group: str
    at_ms: int
    configs: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    connections: dict[str, ConsumerConnection] = field(default_factory=dict)
    infos: dict[str, RunningInfo] = field(default_factory=dict)
    """Client id → running info."""
    silent: dict[str, str] = field(default_factory=dict)
    """Client id → the reason why there is no running info."""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Broker → the error."""
    refusing: dict[str, BrokerError] = field(default_factory=dict)
    """Broker that answers and does not tell → the error."""
    unreadable: list[str] = field(default_factory=list)
    """Brokers without the read permission."""
    topics: dict[str, list[TopicConfig]] = field(default_factory=dict)
    bounds: dict[MessageQueue, QueueBounds] = field(default_factory=dict)
    offsets: dict[MessageQueue, QueueLag] = field(default_factory=dict)
    waits_s: dict[MessageQueue, float] = field(default_factory=dict)
    forbidden: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of topic and broker that the group is forbidden to read."""
    consume_tps: float = 0.0
    dead_letters: int = 0
    held_pops: int = 0
    unknown: list[str] = field(default_factory=list)

    @property
    def is_partial(self) -> bool:
        """Whether some broker has not told."""
        return bool(self.unreachable or self.refusing)

    def members(self) -> Iterator[tuple[str, Connection]]:
        """Broker and connection of every member, once for each broker."""
        for broker, table in self.connections.items():
            for connection in table.connection_set:
                yield broker, connection


def look_at_group(routes: Routes, group: str) -> Steps[GroupLook]:
    """Query all brokers and members. Raises: GroupNotFoundError if no broker knows the group,
    PermissionDeniedError if no broker tells this account.
    """
    look = GroupLook(group, routes.clock.wall_ms())
    there: list[Broker] = []
    for lost in (yield from cluster_info(routes)).lost:
        if lost.is_master:
            why = f"it left the name server {lost.silent_s:.0f} s ago without a word"
            look.unreachable[lost.name] = why
    for target in (yield from masters(routes)):
        try:
            yield from look_at_broker(routes, target, look)
            there.append(target)
        except BrokerError as error:
            look.refusing[target.name] = error
        except AerobeeError as error:
            look.unreachable[target.name] = str(error)
    for denied in look.refusing.values():
        if isinstance(denied, PermissionDeniedError) and not there:
            raise denied
    if not look.configs and not look.connections and not look.is_partial:
        raise GroupNotFoundError(f"no broker knows group {group}")
    yield from ask_members(routes, look)
    topics = topics_of(look)
    look.topics = {topic: [] for topic in topics}
    for target in there:
        try:
            for topic in topics:
                yield from look_at_topic(routes, target, topic, look)
            letters = yield from bounds_at(routes, target, f"{DLQ_PREFIX}{group}")
            look.dead_letters += sum(letter.messages for letter in letters)
        except BrokerError as error:
            look.refusing[target.name] = error
        except AerobeeError as error:
            look.unreachable[target.name] = str(error)
    return look


def look_at_broker(routes: Routes, target: Broker, look: GroupLook) -> Steps[None]:
    """Query settings, connections and offsets of a broker. Raises: BrokerError, TransportError."""
    config = (yield from configs_at(routes, target)).get(look.group)
    if config is not None:
        look.configs[target.name] = config
    online = yield from consumers_at(routes, target, look.group)
    if online is not None:
        look.connections[target.name] = online
    lags, tps = yield from lags_at(routes, target, look.group)
    look.offsets |= {lag.queue: lag for lag in lags}
    look.consume_tps += tps
    settings = yield from config_of(routes, target)
    permission = whole_number(settings.get(PERMISSION, str(PERM_READ)))
    if permission is not None and not permission & PERM_READ:
        look.unreadable.append(target.name)


def topics_of(look: GroupLook) -> list[str]:
    """The topics that the group subscribes to or has offsets of, including its retry topics."""
    names = {queue.topic for queue in look.offsets}
    for online in look.connections.values():
        names |= online.subscription_table.keys()
    if len(names) > TOPICS_MAX:
        look.unknown.append(f"of {len(names)} topics only {TOPICS_MAX} were looked at")
    return sorted(names)[:TOPICS_MAX]


def ask_members(routes: Routes, look: GroupLook) -> Steps[None]:
    """Ask members for their running info."""
    clients = list(dict.fromkeys(connection.client_id for _, connection in look.members()))
    for number, client_id in enumerate(clients):
        if number >= ACCOUNTS_MAX or len(look.silent) >= SILENT_MAX:
            look.unknown.append(
                f"{counted(len(clients) - number, 'member was', 'members were')} not asked"
            )
            break
        try:
            info = yield from running_info(routes, look.group, client_id, within_s=MEMBER_S)
        except AerobeeError as error:
            look.silent[client_id] = str(error)
        else:
            look.infos[client_id] = info


# ── Topics ──


def look_at_topic(routes: Routes, target: Broker, topic: str, look: GroupLook) -> Steps[None]:
    """Query a topic at one broker: its settings, bounds, and the waiting time of messages."""
    config = yield from config_at(routes, target, topic)
    if config is None:
        return
    look.topics[topic].append(config)
    for bounds in (yield from bounds_at(routes, target, topic)):
        look.bounds[bounds.queue] = bounds
    yield from look_at_waits(routes, target, topic, look)
    answered = yield from ask(
        routes, target, UpdateGroupForbidden(group=look.group, topic=topic), accept=REFUSALS
    )
    if answered.answer.code == ResponseCode.SUCCESS and not answered.body(GroupForbidden).readable:
        look.forbidden.append((topic, target.name))
    if not topic.startswith(RETRY_PREFIX) and any(info.popped for info in look.infos.values()):
        header = PollingInfo(consumer_group=look.group, topic=topic, queue_id=ANY_QUEUE)
        answered = yield from ask(routes, target, header, accept=REFUSALS)
        if answered.answer.code == ResponseCode.SUCCESS:
            look.held_pops += answered.answer.header(PollingInfoResponse).polling_num


def config_at(routes: Routes, target: Broker, topic: str) -> Steps[TopicConfig | None]:
    """A topic's settings at one broker; None if it has no such topic. Raises: BrokerError."""
    answered = yield from ask(routes, target, GetTopicConfig(topic=topic), accept=NO_TOPIC)
    if answered.answer.code == ResponseCode.SUCCESS:
        return described(target.name, answered.body(WireTopicConfig))
    if answered.answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    try:
        return (yield from routed_config(routes, topic, target.name))
    except RouteNotFoundError:
        return None


def bounds_at(routes: Routes, target: Broker, topic: str) -> Steps[list[QueueBounds]]:
    """The queues of a topic at one broker; empty without the topic. Raises: BrokerError."""
    answered = yield from ask(routes, target, GetTopicStatsInfo(topic=topic), accept=NO_TOPIC)
    if answered.answer.code != ResponseCode.SUCCESS:
        return []
    return bounds_in(answered.body(TopicStatsTable))


def look_at_waits(routes: Routes, target: Broker, topic: str, look: GroupLook) -> Steps[None]:
    """Query how long the next message of each queue has waited."""
    header = QueryConsumeTimeSpan(topic=topic, group=look.group)
    answered = yield from ask(routes, target, header, accept=NO_TOPIC)
    if answered.answer.code == ResponseCode.SUCCESS:
        for span in answered.body(ConsumeTimeSpans).consume_time_span_set:
            look.waits_s[from_wire(span.message_queue)] = max(0, span.delay_time) / 1000
