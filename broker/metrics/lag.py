"""The lag of each consumer group in each topic, as one scrape shows it.

For a connected group these are the topics that it subscribes to; for a group without members, which
RocketMQ's exporter leaves out, those for which it has committed offsets. Store times are read from
the log; the store time of a message never changes, so each is read once.
Source: semantics §20.1 (ConsumerLagCalculator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.consumers.consumer_offsets import MARKS, NO_OFFSET, OWN_GROUPS
from aerobee.broker.metrics.figures import LAGS_MAX, GroupLag
from aerobee.broker.pop.pop_records import retry_topic_v1, retry_topic_v2
from aerobee.remoting.server.turns import Turns
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable

TIMES_WITHIN_S: Final = 1.0
"""How long one scrape waits for store times that are not in memory; later ones are left out."""
NEVER: Final = float("-inf")
"""The deadline of those that nobody waits for."""


class LagReader:
    """Reads the lag of all groups, and keeps the store times of the oldest messages."""

    def __init__(self, core: Core, topics: TopicTable, consumers: ConsumerTables) -> None:
        self._store = core.store
        self._stats = core.stats
        self._clock = core.clock
        self._topics = topics
        self._offsets = consumers.offsets
        self._clients = consumers.clients
        self._compensation = consumers.compensation
        self._times: dict[tuple[str, int, int], int] = {}
        """(topic, queue id, queue offset) → store time in ms, of the last scrape."""

    async def read(self) -> list[GroupLag]:
        """Every group in every topic, at most LAGS_MAX pairs. Others run in between."""
        scrape = StoreTimes(self._times, self._clock.monotonic() + TIMES_WITHIN_S)
        lags = await self._read(scrape)
        self._times = scrape.times
        return lags

    async def read_messages(self) -> list[GroupLag]:
        """As `read`, without the disk: ages are known only where the last scrape was."""
        return await self._read(StoreTimes(self._times, NEVER))

    async def _read(self, scrape: StoreTimes) -> list[GroupLag]:
        turns = Turns()
        lags: list[GroupLag] = []
        for group in self._groups():
            for topic in self._topics_of(group):
                for name, is_retry in self._read_topics(group, topic):
                    if len(lags) >= LAGS_MAX:
                        return lags
                    lag = GroupLag(group, topic, is_retry)
                    lags.append(await self._lag(lag, name, turns, scrape))
            await turns.give_way()
        return lags

    def _groups(self) -> list[str]:
        """Connected groups first: there may be more than are shown."""
        known = (self._clients.consumers, self._compensation.groups, self._offsets.topics_by_group)
        groups = dict.fromkeys(group for table in known for group in table)
        return [name for name in groups if name not in OWN_GROUPS and not name.startswith(MARKS)]

    def _topics_of(self, group: str) -> Collection[str]:
        """The topics that a connected group subscribes to, or else those with its offsets."""
        entry = self._clients.group(group)
        names = {*self._compensation.topics(group), *(entry.subscriptions if entry else ())}
        return names or self._offsets.topics_of(group)

    def _read_topics(self, group: str, topic: str) -> Iterator[tuple[str, bool]]:
        """The topic, and where POP puts its messages again for the group."""
        known = self._stats.known
        if topic.startswith(RETRY_PREFIX) or not (known.topic(topic) and known.group(group)):
            # A subscription may name what is not here.
            return
        yield topic, False
        for name in (retry_topic_v1(topic, group), retry_topic_v2(topic, group)):
            if name in self._topics.configs:
                yield name, True
                return

    async def _lag(self, lag: GroupLag, topic: str, turns: Turns, scrape: StoreTimes) -> GroupLag:
        config = self._topics.get(topic)
        queues = self._offsets.queues(lag.group, topic)
        if config is None or not (queues or lag.is_retry):
            return lag
        pair = self._stats.groups_out.get((lag.group, topic))
        pulled = pair.pulled if pair and self._has_members(lag.group) else {}
        popped = self._stats.pop.in_flight.get((lag.group, topic), {})
        behind = ready = 0
        oldest, waiting = OldestTime(), OldestTime()
        for queue_id in range(config.read_queue_nums):
            await turns.give_way()
            at = queues.get(queue_id, NO_OFFSET)
            if at < 0 and not lag.is_retry:
                # A group that has committed nothing is not behind: it may begin at the end.
                continue
            queue = self._store.queues.find(topic, queue_id)
            if queue is None:
                continue
            first, end = queue.min_offset, queue.end_offset
            next_offset = max(first, at, min(pulled.get(queue_id, at), end))
            consumed = max(first, min(at, end) - popped.get(queue_id, 0))
            if consumed >= end:
                continue
            behind += end - consumed
            stored_ms = await self._stored_ms(topic, queue_id, consumed, scrape)
            oldest.add(stored_ms)
            if next_offset < end:
                ready += end - next_offset
                if next_offset != consumed:
                    stored_ms = await self._stored_ms(topic, queue_id, next_offset, scrape)
                waiting.add(stored_ms)
        now_ms = self._clock.now_ms()
        return lag._replace(
            behind=behind,
            in_flight=behind - ready,
            ready=ready,
            behind_ms=oldest.age_ms(now_ms),
            queueing_ms=waiting.age_ms(now_ms),
        )

    def _has_members(self, group: str) -> bool:
        """Whether a member may still be processing pulled messages."""
        return self._clients.group(group) is not None or bool(self._compensation.topics(group))

    async def _stored_ms(
        self, topic: str, queue_id: int, queue_offset: int, scrape: StoreTimes
    ) -> int | None:
        """The store time of a message in ms; None when the disk fails or is too slow."""
        key = (topic, queue_id, queue_offset)
        stored_ms = scrape.known.get(key)
        if stored_ms is None:
            if self._clock.monotonic() > scrape.until:
                return None
            call = self._store.store_time
            try:
                stored_ms = await self._store.complete(lambda: call(topic, queue_id, queue_offset))
            except OSError:
                return None
        scrape.times[key] = stored_ms
        return stored_ms


class StoreTimes:
    """Store times known before this scrape, those that it used, and its deadline for reads."""

    def __init__(self, known: Mapping[tuple[str, int, int], int], until: float) -> None:
        self.known = known
        self.until = until
        self.times: dict[tuple[str, int, int], int] = {}


class OldestTime:
    """The oldest of some store times."""

    def __init__(self) -> None:
        self.stored_ms: int | None = None
        self.complete = True

    def add(self, stored_ms: int | None) -> None:
        """Add a store time; None: it is not known, −1: the message no longer exists."""
        if stored_ms is None:
            self.complete = False
        elif stored_ms >= 0 and (self.stored_ms is None or stored_ms < self.stored_ms):
            self.stored_ms = stored_ms

    def age_ms(self, now_ms: int) -> int | None:
        """The age of the oldest in ms; 0 without any, None when one of them is not known."""
        if not self.complete:
            return None
        return 0 if self.stored_ms is None else max(0, now_ms - self.stored_ms)
