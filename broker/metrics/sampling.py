"""Samples the counters: rates of the last ten minutes, windows up to a day, values at midnight.

In: counters. Out: the figures of GET_BROKER_RUNTIME_INFO and VIEW_BROKER_STATS_DATA. The code that
counts has no extra cost. Source: semantics §16 (BrokerStatsManager, StoreStatsService).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import trio

from aerobee.broker.counters.broker_stats import MESSAGE_TYPES
from aerobee.broker.metrics.samples import WINDOWS, Samples, Window
from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.store.clock import Clock
    from aerobee.store.stats import StoreStats

TICK_S: Final = 1.0
RATE_SPANS_S: Final = (10, 60, 600)
"""The spans of the three numbers of a rate."""
SLOW_PUT: Final = "SLOW_PUT"
TOTALS: Final = ("put", "found", "missed", "transferred", "timers_in", "timers_out")
"""Counters of the store and of pulls, since the start, that have rates."""
ROWS: Final = RATE_SPANS_S[-1] + 1
"""Samples of all of them: as far back as the longest span."""


class Count(NamedTuple):
    """The values of one counter of a statistic; one without sizes has its number twice."""

    item: str
    key: str
    messages: int
    size_bytes: int


class MidnightTotals(NamedTuple):
    """Messages put and delivered up to some midnight, those of system topics left out."""

    put: int = 0
    got: int = 0


class Sampling:
    """The service. `samples` and the mornings are read by others."""

    def __init__(
        self,
        *,
        stats: BrokerStats,
        store: StoreStats,
        clock: Clock,
        cluster: str,
        is_system_topic: Callable[[str], bool],
        connections: Callable[[], tuple[int, int]],
        day_of: Callable[[int], object],
    ) -> None:
        """`connections` returns how many were opened and closed."""
        self.samples = Samples(counted=self._counted)
        self._totals = [array("q", bytes(8 * ROWS)) for _ in TOTALS]
        """By second, over and over; the first sample is of zeros."""
        self._looks = 0
        self.yesterday = MidnightTotals()
        self.today = MidnightTotals()
        self._stats = stats
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._is_system_topic = is_system_topic
        self._connections = connections
        self._day_of = day_of
        self._day = day_of(clock.now_ms())

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Sample until cancelled."""
        task_status.started()
        seconds = 0
        while True:
            await trio.sleep(TICK_S)
            seconds += 1
            self.look()
            for window in WINDOWS:
                if seconds % window.period_s == 0:
                    await self.sample(window)

    def look(self) -> None:
        """Once a second: sample the totals, and check whether a new day has begun."""
        stats, store = self._stats, self._store
        self._looks += 1
        now = (
            store.messages_put,
            stats.pulls_found,
            stats.pulls_missed,
            store.messages_got,
            stats.deleted.timers_in + sum(timers.enqueued for timers in stats.timers.values()),
            stats.deleted.timers_out + sum(timers.dequeued for timers in stats.timers.values()),
        )
        for total, value in zip(self._totals, now, strict=True):
            total[self._looks % ROWS] = value
        day = self._day_of(self._clock.now_ms())
        if day != self._day:
            self._day = day
            self.yesterday, self.today = self.today, self.now()

    def now(self) -> MidnightTotals:
        """Messages put and delivered so far, without system topics."""
        stats, is_system = self._stats, self._is_system_topic
        put = sum(
            s.messages_in for (topic, _), s in stats.topics_in.items() if not is_system(topic)
        )
        got = sum(
            s.messages_out for (_, topic), s in stats.groups_out.items() if not is_system(topic)
        )
        return MidnightTotals(stats.deleted.put + put, stats.deleted.got_of_clients + got)

    def rates(self, field: str) -> tuple[float, ...]:
        """Per second over the last 10, 60 and 600 s, or as far back as there are samples."""
        total = self._totals[TOTALS.index(field)]
        newest = total[self._looks % ROWS]
        per_second = []
        for span in RATE_SPANS_S:
            seconds = min(span, self._looks)
            grown = newest - total[(self._looks - seconds) % ROWS]
            per_second.append(grown / seconds if seconds else 0.0)
        return tuple(per_second)

    async def sample(self, window: Window) -> None:
        """Add a sample of all counters to a window."""
        self.samples.begin()
        await in_slices(self._note(window))
        await in_slices(self.samples.forget())

    def _counted(self, item: str, key: str) -> bool:
        """Whether these counters have counted anything: as with Java's broker they are there from
        the first message on.
        """
        stats = self._stats
        if item == "TOPIC_PUT":
            return any((key, kind) in stats.topics_in for kind in MESSAGE_TYPES)
        topic, _, group = key.partition("@")
        out = stats.groups_out.get((group, topic))
        if item == "GROUP_GET":
            return out is not None and out.messages_out > 0
        if item == "SNDBCK_PUT":
            return out is not None and out.sent_back > 0
        if key != self._cluster:
            return False
        counts = {"BROKER_PUT": self._store.messages_put, "BROKER_GET": self._store.messages_got}
        return counts.get(item.removesuffix("_WITHOUT_SYSTEM_TOPIC"), 0) > 0

    def _note(self, window: Window) -> Iterator[None]:
        """Sample every counter; others may run between two of them."""
        for counter in self._counters():
            if counter is not None:
                item, key, messages, size_bytes = counter
                self.samples.note(item, key, window, messages, size_bytes)
            yield

    def _counters(self) -> Iterator[Count | None]:
        """Every counter; None at points where others may run."""
        # Copies, because others run in between.
        topics: dict[str, tuple[int, int]] = {}
        is_system = self._is_system_topic
        # Read with each copy: what is deleted from here on is in that.
        own_put = put_all = self._stats.deleted.put
        for (topic, _), put in list(self._stats.topics_in.items()):
            messages, size_bytes = topics.get(topic, (0, 0))
            topics[topic] = (messages + put.messages_in, size_bytes + put.bytes_in)
            put_all += put.messages_in
            own_put += 0 if is_system(topic) else put.messages_in
            yield None
        for topic, (messages, size_bytes) in topics.items():
            yield Count("TOPIC_PUT", topic, messages, size_bytes)
        got, own_got = self._stats.deleted.got, self._stats.deleted.got_of_clients
        for (group, topic), out in list(self._stats.groups_out.items()):
            got += out.messages_out
            own_got += 0 if is_system(topic) else out.messages_out
            key = f"{topic}@{group}"
            yield Count("GROUP_GET", key, out.messages_out, out.bytes_out)
            yield Count("SNDBCK_PUT", key, out.sent_back, out.sent_back)
        for item, count in (
            ("BROKER_PUT", put_all),
            ("BROKER_GET", got),
            ("BROKER_PUT_WITHOUT_SYSTEM_TOPIC", own_put),
            ("BROKER_GET_WITHOUT_SYSTEM_TOPIC", own_got),
        ):
            yield Count(item, self._cluster, count, count)
        yield from self._rarer()

    def _rarer(self) -> Iterator[Count]:
        """Check points and acknowledgements of pops, connections, slow puts."""
        groups: dict[tuple[str, str], int] = {}
        brokers = {f"BROKER_{kind}": count for kind, count in self._stats.pop.deleted.items()}
        for (topic, group, kind, _), count in list(self._stats.pop.revive_in.items()):
            key = (f"GROUP_{kind}", f"{topic}@{group}")
            groups[key] = groups.get(key, 0) + count
            brokers[f"BROKER_{kind}"] += count
        for (item, name), count in groups.items():
            yield Count(item, name, count, count)
        for item, count in brokers.items():
            yield Count(item, self._cluster, count, count)
        for name, count in zip(("CONNECT", "CLOSE"), self._connections(), strict=True):
            yield Count("CHANNEL_ACTIVITY", name, count, count)
        for number, count in enumerate(self._stats.slow_puts.counts):
            yield Count(SLOW_PUT, str(number), count, count)

    def slow_puts(self) -> list[int]:
        """Slow puts of the last minute, by the buckets of their counter."""
        grown = [
            self.samples.growth(SLOW_PUT, str(number))
            for number in range(len(self._stats.slow_puts.counts))
        ]
        return [0 if growth is None else growth.messages for growth in grown]
