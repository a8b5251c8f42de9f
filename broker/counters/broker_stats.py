"""Plain counters of a broker: processors add, a scrape reads, nothing here knows Prometheus.

    stats.topic_in("orders").messages_in += 1
    stats.group_out("billing", "orders").messages_out += 32

Invariant: a counter never goes back while its topic exists; `forget_topic` and `forget_group`
remove its series. A series has the name of a topic or group of this broker's tables: whatever else
a message or a client names is counted together, as is what comes past `series_limit`. So names cost
no memory, and the sums stay right.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.counters.creation_times import CreationTimes
from aerobee.broker.counters.pop_stats import PopStats
from aerobee.broker.counters.server_stats import AccessStats, LoopStats
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NORMAL = "normal"
"""The message type of messages without sharding key, delay or transaction."""

TRANSACTION = "transaction"
"""The message type of halves."""
DELAY = "delay"
"""The message type of messages with a delay level, waiting and delivered."""
MESSAGE_TYPES = (NORMAL, TRANSACTION, DELAY)
"""All of them."""

SMALL_BYTES = 1_024
SIZE_BOUNDS_BYTES = (SMALL_BYTES, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""Buckets for the sizes of messages, as RocketMQ has them."""

SERIES_LIMIT = 50_000
"""As many series as RocketMQ's exporter keeps for a metric."""

PUT_BOUNDS_S = (0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10)
"""RocketMQ's buckets for put times; those below the first are not counted."""

FINISH_BOUNDS_S = (5, 60, 600, 3_600, 43_200, 86_400)
"""Buckets for how long transactions are open, in seconds."""

DELAY_BOUNDS_S = (60, 600, 3_600, 43_200, 86_400, 259_200)
"""Buckets for how long messages are to wait, in seconds."""


class TopicStats:
    """Messages that clients put into one topic under one message type: acknowledged puts only."""

    __slots__ = ("bytes_in", "larger", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.larger = [0] * len(SIZE_BOUNDS_BYTES)
        """Messages by size, those of the first bucket left out."""

    def put(self, count: int, size: int) -> None:
        """One request has put so many messages, of `size` bytes in all. Hot."""
        self.messages_in += count
        self.bytes_in += size
        if size > SMALL_BYTES * count:
            self.larger[bisect_left(SIZE_BOUNDS_BYTES, size / count) - 1] += count

    @property
    def sizes(self) -> Durations:
        """How large they were, in bytes; those of a batch are taken for equally large."""
        sizes = Durations(SIZE_BOUNDS_BYTES)
        sizes.counts = [self.messages_in - sum(self.larger), *self.larger]
        sizes.total_s = float(self.bytes_in)
        return sizes


class GroupTopicStats:
    """Messages delivered to one consumer group from one topic, and those it lost."""

    __slots__ = (
        "bytes_out",
        "dead_letters",
        "messages_out",
        "pulled",
        "sent_back",
        "unread_deleted",
    )

    def __init__(self) -> None:
        self.messages_out = 0
        self.bytes_out = 0
        self.unread_deleted = 0
        """Messages that were deleted before the group had consumed them."""
        self.sent_back = 0
        """Messages that the group sent back for a retry."""
        self.dead_letters = 0
        """Messages that became dead letters."""
        self.pulled: dict[int, int] = {}
        """Queue id → the queue offset after the last message that was handed out."""


class TransactionStats:
    """The transactions that ended for one topic."""

    __slots__ = ("commits", "latency", "rollbacks")

    def __init__(self) -> None:
        self.commits = 0
        self.rollbacks = 0
        self.latency = Durations(FINISH_BOUNDS_S)
        """From the message's birth to its commit."""


class TimerStats:
    """The timers of one topic."""

    __slots__ = ("dequeued", "enqueued", "latency")

    def __init__(self) -> None:
        self.enqueued = 0
        """Put into the wheel, counting rolled ones again."""
        self.dequeued = 0
        """Delivered."""
        self.latency = Durations(DELAY_BOUNDS_S)
        """How long they were to wait."""


class DeletedTotals:
    """The counts of deleted topics and groups: with them no total of the broker goes back."""

    __slots__ = ("got", "got_of_clients", "put", "timers_in", "timers_out")

    def __init__(self) -> None:
        self.put = 0
        """Messages put into topics, none of which was the broker's own: those stay."""
        self.got = 0
        """Messages delivered, and …"""
        self.got_of_clients = 0
        """… those of them that were of no system topic."""
        self.timers_in = 0
        self.timers_out = 0


class KnownNames(NamedTuple):
    """The names that the tables of this broker know; series have no others."""

    topic: Callable[[str], bool] = lambda _: True
    """Whether there is such a topic."""
    group: Callable[[str], bool] = lambda _: True
    """Whether there is such a consumer group."""
    reads: Callable[[str, str], bool] = lambda *_: True
    """Whether a group has offsets in a topic."""
    system: Callable[[str], bool] = lambda _: False
    """Whether a topic is the broker's own."""


class BrokerStats:
    """All counters. `series_limit` bounds topics and pairs of group and topic, each by itself."""

    __slots__ = (
        "_limit",
        "access",
        "deleted",
        "group_creations",
        "groups_out",
        "groups_too_fast",
        "known",
        "loop",
        "overflow_in",
        "overflow_out",
        "overflow_timers",
        "overflow_transactions",
        "pop",
        "pulls_found",
        "pulls_missed",
        "repeated",
        "send_stages",
        "slow_puts",
        "timers",
        "topic_creations",
        "topics_in",
        "topics_too_fast",
        "transactions",
    )

    def __init__(self, series_limit: int = SERIES_LIMIT) -> None:
        assert series_limit > 0, "a limit of zero would count nothing by name"
        self._limit = series_limit
        self.known = KnownNames()
        self.deleted = DeletedTotals()
        self.topics_in: dict[tuple[str, str], TopicStats] = {}
        """By (topic, message type)."""
        self.groups_out: dict[tuple[str, str], GroupTopicStats] = {}
        """By (group, topic)."""
        self.transactions: dict[str, TransactionStats] = {}
        """By topic."""
        self.repeated: dict[str, int] = {}
        """Messages not stored again, by topic; only topics with a rule of `dedupe`."""
        self.topics_too_fast: dict[str, int] = {}
        """Sends refused because of the rate of their topic, by topic; only topics with a limit."""
        self.groups_too_fast: dict[str, int] = {}
        """Pulls and pops refused because of the rate of their group, by group; only groups with a
        limit."""
        self.overflow_in = TopicStats()
        self.overflow_out = GroupTopicStats()
        self.overflow_transactions = TransactionStats()
        self.timers: dict[str, TimerStats] = {}
        """By target topic."""
        self.overflow_timers = TimerStats()
        self.loop = LoopStats()
        self.access = AccessStats()
        self.pulls_found = 0
        self.pulls_missed = 0
        """Pulls answered with and without messages."""
        self.pop = PopStats(
            series_limit, lambda topic, group: self.known.topic(topic) and self.known.group(group)
        )
        self.topic_creations = CreationTimes()
        self.group_creations = CreationTimes()
        self.send_stages: dict[str, Durations] = {}
        """Stage → how long it takes; filled by the sends."""
        self.slow_puts = Durations(PUT_BOUNDS_S)
        """The most that the puts of slow rounds can have taken, from 10 ms on."""

    def topic_in(self, topic: str, message_type: str = NORMAL) -> TopicStats:
        """The counters of a topic's stored messages; one dict look-up for a known topic."""
        key = (topic, message_type)
        return self.topics_in.get(key) or self._new_topic(key)

    def group_out(self, group: str, topic: str) -> GroupTopicStats:
        """The counters of a pair's delivered messages; one dict look-up for a known pair."""
        key = (group, topic)
        return self.groups_out.get(key) or self._new_group(key)

    def given_up(self, group: str, topic: str) -> GroupTopicStats:
        """The counters of what a group sends back or gives up, of the topic that it names itself:
        only one that it reads counts by name.
        """
        known = self.groups_out.get((group, topic))
        if known is None and not self.known.reads(group, topic):
            return self.overflow_out
        return known or self._new_group((group, topic))

    def transaction(self, topic: str) -> TransactionStats:
        """The counters of a topic's ended transactions."""
        known = self.transactions.get(topic)
        if known is not None:
            return known
        if len(self.transactions) >= self._limit or not self.known.topic(topic):
            return self.overflow_transactions
        return self.transactions.setdefault(topic, TransactionStats())

    def timer(self, topic: str) -> TimerStats:
        """The counters of the timers of a topic."""
        known = self.timers.get(topic)
        if known is not None:
            return known
        if len(self.timers) >= self._limit or not self.known.topic(topic):
            return self.overflow_timers
        return self.timers.setdefault(topic, TimerStats())

    def forget_topic(self, topic: str) -> None:
        """Drop every series of a deleted topic."""
        self.transactions.pop(topic, None)
        self.topics_too_fast.pop(topic, None)
        self.pop.forget(topic=topic)
        if (timers := self.timers.pop(topic, None)) is not None:
            self.deleted.timers_in += timers.enqueued
            self.deleted.timers_out += timers.dequeued
        for key in [key for key in self.topics_in if key[0] == topic]:
            self.deleted.put += self.topics_in.pop(key).messages_in
        self._forget_pairs([pair for pair in self.groups_out if pair[1] == topic])

    def forget_group(self, group: str) -> None:
        """Drop every series of a deleted consumer group."""
        self.pop.forget(group=group)
        self.groups_too_fast.pop(group, None)
        self._forget_pairs([pair for pair in self.groups_out if pair[0] == group])

    def _forget_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        for pair in pairs:
            count = self.groups_out.pop(pair).messages_out
            self.deleted.got += count
            self.deleted.got_of_clients += 0 if self.known.system(pair[1]) else count

    def _new_topic(self, key: tuple[str, str]) -> TopicStats:
        if len(self.topics_in) >= self._limit or not self.known.topic(key[0]):
            return self.overflow_in
        return self.topics_in.setdefault(key, TopicStats())

    def _new_group(self, key: tuple[str, str]) -> GroupTopicStats:
        group, topic = key
        if len(self.groups_out) >= self._limit:
            return self.overflow_out
        if not (self.known.topic(topic) and self.known.group(group)):
            return self.overflow_out
        return self.groups_out.setdefault(key, GroupTopicStats())
