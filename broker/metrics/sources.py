"""The sources of scrapes and probes: the parts of the running broker, behind plain calls.

In: the parts. Out: `Sources` for the metrics and `Health` for the probes; nothing is kept here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from aerobee.broker.config.services import labels_of
from aerobee.broker.delay.schedule import GROUP as DELAYING_GROUP
from aerobee.broker.metrics.http import Health, loop_turns
from aerobee.broker.metrics.lag import LagReader
from aerobee.broker.metrics.stats import Backlog, ClientKind, KnownNames, Sources
from aerobee.broker.process.host import build
from aerobee.remoting.wire.codes import LANGUAGE_CODES, LanguageCode
from aerobee.store.space.retention import Level
from aerobee.store.space.watermark import usage_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from aerobee.broker.consumers.clients import Client, ClientTable
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.core.limits import LimitUses
    from aerobee.broker.metrics.http import Check
    from aerobee.broker.metrics.stats import BrokerStats, TimerFigures
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.machine import Space
    from aerobee.store.flags import RunningFlags

MUST_EXIST: Final = 2
"""The log's directory and the root."""
CONSUME_MODES: Final = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


OTHER: Final = "other"
"""The consume mode of a type that is none of these: a heartbeat may name any."""


class StoreDoor(Protocol):
    """The part of the message store that probes read."""

    @property
    def flags(self) -> RunningFlags: ...
    @property
    def config(self) -> StoreConfig: ...


def make_sources(
    core: Core,
    *,
    topics: TopicTable,
    consumers: ConsumerTables,
    transactions: Transactions,
    timers: TimerFigures | None,
    limits: LimitUses,
) -> Sources:
    """The sources of the metrics."""
    broker, store, disk = core.config.broker, core.store, core.disk
    metrics = core.config.metrics
    reactor = core.rounds.reactor
    return Sources(
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
        read_backlog=backlog_reader(core, LagReader(core, topics, consumers)),
        now=core.clock.monotonic,
        now_ms=core.clock.now_ms,
        limits=limits,
        space=lambda: disk.free_space(store.root),
        refuses_puts=lambda: bool(store.flags.cause),
    )


def known_names(topics: TopicTable, consumers: ConsumerTables) -> KnownNames:
    """The names that series may have: those of the tables."""
    groups, offsets = consumers.groups.configs, consumers.offsets
    return KnownNames(
        topics.is_known,
        lambda group: group in groups or group == DELAYING_GROUP,
        lambda group, topic: bool(offsets.queues(group, topic)),
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


def make_health(
    *,
    serving: Callable[[], bool],
    stopping: Check,
    stats: BrokerStats,
    store: StoreDoor,
    disk: Disk,
    places: Sequence[Path],
    clock: Clock,
) -> Health:
    """The checks of the three probes.

    `serving`: recovered, and accepting connections. `stopping`: the reason, once it is to stop.
    """

    def started() -> str | None:
        return None if serving() else "recovery is not finished"

    def writable() -> str | None:
        return store.flags.cause or None

    return Health(
        startup={"recovered": started},
        live={"loop": loop_turns(stats.loop, clock)},
        ready={
            "recovered": started,
            "running": stopping,
            "store_writable": writable,
            "disk": disk_has_room(disk, places, lambda: store.config),
        },
    )


def disk_has_room(disk: Disk, places: Sequence[Path], config: Callable[[], StoreConfig]) -> Check:
    """The check that the disks are below the limit at which the store refuses sends.

    That is diskSpaceWarningLevelRatio, or the space to keep free in its place. The first two places
    must exist, log and root; the others may be on disks of their own.
    """

    def check() -> str | None:
        settings = config()
        for number, place in enumerate(places):
            try:
                space = disk.free_space(place)
            except FileNotFoundError:
                if number < MUST_EXIST:
                    return f"{place} is not there"
                continue
            reason = _no_room(space, settings)
            if reason is not None:
                return reason
        return None

    return check


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


def _no_room(space: Space, settings: StoreConfig) -> str | None:
    usage = usage_of(space, settings)
    if usage.level < Level.FULL:
        return None
    keep_bytes = settings.disk_space_warning_level_free_bytes
    if keep_bytes:
        return f"{space.available_bytes} bytes free, {keep_bytes} are to stay free"
    limit = settings.disk_space_warning_level_ratio_percent
    return f"{usage.used_percent} % used, the limit is {limit} %"
