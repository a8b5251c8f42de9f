"""The tables of one broker about its topics, groups and clients, in few requests.

Four requests list topics, groups, the lag of all groups, and producers. The members of a group and
the bounds of a topic take a request each: one look asks some of these, and goes on where the look
before it has ended, so that it costs a broker of any size the same.

Source: admin §4.1, §4.2 (TopicConfig, SubscriptionGroupConfig, ConsumeStatsList).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.client.steps.admin.brokers import Broker, ask
from aerobee.client.steps.admin.clients import consumers_at
from aerobee.client.steps.admin.group_look import bounds_at
from aerobee.client.steps.admin.groups import SLOW_WITHIN_S, configs_at, lags_in
from aerobee.errors import BrokerError, PermissionDeniedError, UnsupportedRequestError
from aerobee.remoting.wire.bodies.client import ProducerTableInfo
from aerobee.remoting.wire.bodies.queue import ConsumeStatsList
from aerobee.remoting.wire.bodies.statistics import ConsumeTimeSpans
from aerobee.remoting.wire.bodies.topic import TopicConfigSerializeWrapper
from aerobee.remoting.wire.headers.admin import (
    GetAllProducerInfo,
    GetBrokerConsumeStats,
    QueryConsumeTimeSpan,
)
from aerobee.remoting.wire.headers.topic import GetAllTopicConfig
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.admin import QueueLag
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.bodies.client import ProducerInfo
    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
    from aerobee.remoting.wire.bodies.statistics import ConsumerConnection
    from aerobee.remoting.wire.bodies.topic import TopicConfig

ASKED_MAX: Final = 256
"""Requests about single topics and groups in one look."""
WAITS_MAX: Final = 32
"""Groups in one look, those furthest behind, of which it is asked how long their messages wait."""


class Progress(NamedTuple):
    """The messages that a group has not consumed at a broker, and how fast it consumes there."""

    lag: int
    in_flight: int
    retries: int
    """Of the lag: messages that wait to be tried again."""
    per_s: float | None
    """None: what the broker says is no number."""
    topics: frozenset[str]
    behind: frozenset[str]
    """The topics of which it has not consumed all."""


class Extent(NamedTuple):
    """The messages of a topic at a broker: how many are kept, and how many there ever were."""

    messages: int
    stored: int
    last_ms: int
    at_ms: int
    per_s: float | None
    """New messages since the extent before; None: there is none before."""


@dataclass(slots=True, kw_only=True)
class BrokerTables:
    """The tables that a broker has told. A table that was not asked for yet has no entry."""

    target: Broker
    topics: Mapping[str, TopicConfig]
    groups: Mapping[str, SubscriptionGroupConfig]
    progress: Mapping[str, Progress] | None = None
    """None: it does not tell the lag of all groups."""
    producers: Mapping[str, list[ProducerInfo]] | None = None
    """None: it does not list them."""
    members: dict[str, ConsumerConnection | None] = field(default_factory=dict)
    extents: dict[str, Extent] = field(default_factory=dict)
    waits_s: dict[str, float] = field(default_factory=dict)
    """How long the oldest message waits for a group, of groups that are behind."""
    turn: int = 0
    """Where the next look goes on among topics and groups."""


def look_at_tables(
    routes: Routes, target: Broker, before: BrokerTables | None, now_ms: int
) -> Steps[BrokerTables]:
    """Ask a broker, at `now_ms`. `before`: its tables of the last look, of which the rest is kept.

    Raises: BrokerError, TransportError.
    """
    answered = yield from ask(routes, target, GetAllTopicConfig(), within_s=SLOW_WITHIN_S)
    tables = BrokerTables(
        target=target,
        topics=answered.body(TopicConfigSerializeWrapper).topic_config_table,
        groups=(yield from configs_at(routes, target)),
        progress=(yield from progress_of_all(routes, target)),
        producers=(yield from producers_at(routes, target)),
    )
    if before is not None:
        keep(before, tables)
    yield from ask_in_turn(routes, tables, now_ms)
    yield from ask_waits(routes, tables)
    return tables


def keep(before: BrokerTables, tables: BrokerTables) -> None:
    """Take over what was asked before of topics and groups that are still there."""
    kept = {name: members for name, members in before.members.items() if name in tables.groups}
    tables.members.update(kept)
    extents = {name: extent for name, extent in before.extents.items() if name in tables.topics}
    tables.extents.update(extents)
    tables.turn = before.turn


def progress_of_all(routes: Routes, target: Broker) -> Steps[dict[str, Progress] | None]:
    """The lag of all groups; None: the broker has too many queues to tell, or cannot.

    Raises: PermissionDeniedError, TransportError.
    """
    try:
        header = GetBrokerConsumeStats()
        answered = yield from ask(routes, target, header, within_s=SLOW_WITHIN_S)
    except PermissionDeniedError:
        raise
    except BrokerError:
        return None
    return {
        group: progress_in(
            [lag for topic in stats for lag in lags_in(topic)],
            sum(topic.consume_tps for topic in stats),
        )
        for by_group in answered.body(ConsumeStatsList).consume_stats_list
        for group, stats in by_group.items()
    }


def progress_in(queues: list[QueueLag], per_s: float) -> Progress:
    """The progress in all queues of a group."""
    lags = [(lag.queue.topic, max(0, lag.broker_offset - lag.consumer_offset)) for lag in queues]
    return Progress(
        lag=sum(lag for _, lag in lags),
        in_flight=sum(lag.in_flight or 0 for lag in queues),
        retries=sum(lag for topic, lag in lags if topic.startswith(RETRY_PREFIX)),
        per_s=per_s if math.isfinite(per_s) else None,
        topics=frozenset(topic for topic, _ in lags),
        behind=frozenset(topic for topic, lag in lags if lag),
    )


def producers_at(routes: Routes, target: Broker) -> Steps[dict[str, list[ProducerInfo]] | None]:
    """The producers of every group; None: the broker does not list them. Raises: BrokerError."""
    try:
        answered = yield from ask(routes, target, GetAllProducerInfo())
    except UnsupportedRequestError:
        return None
    return answered.body(ProducerTableInfo).data


def ask_in_turn(routes: Routes, tables: BrokerTables, now_ms: int) -> Steps[None]:
    """Ask about the next groups and topics. Of one that the broker does not tell of, since it is
    gone meanwhile or not for this account, nothing is known. Raises: TransportError.
    """
    groups, topics = sorted(tables.groups), sorted(tables.topics)
    names = [*((name, True) for name in groups), *((name, False) for name in topics)]
    if not names:
        return
    first = tables.turn % len(names)
    names_now = [*names[first:], *names[:first]][:ASKED_MAX]
    for name, is_group in names_now:
        answers: dict[str, Any] = tables.members if is_group else tables.extents
        try:
            if is_group:
                answers[name] = yield from consumers_at(routes, tables.target, name)
            else:
                answers[name] = yield from extent_of(routes, tables, name, now_ms)
        except BrokerError:
            answers.pop(name, None)
    tables.turn = (first + len(names_now)) % len(names)


def extent_of(routes: Routes, tables: BrokerTables, topic: str, now_ms: int) -> Steps[Extent]:
    """How many messages a topic has. Raises: BrokerError, TransportError."""
    bounds = yield from bounds_at(routes, tables.target, topic)
    stored = sum(queue.end for queue in bounds)
    last = [queue.last_stored_at.timestamp() for queue in bounds if queue.last_stored_at]
    before, per_s = tables.extents.get(topic), None
    if before is not None and now_ms > before.at_ms:
        per_s = max(0, stored - before.stored) / (now_ms - before.at_ms) * 1000
    return Extent(
        messages=stored - sum(queue.first for queue in bounds),
        stored=stored,
        last_ms=round(max(last, default=0) * 1000),
        at_ms=now_ms,
        per_s=per_s,
    )


def ask_waits(routes: Routes, tables: BrokerTables) -> Steps[None]:
    """Ask how long messages wait for the groups furthest behind. Raises: TransportError."""
    progress = tables.progress or {}
    behind = [name for name in progress if progress[name].lag]
    behind.sort(key=lambda name: -progress[name].lag)
    pairs = chain.from_iterable(
        ((name, topic) for topic in sorted(progress[name].behind)) for name in behind[:WAITS_MAX]
    )
    for name, topic in list(pairs)[:ASKED_MAX]:
        header = QueryConsumeTimeSpan(topic=topic, group=name)
        try:
            answered = yield from ask(routes, tables.target, header)
        except BrokerError:
            continue
        spans = answered.body(ConsumeTimeSpans).consume_time_span_set
        # Java counts from 1970 where it finds no message.
        waits = [span.delay_time for span in spans if 0 <= span.delay_time < span.max_time_stamp]
        if waits:
            tables.waits_s[name] = max(tables.waits_s.get(name, 0.0), max(waits) / 1000)
