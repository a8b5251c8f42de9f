"""Everything that a scrape reads of a process: its counters, and calls for what its tables hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aerobee.broker.counters.broker_stats import SERIES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.broker.counters.server_stats import AccessStats, LoopStats
    from aerobee.broker.metrics.metric import Metric
    from aerobee.broker.process.host import Build
    from aerobee.remoting.stats import RemotingStats
    from aerobee.remoting.wire.bodies.statistics import GroupRecord
    from aerobee.store.files.machine import Space
    from aerobee.store.stats import StoreStats

LAGS_MAX = SERIES_LIMIT // 5
"""Pairs of group and topic in one scrape: each has a series in five metrics."""


class ClientKind(NamedTuple):
    """Client connections as the gauges group them; `language` by name."""

    language: str
    version: int
    consumer_group: str = ""
    consume_mode: str = ""
    """push, pull or pop; empty for a producer."""


class GroupLag(NamedTuple):
    """One group in one topic, over all its queues."""

    group: str
    topic: str
    is_retry: bool
    """The messages of the topic that POP puts again, in a topic of their own."""
    behind: int = 0
    """Messages that are not consumed: those in flight and those that are ready."""
    in_flight: int = 0
    """Messages delivered, and neither committed nor acknowledged."""
    ready: int = 0
    """Messages that no consumer has received yet."""
    behind_ms: int | None = 0
    """Age of the oldest message that is not consumed; None where the disk was too slow to tell."""
    queueing_ms: int | None = 0
    """Age of the oldest message that is ready; None as above."""


class Backlog(NamedTuple):
    """The part of a scrape that is read from queues and the log."""

    lags: Sequence[GroupLag] = ()
    earliest_ms: int | None = None
    """Store time of the first message of the log; None without one, or when it cannot be read."""


class PoolFigures(Protocol):
    """The part of a processor pool that the gauges read."""

    @property
    def name(self) -> str:
        """Its name in the route table."""
        ...

    @property
    def depth(self) -> int:
        """Requests read and not yet answered, without held ones."""
        ...

    @property
    def capacity(self) -> int:
        """At most so many of them; further ones are refused."""
        ...

    @property
    def refused(self) -> int:
        """Requests refused because it was full or could not keep up."""
        ...

    @property
    def timed_out(self) -> int:
        """Requests refused because they had waited too long."""
        ...

    def head_wait_s(self, now: float) -> float:
        """How long the oldest queued request has waited; 0 without one."""
        ...


class TimerFigures(Protocol):
    """The figures of the timers. Times in ms."""

    @property
    def unread(self) -> int:
        """Messages of the wheel topic that have no slot yet."""
        ...

    @property
    def unread_ms(self) -> int:
        """The lag of reading the wheel topic."""
        ...

    @property
    def late(self) -> int:
        """Timers that are due and not delivered yet."""
        ...

    @property
    def late_ms(self) -> int:
        """The lag of the delivery."""
        ...

    @property
    def waiting(self) -> Mapping[str, int]:
        """Timers in the wheel by target topic."""
        ...

    def due_within(self) -> Iterable[tuple[int, int]]:
        """Seconds, and how many timers are due within that time."""
        ...


class SlaveFigures(Protocol):
    """How far one slave is."""

    @property
    def lag_bytes(self) -> int:
        """Bytes of the log that it has not acknowledged."""
        ...

    @property
    def lag_s(self) -> float:
        """How long ago it had everything."""
        ...

    @property
    def in_sync(self) -> bool:
        """Whether it follows, and is not too far behind."""
        ...


class ReplicationFigures(Protocol):
    """The figures of the replication, of a master and of a slave."""

    def slave_figures(self) -> Mapping[str, SlaveFigures]:
        """The slaves by their addresses."""
        ...

    def slave_state(self) -> str:
        """How this slave stands to its master; empty of a master."""
        ...

    def group_record(self) -> GroupRecord | None:
        """The group's record, as far as a member knows it; None of any other broker."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSources:
    """The sources of a scrape in each process that serves, a broker or a name server alone."""

    metrics: Sequence[Metric[Any]]
    """The metrics to be read, in the order of the exposition."""
    cluster: str
    node_id: str
    """Its `brokerName`, which in a name server is the host name where it is not set."""
    node_type: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """The operator's own labels, on every series."""
    short_names: bool = False
    """Whether metrics are served under their names in RocketMQ 5.1.0 to 5.1.3 too."""
    build: Build
    began_ms: int
    """When the process began, by the wall clock."""
    remoting: RemotingStats
    loop: LoopStats
    access: AccessStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources(ServerSources):
    """Everything a scrape reads: counters as they are, tables behind calls that answer at once."""

    node_type: str = "broker"
    broker: BrokerStats
    store: StoreStats
    pools: Sequence[PoolFigures]
    is_system_topic: Callable[[str], bool]
    producers: Callable[[], Iterable[tuple[ClientKind, int]]]
    """How many of a kind: a connection counts once per group, as RocketMQ counts them."""
    consumers: Callable[[], Iterable[tuple[ClientKind, int]]]
    """How many of a kind; a kind comes once per group."""
    topic_number: Callable[[], int]
    consumer_group_number: Callable[[], int]
    broker_permission: Callable[[], int]
    flush_behind_bytes: Callable[[], int]
    dispatch_behind_bytes: Callable[[], int]
    half_messages: Callable[[], Iterable[tuple[str, int]]]
    """Topic and number of its open halves."""
    timers: TimerFigures | None = None
    """None without the wheel."""
    slaves: Callable[[], Mapping[str, SlaveFigures]]
    """The slaves by their addresses."""
    slave_state: Callable[[], str]
    """How this slave stands to its master; empty of a master."""
    group_record: Callable[[], GroupRecord | None]
    """The group's record, as far as a member knows it; None of any other broker."""
    read_backlog: Callable[[], Awaitable[Backlog]]
    """The reading takes a while, and others run meanwhile."""
    backlog: Backlog = field(default_factory=Backlog)
    """The result of `read_backlog` for this scrape."""
    now: Callable[[], float]
    """Monotonic seconds, as the pools read them."""
    now_ms: Callable[[], int]
    """The wall clock."""
    limits: Iterable[tuple[str, float, float]]
    """Key of a setting that limits clients, what is used of it, and the limit."""
    space: Callable[[], Space]
    """Of the file system that the store lies on."""
    refuses_puts: Callable[[], bool]
    """Whether the store takes no messages now."""
