"""Consumer groups: listing, description, creation, deletion and lag.

Source: admin §3 (brokerConsumeStats, consumerProgress, updateSubGroup, deleteSubGroup), §4.1, §4.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.admin import (
    ConsumerLag,
    ConsumeTimeSpan,
    GroupConfig,
    GroupDescription,
    LagHistory,
    LagSample,
    QueueLag,
)
from aerobee.client.message import GROUP_MAX, TOPIC_MAX, check_name
from aerobee.client.namespaces import plain, wrapped
from aerobee.client.steps.admin.brokers import ask, at_each, masters, readers_of
from aerobee.client.steps.admin.clients import consumers
from aerobee.client.steps.admin.topics import instant
from aerobee.client.wire_queues import from_wire
from aerobee.errors import GroupNotFoundError
from aerobee.remoting.wire.bodies.group import (
    PRIORITY_FACTOR,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from aerobee.remoting.wire.bodies.queue import ConsumeStats, ConsumeStatsList, queue_of
from aerobee.remoting.wire.bodies.statistics import ConsumeTimeSpans
from aerobee.remoting.wire.bodies.topic import MAX_BYTES, MAX_RATE, TopicList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    QueryTopicsByConsumer,
)
from aerobee.remoting.wire.headers.group import CreateGroup, DeleteGroup, GetAllGroupConfig
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

SLOW_WITHIN_S = 15.0
"""The timeout of a broker's response with the offsets of many queues."""


def groups(routes: Routes) -> Steps[list[str]]:
    """The names of all consumer groups, sorted, including system groups.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    names: set[str] = set()
    for target in (yield from masters(routes)):
        names |= (yield from configs_at(routes, target)).keys()
    return sorted(names)


def configs_at(routes: Routes, target: Broker) -> Steps[dict[str, SubscriptionGroupConfig]]:
    """The settings of all groups of one broker, by name. Raises: BrokerError, TransportError."""
    answered = yield from ask(routes, target, GetAllGroupConfig(), within_s=SLOW_WITHIN_S)
    return answered.body(SubscriptionGroupWrapper).subscription_group_table


def describe_group(routes: Routes, group: str) -> Steps[GroupDescription]:
    """A group's settings on each broker, its members, and its topics.

    Raises: GroupNotFoundError if no broker knows it, BrokerError, TransportError.
    """
    configs: dict[str, GroupConfig] = {}
    for target in (yield from masters(routes)):
        # A query of one group would create it on Java brokers.
        config = (yield from configs_at(routes, target)).get(group)
        if config is not None:
            configs[target.name] = described(config)
    if not configs:
        raise GroupNotFoundError(f"no broker knows group {group}")
    return GroupDescription(
        name=group,
        configs=configs,
        connections=(yield from consumers(routes, group)),
        topics=(yield from group_topics(routes, group)),
    )


def described(config: SubscriptionGroupConfig) -> GroupConfig:
    """A group's settings, as a public value."""
    return GroupConfig(
        name=config.group_name,
        retry_max=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        enabled=config.consume_enable,
        broadcast=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        consume_timeout_minutes=config.consume_timeout_minute,
        max_messages_per_s=whole_number(config.attributes.get(MAX_RATE, "")),
        max_bytes_per_s=whole_number(config.attributes.get(MAX_BYTES, "")),
        priority_factor=whole_number(config.attributes.get(PRIORITY_FACTOR, "")),
    )


def edits(
    messages_per_s: int | None, bytes_per_s: int | None, priority_factor: int | None
) -> dict[str, str]:
    """The edit that sets these attributes of a group; an attribute that is None stays."""
    numbers = {
        MAX_RATE: messages_per_s,
        MAX_BYTES: bytes_per_s,
        PRIORITY_FACTOR: priority_factor,
    }
    return {f"+{key}": str(number) for key, number in numbers.items() if number is not None}


def group_topics(routes: Routes, group: str) -> Steps[list[str]]:
    """The topics of which a group has offsets, sorted. Raises: BrokerError, TransportError."""
    names: set[str] = set()
    for target in (yield from masters(routes)):
        answered = yield from ask(
            routes,
            target,
            QueryTopicsByConsumer(group=group),
            accept=(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,),
        )
        if answered.answer.code == ResponseCode.SUCCESS:
            names |= set(answered.body(TopicList).topic_list)
        else:
            # 4.9 lacks this request, and returns the same with the offset of each queue.
            names |= {lag.queue.topic for lag in (yield from lags_at(routes, target, group))[0]}
    return sorted(names)


def create_group(
    routes: Routes, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None
) -> Steps[None]:
    """Create a group on every master, or change its settings; settings that are not given stay.

    Raises: ConfigurationError, BrokerError, BrokerNotFoundError, TransportError.
    """
    check_name("group", config.name, GROUP_MAX)

    def create(target: Broker) -> Steps[None]:
        known = (yield from configs_at(routes, target)).get(config.name)
        wanted = msgspec.structs.replace(
            known or SubscriptionGroupConfig(group_name=config.name),
            retry_max_times=config.retry_max,
            retry_queue_nums=config.retry_queues,
            consume_enable=config.enabled,
            consume_broadcast_enable=config.broadcast,
            consume_message_orderly=config.orderly,
            consume_timeout_minute=config.consume_timeout_minutes,
            attributes=edits(
                config.max_messages_per_s, config.max_bytes_per_s, config.priority_factor
            ),
        )
        yield from ask(routes, target, CreateGroup(), body=wanted.to_bytes())

    yield from at_each((yield from masters(routes, cluster=cluster, broker=broker)), create)


def limit_group(
    routes: Routes,
    group: str,
    *,
    max_messages_per_s: int | None = None,
    max_bytes_per_s: int | None = None,
    priority_factor: int | None = None,
) -> Steps[dict[str, GroupConfig]]:
    """Set how many messages, or bytes of records, a group may receive in a second, on every broker
    that knows it, and how many of a hundred of its pops go by priority; what is not given stays.

    Each broker counts by itself, 0 is no limit, and only brokers of Aerobee know these limits; the
    factor is for brokers since 5.4. Returns the settings by broker. Raises: GroupNotFoundError,
    BrokerNotFoundError, BrokerError, TransportError.
    """
    attributes = edits(max_messages_per_s, max_bytes_per_s, priority_factor)
    changed: dict[str, GroupConfig] = {}

    def limit(target: Broker) -> Steps[None]:
        known = (yield from configs_at(routes, target)).get(group)
        if known is None:
            return
        wanted = msgspec.structs.replace(known, attributes=attributes)
        yield from ask(routes, target, CreateGroup(), body=wanted.to_bytes())
        now = (yield from configs_at(routes, target)).get(group, known)
        changed[target.name] = described(now)

    yield from at_each((yield from masters(routes)), limit)
    if not changed:
        raise GroupNotFoundError(f"no broker knows group {group}")
    return changed


def enable_group(
    routes: Routes, group: str, enabled: bool, *, dry_run: bool = False
) -> Steps[dict[str, bool]]:
    """Let a group consume, or have brokers refuse its pulls and pops; all else of it stays.

    Returns whether each broker that knows the group let it consume before; with `dry_run` nothing
    is changed. Members that are refused try again until they are let in: what they have already
    they consume and commit. Raises: GroupNotFoundError, BrokerNotFoundError, BrokerError,
    TransportError.
    """
    before: dict[str, bool] = {}

    def enable(target: Broker) -> Steps[None]:
        known = (yield from configs_at(routes, target)).get(group)
        if known is None:
            return
        before[target.name] = known.consume_enable
        if known.consume_enable != enabled and not dry_run:
            wanted = msgspec.structs.replace(known, consume_enable=enabled, attributes={})
            yield from ask(routes, target, CreateGroup(), body=wanted.to_bytes())

    yield from at_each((yield from masters(routes)), enable)
    if not before:
        raise GroupNotFoundError(f"no broker knows group {group}")
    return before


def delete_group(
    routes: Routes, group: str, *, offsets: bool = True, cluster: str | None = None
) -> Steps[None]:
    """Delete a group and its offsets on every master; a missing group is no error.

    Its retry and dead-letter topics stay; `delete_topic` deletes them. Raises: BrokerError,
    BrokerNotFoundError, TransportError.
    """
    check_name("group", group, GROUP_MAX)
    header = DeleteGroup(group_name=group, clean_offset=offsets, remove_offset=offsets)
    targets = yield from masters(routes, cluster=cluster)
    yield from at_each(targets, lambda target: ask(routes, target, header))


def consumer_lag(routes: Routes, group: str, topic: str | None = None) -> Steps[ConsumerLag]:
    """The lag of a group in each queue of a topic, or of all topics that it consumes.

    Raises: BrokerNotFoundError, RouteNotFoundError, BrokerError, TransportError.
    """
    targets = yield from masters(routes) if topic is None else readers_of(routes, topic)
    queues: list[QueueLag] = []
    tps = 0.0
    for target in targets:
        lags, found_tps = yield from lags_at(routes, target, group, topic)
        queues += lags
        tps += found_tps
    queues.sort(key=lambda lag: lag.queue)
    return ConsumerLag(group=group, queues=queues, consume_tps=tps)


def lags_at(
    routes: Routes, target: Broker, group: str, topic: str | None = None
) -> Steps[tuple[list[QueueLag], float]]:
    """The lag of a group at one broker, and its rate of consumed messages per second there.

    Raises: BrokerError, TransportError.
    """
    header = GetConsumeStats(consumer_group=group, topic=topic)
    answered = yield from ask(routes, target, header, within_s=SLOW_WITHIN_S)
    stats = answered.body(ConsumeStats)
    return lags_in(stats), stats.consume_tps


def lag_history(routes: Routes, group: str, topic: str | None = None) -> Steps[LagHistory]:
    """The lag of a group over the last hour in a topic, or in all topics that it consumes.

    Raises: BrokerNotFoundError, RouteNotFoundError, BrokerError, TransportError.
    """
    targets = yield from masters(routes) if topic is None else readers_of(routes, topic)
    samples, without = [], []
    for target in targets:
        header = GetConsumeStats(consumer_group=group, topic=topic, history=True)
        answered = yield from ask(routes, target, header, within_s=SLOW_WITHIN_S)
        kept = answered.body(ConsumeStats).lag_history
        if kept is None:
            without.append(target.name)
            continue
        for name, lags in sorted(kept.items()):
            own_name = plain(name, routes.config.namespace)
            samples += [
                LagSample(topic=own_name, broker=target.name, at=at, lag=lag)
                for at_ms, lag in lags
                if (at := instant(at_ms)) is not None
            ]
    return LagHistory(group=group, samples=samples, without=without)


def lags_in(stats: ConsumeStats) -> list[QueueLag]:
    """The lag of each queue in a broker's response."""
    lags = []
    for key, offsets in stats.offset_table.items():
        pulled = offsets.pull_offset
        lags.append(
            QueueLag(
                queue=from_wire(queue_of(key)),
                broker_offset=offsets.broker_offset,
                consumer_offset=offsets.consumer_offset,
                in_flight=None if pulled is None else max(0, pulled - offsets.consumer_offset),
                last_consumed_at=instant(offsets.last_timestamp),
            )
        )
    return lags


def all_consumer_lag(routes: Routes) -> Steps[list[ConsumerLag]]:
    """The lag of every group, by name, in the topics of which it has offsets.

    Brokers read the offsets of all groups for it: ask for one group where one is enough.
    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    namespace = routes.config.namespace
    queues: dict[str, list[QueueLag]] = {}
    tps: dict[str, float] = {}
    for target in (yield from masters(routes)):
        answered = yield from ask(routes, target, GetBrokerConsumeStats(), within_s=SLOW_WITHIN_S)
        listed = answered.body(ConsumeStatsList).consume_stats_list
        for group, stats in (pair for by_group in listed for pair in by_group.items()):
            if wrapped(group, namespace) == group:
                name = plain(group, namespace)
                queues.setdefault(name, []).extend(
                    lag for broker_stats in stats for lag in lags_in(broker_stats)
                )
                tps[name] = tps.get(name, 0.0) + sum(
                    broker_stats.consume_tps for broker_stats in stats
                )
    return [
        ConsumerLag(
            group=group,
            queues=sorted(lags, key=lambda lag: lag.queue),
            consume_tps=tps[group],
        )
        for group, lags in sorted(queues.items())
    ]


def consume_time_spans(routes: Routes, group: str, topic: str) -> Steps[list[ConsumeTimeSpan]]:
    """The progress of a group in each queue of a topic, as the store times of messages.

    Raises: ConfigurationError, RouteNotFoundError, BrokerError, TransportError.
    """
    check_name("group", group, GROUP_MAX)
    check_name("topic", topic, TOPIC_MAX)
    spans = []
    for target in (yield from readers_of(routes, topic)):
        header = QueryConsumeTimeSpan(topic=topic, group=group)
        answered = yield from ask(routes, target, header, within_s=SLOW_WITHIN_S)
        spans += [
            ConsumeTimeSpan(
                queue=from_wire(span.message_queue),
                first_at=instant(span.min_time_stamp),
                last_at=instant(span.max_time_stamp),
                consumed_at=instant(span.consume_time_stamp),
                # Java counts from 1970 where it finds no message.
                waiting_s=span.delay_time / 1000 if span.delay_time < span.max_time_stamp else 0.0,
            )
            for span in answered.body(ConsumeTimeSpans).consume_time_span_set
        ]
    return sorted(spans, key=lambda span: span.queue)
