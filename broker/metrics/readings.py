"""How each metric is read: from plain counters and calls to label values and numbers.

Every function here returns, or returns a function for, the readings of one metric; the last ones
make whole lines of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.core.names import is_system_group
from aerobee.broker.metrics.metric import Metric
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.version import describe
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aerobee.broker.metrics.figures import PoolFigures, SlaveFigures, Sources, TimerFigures
    from aerobee.broker.metrics.metric import Reading
    from aerobee.remoting.wire.bodies.statistics import GroupRecord

REQUEST_CODES: Final = {int(code): code.name.lower() for code in RequestCode}
RESPONSE_CODES: Final = {int(code): code.name.lower() for code in ResponseCode}
STORAGE: Final = ("local", "disk")
"""The first label values of metrics of the store."""
UNCOUNTED: Final = (RETRY_PREFIX, DLQ_PREFIX)
"""Topics that the in and out counters leave out."""
POOL_LABELS: Final = {"query": "query_message"}
"""Pools whose label differs from their name in the route table."""


def is_system(sources: Sources, topic: str, group: str = "") -> str:
    """Whether topic or group belongs to the broker itself, as a label value."""
    system = sources.is_system_topic(topic) or is_system_group(group)
    return boolean(system)


def boolean(value: bool) -> str:
    """A label value, as OpenTelemetry writes it."""
    return "true" if value else "false"


def per_topic(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A counter of messages that clients put, by topic."""

    def read(sources: Sources) -> Iterator[Reading]:
        # A copy, because others run between two pages.
        for (topic, message_type), stats in list(sources.broker.topics_in.items()):
            if not topic.startswith(UNCOUNTED):
                labels = (topic, message_type, is_system(sources, topic))
                yield labels, getattr(stats, field)
        yield from overflow(getattr(sources.broker.overflow_in, field))

    return read


def per_group(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A counter of messages delivered to groups."""

    def read(sources: Sources) -> Iterator[Reading]:
        for (group, topic), stats in list(sources.broker.groups_out.items()):
            if not topic.startswith(UNCOUNTED):
                labels = (topic, group, is_system(sources, topic, group))
                yield labels, getattr(stats, field)
        yield from overflow(getattr(sources.broker.overflow_out, field))

    return read


def per_transaction(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A figure of ended transactions, for each topic that has some."""

    def read(sources: Sources) -> Iterator[Reading]:
        broker = sources.broker
        # A copy, because others run between two pages.
        for topic, stats in [*broker.transactions.items(), (None, broker.overflow_transactions)]:
            reading = getattr(stats, field)
            if reading.count if isinstance(reading, Durations) else reading:
                yield None if topic is None else (topic,), reading

    return read


def half_messages(sources: Sources) -> Iterator[Reading]:
    """Open halves by their target topic."""
    yield from of_known_topics(sources, list(sources.half_messages()))


def of_known_topics(
    sources: Sources, counts: Iterable[tuple[str, int]], *labels: str
) -> Iterator[Reading]:
    """Counts by the topic that a message names; of topics that are not here, counted together."""
    others = 0
    for topic, count in counts:
        if sources.broker.known.topic(topic):
            yield (*labels, topic), count
        else:
            others += count
    yield from overflow(others)


def per_timer(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A figure of the timers, for each topic that has some."""

    def read(sources: Sources) -> Iterator[Reading]:
        broker = sources.broker
        for topic, stats in [*broker.timers.items(), (None, broker.overflow_timers)]:
            reading = getattr(stats, field)
            if reading.count if isinstance(reading, Durations) else reading:
                yield None if topic is None else (*STORAGE, topic), reading

    return read


def of_timers(read: Callable[[TimerFigures], float]) -> Callable[[Sources], Iterator[Reading]]:
    """One gauge of the timers; nothing without the wheel."""

    def read_one(sources: Sources) -> Iterator[Reading]:
        if sources.timers is not None:
            yield STORAGE, read(sources.timers)

    return read_one


def timing(sources: Sources) -> Iterator[Reading]:
    """Waiting timers, by topic."""
    if sources.timers is not None:
        yield from of_known_topics(sources, list(sources.timers.waiting.items()), *STORAGE)


def timers_due(sources: Sources) -> Iterator[Reading]:
    """Waiting timers, by due time."""
    if sources.timers is not None:
        for bound_s, count in sources.timers.due_within():
            yield (*STORAGE, str(bound_s)), count


def popped(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A counter of POP, whose keys are its labels."""

    def read(sources: Sources) -> Iterator[Reading]:
        counts = getattr(sources.broker.pop, field)
        yield from list(counts.items())
        yield from overflow(counts.overflow)

    return read


def per_revive_queue(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """A gauge of POP by revive queue."""

    def read(sources: Sources) -> Iterator[Reading]:
        for queue_id, value in getattr(sources.broker.pop, field).items():
            yield (queue_id,), value

    return read


def repeated(sources: Sources) -> Iterator[Reading]:
    """Messages that dedupe did not store again."""
    for topic, count in list(sources.broker.repeated.items()):
        yield (topic,), count


def too_fast(sources: Sources) -> Iterator[Reading]:
    """Sends beyond the rates of their topics."""
    for topic, count in list(sources.broker.topics_too_fast.items()):
        yield (topic,), count


def received_too_fast(sources: Sources) -> Iterator[Reading]:
    """Pulls and pops beyond the rates of their groups."""
    for group, count in list(sources.broker.groups_too_fast.items()):
        yield (group,), count


def set_aside(sources: Sources) -> Iterator[Reading]:
    """Messages set aside by each service."""
    for service, count in list(sources.store.set_aside.items()):
        yield (service,), count


def unreadable(sources: Sources) -> Iterator[Reading]:
    """Messages that the disk could not read for each service."""
    for service, count in list(sources.store.unreadable.items()):
        yield (service,), count


def dead_letters(sources: Sources) -> Iterator[Reading]:
    """Dead letters of each group, by original topic."""
    for (group, topic), stats in list(sources.broker.groups_out.items()):
        if stats.dead_letters:
            yield (group, topic, is_system(sources, topic, group)), stats.dead_letters
    yield from overflow(sources.broker.overflow_out.dead_letters)


def unread_deleted(sources: Sources) -> Iterator[Reading]:
    """Messages deleted before a group had read them."""
    for (group, topic), stats in list(sources.broker.groups_out.items()):
        if stats.unread_deleted:
            yield (topic, group, is_system(sources, topic, group)), stats.unread_deleted
    yield from overflow(sources.broker.overflow_out.unread_deleted)


def segments_deleted(sources: Sources) -> Iterator[Reading]:
    """Deleted log segments by reason."""
    forced = sources.store.segments_forced
    yield ("expired",), sources.store.segments_deleted - forced
    yield ("disk_full",), forced


def lag(field: str) -> Callable[[Sources], Iterator[Reading]]:
    """How far each group is behind in each topic, as this scrape has found it."""

    def read(sources: Sources) -> Iterator[Reading]:
        for lag in sources.backlog.lags:
            value = getattr(lag, field)
            if value is not None:
                system = is_system(sources, lag.topic, lag.group)
                yield (lag.topic, lag.group, boolean(lag.is_retry), system), value

    return read


def sizes(sources: Sources) -> Iterator[Reading]:
    """How large the messages were that clients put."""
    for (topic, message_type), stats in list(sources.broker.topics_in.items()):
        if not topic.startswith(UNCOUNTED):
            yield (topic, message_type, is_system(sources, topic)), stats.sizes
    if sources.broker.overflow_in.messages_in:
        yield None, sources.broker.overflow_in.sizes


def reserve_time(sources: Sources) -> Iterator[Reading]:
    """The age of the log; nothing while it is empty."""
    if sources.backlog.earliest_ms is not None:
        yield STORAGE, max(0, sources.now_ms() - sources.backlog.earliest_ms)


def overflow(value: int) -> Iterator[Reading]:
    """The overflow of series, counted together."""
    if value:
        yield None, value


def producers(sources: Sources) -> Iterator[Reading]:
    """Connections of producers by client kind."""
    for kind, count in sources.producers():
        yield (kind.language.lower(), describe(kind.version).lower(), "remoting"), count


def limits(sources: Sources) -> Iterator[Reading]:
    """The limits on clients, by setting."""
    for key, _, limit in sources.limits:
        yield (key,), limit


def limits_used(sources: Sources) -> Iterator[Reading]:
    """The use of each limit."""
    for key, used, _ in sources.limits:
        yield (key,), used


def consumers(sources: Sources) -> Iterator[Reading]:
    """Connections of consumers by group and client kind."""
    for client, count in sources.consumers():
        group = client.consumer_group
        yield (
            (
                group,
                client.language.lower(),
                describe(client.version).lower(),
                client.consume_mode,
                "remoting",
                boolean(is_system_group(group)),
            ),
            count,
        )


def per_pool(
    read: Callable[[Sources, PoolFigures], float],
) -> Callable[[Sources], Iterator[Reading]]:
    """A figure of each processor pool."""

    def read_all(sources: Sources) -> Iterator[Reading]:
        for pool in sources.pools:
            yield (POOL_LABELS.get(pool.name, pool.name),), read(sources, pool)

    return read_all


def send_stages(sources: Sources) -> Iterator[Reading]:
    """How long the stages of sends take."""
    for stage, durations in sources.broker.send_stages.items():
        yield (stage,), durations


def topic_creations(sources: Sources) -> Iterator[Reading]:
    """How long the creation of topics takes."""
    for (status, system), durations in list(sources.broker.topic_creations.durations.items()):
        yield (status, boolean(system)), durations


def group_creations(sources: Sources) -> Iterator[Reading]:
    """How long the creation of consumer groups takes; RocketMQ does not say of which kind."""
    for (status, _), durations in list(sources.broker.group_creations.durations.items()):
        yield (status,), durations


def used_bytes(sources: Sources) -> int:
    """The used space of the file system that the store lies on."""
    space = sources.space()
    return space.total_bytes - space.free_bytes


STORAGE_LABELS: Final = ("storage_type", "storage_medium")


def of_store(name: str, text: str, read: Callable[[Sources], Iterable[Reading]]) -> Metric[Sources]:
    """A gauge of the store's medium."""
    return Metric(name, "gauge", STORAGE_LABELS, text, read)


def per_slave(read: Callable[[SlaveFigures], float]) -> Callable[[Sources], Iterator[Reading]]:
    """A figure of each slave that is connected, by its address."""

    def read_each(sources: Sources) -> Iterator[Reading]:
        for host, slave in sources.slaves().items():
            yield (host,), read(slave)

    return read_each


def of_group(read: Callable[[GroupRecord], float]) -> Callable[[Sources], Iterator[Reading]]:
    """A figure of a member's group; nothing of any other broker."""

    def read_it(sources: Sources) -> Iterator[Reading]:
        record = sources.group_record()
        if record is not None:
            yield (), float(read(record))

    return read_it


SLAVE_STATES: Final = ("searching", "unreachable", "following", "stuck", "diverged")


def slave_states(sources: Sources) -> Iterator[Reading]:
    """1 for the state of this slave and 0 for the others; a master has none."""
    if now := sources.slave_state():
        for state in SLAVE_STATES:
            yield (state,), float(state == now)
