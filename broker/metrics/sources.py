"""The sources of a scrape: the parts of the running broker, behind plain calls.

In: the parts. Out: `Sources`; nothing is kept here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aerobee.broker.config.settings.metrics import labels_of
from aerobee.broker.counters.broker_stats import KnownNames
from aerobee.broker.delay.schedule import GROUP as DELAYING_GROUP
from aerobee.broker.metrics.figures import Backlog, ClientKind, Sources
from aerobee.broker.metrics.metric_table import METRICS
from aerobee.broker.process.host import build
from aerobee.remoting.wire.codes import LANGUAGE_CODES, LanguageCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from aerobee.broker.consumers.clients import Client, ClientTable
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.figures import SlaveFigures, TimerFigures
    from aerobee.broker.metrics.lag import LagReader
    from aerobee.broker.metrics.limits import LimitUses
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.remoting.wire.bodies.statistics import GroupRecord

CONSUME_MODES: Final = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


OTHER: Final = "other"
"""The consume mode of a type that is none of these: a heartbeat may name any."""


def make_sources(
    core: Core,
    *,
    topics: TopicTable,
    consumers: ConsumerTables,
    lags: LagReader,
    transactions: Transactions,
    timers: TimerFigures | None,
    slaves: Callable[[], Mapping[str, SlaveFigures]],
    slave_state: Callable[[], str],
    group_record: Callable[[], GroupRecord | None],
    limits: LimitUses,
) -> Sources:
    """The sources of the metrics."""
    broker, store, disk = core.config.broker, core.store, core.disk
    metrics = core.config.metrics
    reactor = core.rounds.reactor
    return Sources(
        metrics=METRICS,
        cluster=broker.broker_cluster_name,
        node_id=broker.broker_name,
        labels=labels_of(metrics.metrics_label),
        short_names=metrics.metrics_legacy_names,
        build=build(),
        began_ms=core.began_ms,
        loop=core.stats.loop,
        access=core.stats.access,
        broker=core.stats,
        store=store.stats,
        remoting=reactor.stats,
        pools=list(reactor.pools.values()),
        is_system_topic=topics.is_system,
        producers=lambda: producer_kinds(consumers.clients),
        consumers=lambda: consumer_kinds(consumers.clients),
        topic_number=lambda: len(topics.configs),
        consumer_group_number=lambda: len(consumers.groups.configs),
        broker_permission=lambda: broker.broker_permission,
        flush_behind_bytes=lambda: store.flush_behind_bytes,
        dispatch_behind_bytes=lambda: store.dispatch_behind_bytes,
        half_messages=lambda: transactions.open.items(),
        timers=timers,
        slaves=slaves,
        slave_state=slave_state,
        group_record=group_record,
        read_backlog=backlog_reader(core, lags),
        now=core.clock.monotonic,
        now_ms=core.clock.now_ms,
        limits=limits,
        space=lambda: disk.free_space(store.root),
        refuses_puts=lambda: bool(store.flags.fault),
    )


def known_names(topics: TopicTable, consumers: ConsumerTables) -> KnownNames:
    """The names that series may have: those of the tables."""
    groups, offsets = consumers.groups.configs, consumers.offsets
    return KnownNames(
        topics.is_known,
        lambda group: group in groups or group == DELAYING_GROUP,
        lambda group, topic: bool(offsets.queues(group, topic)),
        topics.is_system,
    )


def backlog_reader(core: Core, lags: LagReader) -> Callable[[], Awaitable[Backlog]]:
    """The reader of the values that a scrape takes from queues and the log."""

    async def read() -> Backlog:
        store = core.store
        first, earliest_ms = store.commit_log.min_offset, -1
        if first < store.commit_log.max_offset:
            with suppress(OSError):
                earliest_ms = await store.complete(lambda: store.reader.log_time(first))
        return Backlog(await lags.read(), earliest_ms if earliest_ms >= 0 else None)

    return read


def kind_of(client: Client) -> tuple[str, int]:
    """Language and version of a client; a language that RocketMQ does not know counts as other."""
    language = client.language if client.language in LANGUAGE_CODES else LanguageCode.OTHER.name
    return language, max(client.version, 0)


def producer_kinds(clients: ClientTable) -> Iterator[tuple[ClientKind, int]]:
    """How many connections of producer groups there are of each kind."""
    counts: Counter[tuple[str, int]] = Counter()
    for members in clients.producers.values():
        counts.update(map(kind_of, members.values()))
    for (language, version), count in counts.items():
        yield ClientKind(language, version), count


def consumer_kinds(clients: ClientTable) -> Iterator[tuple[ClientKind, int]]:
    """How many connections each consumer group has of each kind; others may run in between."""
    for group in list(clients.consumers.values()):
        mode = CONSUME_MODES.get(group.consume_type, OTHER)
        counts = Counter(map(kind_of, group.clients.values()))
        for (language, version), count in counts.items():
            yield ClientKind(language, version, group.name, mode), count
