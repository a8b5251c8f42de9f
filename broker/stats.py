"""Plain counters of the broker: processors add, a scrape reads, nothing here knows Prometheus.

    stats.topic_in("orders").messages_in += 1
    stats.group_out("billing", "orders").messages_out += 32

Law: a counter never goes back while its topic exists; `forget_topic` and `forget_group` take its
series away with it. The number of series is bounded: past `series_limit` whatever is new is counted
together, so a flood of names costs no memory and the sums stay right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remoting.stats import RemotingStats
    from store.stats import StoreStats

__all__ = [
    "LOOP_LAG_BOUNDS_S",
    "NORMAL",
    "SERIES_LIMIT",
    "BrokerStats",
    "ClientKind",
    "GroupTopicStats",
    "LoopStats",
    "PoolDepth",
    "Sources",
    "TopicStats",
]

NORMAL = "normal"
"""The message type of what is neither ordered by a sharding key, delayed nor transactional."""

SERIES_LIMIT = 50_000
"""As many series as RocketMQ's exporter keeps for a metric."""

LOOP_LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class TopicStats:
    """What clients put into one topic under one message type: acknowledged puts only."""

    __slots__ = ("bytes_in", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0


class GroupTopicStats:
    """What one consumer group was given from one topic, and what it can no longer be given."""

    __slots__ = ("bytes_out", "messages_out", "unread_deleted")

    def __init__(self) -> None:
        self.messages_out = 0
        self.bytes_out = 0
        self.unread_deleted = 0
        """Messages that were deleted before the group had consumed them."""


class LoopStats:
    """How long the loop stood still, as its ticker saw it."""

    __slots__ = ("lag", "last_turn")

    def __init__(self) -> None:
        self.lag = Durations(LOOP_LAG_BOUNDS_S)
        self.last_turn = float("-inf")
        """Monotonic seconds of the ticker's last turn; minus infinity before the first."""


class BrokerStats:
    """All of them. `series_limit` bounds topics and pairs of group and topic, each by itself."""

    __slots__ = ("_limit", "groups_out", "loop", "overflow_in", "overflow_out", "topics_in")

    def __init__(self, series_limit: int = SERIES_LIMIT) -> None:
        assert series_limit > 0, "a limit of zero would count nothing by name"
        self._limit = series_limit
        self.topics_in: dict[tuple[str, str], TopicStats] = {}
        """By (topic, message type)."""
        self.groups_out: dict[tuple[str, str], GroupTopicStats] = {}
        """By (group, topic)."""
        self.overflow_in = TopicStats()
        self.overflow_out = GroupTopicStats()
        self.loop = LoopStats()

    def topic_in(self, topic: str, message_type: str = NORMAL) -> TopicStats:
        """The counters to add a stored message to; one dict look-up for a known topic."""
        key = (topic, message_type)
        return self.topics_in.get(key) or self._new_topic(key)

    def group_out(self, group: str, topic: str) -> GroupTopicStats:
        """The counters to add a delivered batch to; one dict look-up for a known pair."""
        key = (group, topic)
        return self.groups_out.get(key) or self._new_group(key)

    def forget_topic(self, topic: str) -> None:
        """Drop every series of a deleted topic."""
        for key in [key for key in self.topics_in if key[0] == topic]:
            del self.topics_in[key]
        for pair in [pair for pair in self.groups_out if pair[1] == topic]:
            del self.groups_out[pair]

    def forget_group(self, group: str) -> None:
        """Drop every series of a deleted consumer group."""
        for pair in [pair for pair in self.groups_out if pair[0] == group]:
            del self.groups_out[pair]

    def _new_topic(self, key: tuple[str, str]) -> TopicStats:
        if len(self.topics_in) >= self._limit:
            return self.overflow_in
        return self.topics_in.setdefault(key, TopicStats())

    def _new_group(self, key: tuple[str, str]) -> GroupTopicStats:
        if len(self.groups_out) >= self._limit:
            return self.overflow_out
        return self.groups_out.setdefault(key, GroupTopicStats())


class ClientKind(NamedTuple):
    """One client connection as the gauges group them; `language` as its code is named."""

    language: str
    version: int
    consumer_group: str = ""
    consume_mode: str = ""
    """push, pull or pop; empty for a producer."""


class PoolDepth(Protocol):
    """What the gauges read of a processor pool."""

    @property
    def name(self) -> str:
        """Its name in the route table."""
        ...

    @property
    def depth(self) -> int:
        """Requests read and not yet answered, those held on purpose left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything a scrape reads: counters as they are, tables behind calls that answer at once."""

    cluster: str
    node_id: str
    """The broker name."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The operator's own labels, on every series of ours."""
    broker: BrokerStats
    store: StoreStats
    remoting: RemotingStats
    pools: Sequence[PoolDepth]
    is_system_topic: Callable[[str], bool]
    producers: Callable[[], Iterable[ClientKind]]
    """One entry per producer connection and group, as RocketMQ counts them."""
    consumers: Callable[[], Iterable[ClientKind]]
    """One entry per consumer connection and group."""
    topic_number: Callable[[], int]
    consumer_group_number: Callable[[], int]
    broker_permission: Callable[[], int]
    flush_behind_bytes: Callable[[], int]
    dispatch_behind_bytes: Callable[[], int]
    storage_size_bytes: Callable[[], int]
    """Used space of the file system that the store lies on."""
