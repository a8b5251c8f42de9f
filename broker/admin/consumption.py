"""The progress of consumer groups in each queue, and the content of queues.

Requests that read messages from the disk wait for them outside the loop, queue by queue.
Source: admin §4.2, §4.4 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.consumers.consumer_offsets import MARKS, NO_OFFSET
from aerobee.broker.core.lists import size_with
from aerobee.broker.errors import Refusal, TopicNotExist
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue import MessageQueue, QueueUnit, QueueUnits
from aerobee.remoting.wire.bodies.statistics import (
    ConsumeTimeSpan,
    ConsumeTimeSpans,
    OffsetWrapper,
    TopicOffset,
    broker_consume_stats,
    by_queue,
    consume_stats,
    topic_stats,
)
from aerobee.remoting.wire.bodies.topic import GroupList, TopicList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.errors import Unreadable
from aerobee.store.format.unit import UNIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.lag_history import LagHistory
    from aerobee.broker.metrics.samples import Samples
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers
    from aerobee.store.queues.consume_queue import ConsumeQueue

QUEUES_MAX: Final = 40_000
"""Queues in one response: it stays below the longest frame that clients accept."""
NEVER: Final = -1
"""The time of a message that does not exist."""
UNITS_MAX: Final = 10_000
"""Units of a queue in one response."""


class Progress(NamedTuple):
    """A group in one topic: its `consume_stats`, and its lag in messages."""

    body: bytes
    behind: int
    in_flight: int


class ConsumptionProcessor:
    """Handles the codes 202, 208, 300, 303, 317, 321 and 343."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        consumers: ConsumerTables,
        samples: Samples,
        lags: LagHistory,
    ) -> None:
        self.store = core.store
        self.clock = core.clock
        self.broker_name = core.config.broker.broker_name
        self.broker_address = core.address
        self.topics = topics
        self.groups = consumers.groups
        self.clients = consumers.clients
        self.offsets = consumers.offsets
        self.filters = consumers.filters
        self.compensation = consumers.compensation
        self.samples = samples
        self.lags = lags
        self.groups_out = core.stats.groups_out

    def topic_stats(
        self, header: headers.GetTopicStatsInfo, command: Command, connection: Caller
    ) -> Awaitable[Answer]:
        """GET_TOPIC_STATS_INFO: every queue, also those that are read-only or write-only."""
        topic = self.topics.get(header.topic)
        if topic is None:
            raise TopicNotExist(header.topic)
        return self.queues_of(topic)

    async def queues_of(self, topic: TopicConfig) -> Answer:
        """First and next offset of each queue of a topic."""
        name = topic.topic_name
        table = []
        turns = Turns()
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            await turns.give_way()
            first = max(0, self.store.min_offset(name, queue_id))
            end = max(0, self.store.max_offset(name, queue_id))
            last_ms = await self.stored_ms(name, queue_id, end - 1)
            table.append(by_queue(self.queue(name, queue_id), TopicOffset(first, end, last_ms)))
        put = self.samples.growth("TOPIC_PUT", name)
        return Answer(body=topic_stats(table, put.per_s if put else 0.0))

    async def consume_stats(
        self, header: headers.GetConsumeStats, command: Command, connection: Caller
    ) -> Answer:
        """GET_CONSUME_STATS: an unknown group has an empty table."""
        table: list[bytes] = []
        history: dict[str, list[tuple[int, int]]] = {}
        tps = 0.0
        turns = Turns()
        for name in self.topics_of(header):
            await turns.give_way()
            topic = self.topics.get(name)
            if topic is None:
                continue
            if len(table) + topic.read_queue_nums > QUEUES_MAX:
                raise too_many_queues("topic by topic")
            queues = await self.queues_in(header.consumer_group, name, topic.read_queue_nums)
            table += self.by_queues(name, queues)
            tps += self.got_per_s(header.consumer_group, name)
            if header.history:
                history[name] = self.lags.of(header.consumer_group, name)
        return Answer(body=consume_stats(table, tps, history if header.history else None))

    def topics_of(self, header: headers.GetConsumeStats) -> Iterable[str]:
        """The requested topics; unless the request names them, only those consumed now."""
        if header.topic_list:
            return dict.fromkeys(name for name in header.topic_list.split(";") if name)
        group = header.consumer_group
        names = [header.topic] if header.topic else self.offsets.topics_of(group)
        entry = self.clients.group(group)
        if entry is None:
            return names
        consumed = entry.subscriptions.keys() | self.compensation.topics(group).keys()
        return [name for name in names if name in consumed]

    def groups_of(
        self, header: headers.QueryTopicConsumeByWho, command: Command, connection: Caller
    ) -> Answer:
        """QUERY_TOPIC_CONSUME_BY_WHO: the groups that are connected for it or have an offset.

        Groups that only read a topic, as tools do, are left out: their lag would raise alarms.
        """
        groups = {
            *self.offsets.groups_of(header.topic),
            *(
                group.name
                for group in self.clients.consumers.values()
                if header.topic in group.subscriptions
            ),
        }
        return Answer(body=GroupList(group_list=sorted(groups)).to_bytes())

    def topics_with_offsets(
        self, header: headers.QueryTopicsByConsumer, command: Command, connection: Caller
    ) -> Answer:
        """QUERY_TOPICS_BY_CONSUMER: empty for an unknown group."""
        names = self.offsets.topics_of(header.group)
        return Answer(body=TopicList(topic_list=names, broker_addr=self.broker_address).to_bytes())

    async def queues_in(self, group: str, topic: str, count: int) -> list[OffsetWrapper]:
        """The progress of a group in the first `count` queues of a topic."""
        queues = []
        turns = Turns()
        for queue_id in range(count):
            await turns.give_way()
            queues.append(await self.progress(group, topic, queue_id))
        return queues

    def by_queues(self, topic: str, queues: Iterable[OffsetWrapper]) -> list[bytes]:
        """The entries of these queues, in the order of their ids from 0 on."""
        return [by_queue(self.queue(topic, number), state) for number, state in enumerate(queues)]

    def got_per_s(self, group: str, topic: str) -> float:
        """Messages of a topic delivered to a group, per second of the last minute."""
        got = self.samples.growth("GROUP_GET", f"{topic}@{group}")
        return got.per_s if got else 0.0

    async def progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        """The progress of a group in one queue."""
        at = self.offsets.query(group, topic, queue_id)
        at = 0 if at == NO_OFFSET else at
        end = max(0, self.store.max_offset(topic, queue_id))
        handed_out = self.groups_out.get((group, topic))
        pulled = max(at, handed_out.pulled.get(queue_id, at)) if handed_out else at
        last_ms = await self.stored_ms(topic, queue_id, at - 1)
        return OffsetWrapper(end, at, pulled, last_ms)

    async def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store time of a message; 0 for one that does not exist, or that the disk cannot read:
        a group that has passed over it has others to tell of.
        """
        if queue_offset < max(0, self.store.min_offset(topic, queue_id)):
            return 0
        call = self.store.store_time
        try:
            return max(0, await self.store.complete(lambda: call(topic, queue_id, queue_offset)))
        except Unreadable:
            return 0

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """A queue of this broker by name."""
        return MessageQueue(broker_name=self.broker_name, queue_id=queue_id, topic=topic)

    # ── All groups ──

    async def all_consume_stats(
        self, header: headers.GetBrokerConsumeStats, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_CONSUME_STATS: every known group, in all its topics or the ordered ones."""
        turns = Turns()
        groups: dict[str, list[bytes]] = {}
        size = behind = in_flight = 0
        for group, topics in (await self.topics_of_all(header.is_order)).items():
            groups[group] = []
            for topic in topics:
                await turns.give_way()
                progress = await self.progress_in(group, topic)
                size = size_with(size, progress.body)
                groups[group].append(progress.body)
                behind += progress.behind
                in_flight += progress.in_flight
        return Answer(
            body=broker_consume_stats(
                self.broker_address, groups, behind=behind, in_flight=in_flight
            )
        )

    async def topics_of_all(self, ordered: bool) -> dict[str, list[TopicConfig]]:
        """Group → its topics, or its ordered ones. Raises: Refusal when there are too many.

        The limit is checked before the first queue is read. The marks of Spark sinks are no
        offsets, and would make the lag of all groups together another one.
        """
        turns = Turns()
        configs: dict[str, list[TopicConfig]] = {}
        queues = 0
        for group in sorted(self.groups.configs):
            await turns.give_way()
            if group.startswith(MARKS):
                continue
            known = map(self.topics.get, self.offsets.topics_of(group))
            configs[group] = [
                config for config in known if config is not None and (config.order or not ordered)
            ]
            queues += sum(topic.write_queue_nums for topic in configs[group])
            if queues > QUEUES_MAX:
                raise too_many_queues("group by group")
        return configs

    async def progress_in(self, group: str, topic: TopicConfig) -> Progress:
        """The progress of a group in the write queues of a topic."""
        name = topic.topic_name
        queues = await self.queues_in(group, name, topic.write_queue_nums)
        body = consume_stats(self.by_queues(name, queues), self.got_per_s(group, name))
        behind = sum(queue.broker_offset - queue.consumer_offset for queue in queues)
        in_flight = sum(queue.pull_offset - queue.consumer_offset for queue in queues)
        return Progress(body, behind, in_flight)

    async def time_spans(
        self, header: headers.QueryConsumeTimeSpan, command: Command, connection: Caller
    ) -> Answer:
        """QUERY_CONSUME_TIME_SPAN: the progress of a group in each queue, as store times."""
        topic = self.topics.get(header.topic)
        if topic is None:
            raise TopicNotExist(header.topic)
        spans = []
        turns = Turns()
        for queue_id in range(topic.read_queue_nums):
            await turns.give_way()
            spans.append(await self.time_span(header.group, topic.topic_name, queue_id))
        return Answer(body=ConsumeTimeSpans(spans).to_bytes())

    async def time_span(self, group: str, topic: str, queue_id: int) -> ConsumeTimeSpan:
        """One queue. A group that has consumed nothing is at the first message."""
        first = self.store.min_offset(topic, queue_id)
        end = self.store.max_offset(topic, queue_id)
        at = max(0, self.offsets.query(group, topic, queue_id))
        oldest_ms = await self.stored_ms(topic, queue_id, first) or NEVER
        next_ms = await self.stored_ms(topic, queue_id, at) if at < end else 0
        return ConsumeTimeSpan(
            message_queue=self.queue(topic, queue_id),
            min_time_stamp=oldest_ms,
            max_time_stamp=await self.stored_ms(topic, queue_id, end - 1) or NEVER,
            consume_time_stamp=await self.stored_ms(topic, queue_id, at - 1) or oldest_ms,
            delay_time=max(0, self.clock.now_ms() - next_ms) if next_ms else 0,
        )

    # ── Units ──

    def units(
        self, header: headers.QueryConsumeQueue, command: Command, connection: Caller
    ) -> Answer | Awaitable[Answer]:
        """QUERY_CONSUME_QUEUE. An index outside of the queue is an error; Java returns nothing."""
        queue = self.store.queues.find(header.topic, header.queue_id)
        if queue is None:
            remark = f"{header.queue_id}@{header.topic} is not exist!"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if not queue.min_offset <= header.index < queue.end_offset:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"index {header.index} is outside of queue {header.queue_id} of {header.topic}: "
                f"it holds {queue.min_offset} to {queue.end_offset}",
            )
        if not 0 < header.count <= UNITS_MAX:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"count is 1 to {UNITS_MAX}, not {header.count}"
            )
        return self.store.reading(lambda: self.units_of(queue, header))

    def units_of(self, queue: ConsumeQueue, header: headers.QueryConsumeQueue) -> Answer:
        """Units, at most up to the end of the file in which they begin."""
        group = header.consumer_group or ""
        entry = self.clients.group(group)
        subscription = None if entry is None else entry.subscriptions.get(header.topic)
        count = min(header.count, queue.end_offset - header.index)
        data = queue.units(header.index, count, self.store.reader.cold.units)
        tags = None if subscription is None else subscription.tag_filter
        consumer_filter = self.filters.get(header.topic, group)
        body = QueueUnits(
            min_queue_index=queue.min_offset,
            max_queue_index=queue.end_offset,
            queue_data=[
                QueueUnit(
                    physic_offset=unit.physical_offset,
                    physic_size=unit.size,
                    tags_code=unit.tags_code,
                    eval=tags is None or tags.matches(unit.tags_code),
                )
                for unit in UNIT.rows(data)
            ],
            subscription_data=subscription.data if subscription else None,
            filter_data=consumer_filter.expression if consumer_filter else None,
        )
        return Answer(body=body.to_bytes())


def too_many_queues(how: str) -> Refusal:
    """The refusal of a response that would be longer than clients accept."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"more than {QUEUES_MAX} queues are asked for: ask {how}"
    )
