"""What administrators and dashboards ask: offsets by queue, who is connected, figures over time.

Answers that need messages from the disk wait for them outside the loop, queue by queue.
Source: admin §4.2, §4.3, §6 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.config.report import as_properties
from aerobee.broker.consumers.consumer_offsets import NO_OFFSET
from aerobee.broker.errors import Refused, TopicNotExist
from aerobee.broker.metrics.samples import WINDOWS
from aerobee.broker.saved.data_version import first_version
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.queue_lock import MessageQueue
from aerobee.remoting.wire.bodies.statistics import (
    BrokerStatsData,
    Connection,
    ConsumerConnection,
    OffsetWrapper,
    ProducerConnection,
    StatsSnapshot,
    TopicOffset,
    by_queue,
    consume_stats,
    topic_stats,
)
from aerobee.remoting.wire.bodies.topic_list import GroupList, TopicList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import GetBrokerConfigResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from aerobee.broker.admin.runtime_info import RuntimeInfo
    from aerobee.broker.consumers.clients import Client
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.samples import Samples, Window
    from aerobee.broker.topics.topics import TopicConfig, TopicTable
    from aerobee.remoting.server.connection import Connection as Peer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

__all__ = ["AdminProcessor"]

ITEMS: Final[Mapping[str, tuple[str, bool]]] = {
    "TOPIC_PUT_NUMS": ("TOPIC_PUT", False),
    "TOPIC_PUT_SIZE": ("TOPIC_PUT", True),
    "GROUP_GET_NUMS": ("GROUP_GET", False),
    "GROUP_GET_SIZE": ("GROUP_GET", True),
    "SNDBCK_PUT_NUMS": ("SNDBCK_PUT", False),
    "BROKER_PUT_NUMS": ("BROKER_PUT", False),
    "BROKER_GET_NUMS": ("BROKER_GET", False),
    "BROKER_ACK_NUMS": ("BROKER_ACK", False),
    "BROKER_CK_NUMS": ("BROKER_CK", False),
    "GROUP_ACK_NUMS": ("GROUP_ACK", False),
    "GROUP_CK_NUMS": ("GROUP_CK", False),
    "CHANNEL_ACTIVITY": ("CHANNEL_ACTIVITY", False),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": ("BROKER_PUT_WITHOUT_SYSTEM_TOPIC", False),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": ("BROKER_GET_WITHOUT_SYSTEM_TOPIC", False),
}
"""RocketMQ's name → the series, and whether its bytes are meant.

Left out is what would need a count or a clock per message: QUEUE_PUT_…, QUEUE_GET_…,
TOPIC_PUT_LATENCY, GROUP_GET_LATENCY, GROUP_GET_FALL_…, …_REGISTER_TIME. Tools get "not exist".
"""


QUEUES_MAX: Final = 40_000
"""Queues in one answer: it stays below the longest frame that clients take."""


class AdminProcessor:
    """Codes 26, 28, 202, 203, 204, 208, 300, 315 and 343."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        consumers: ConsumerTables,
        samples: Samples,
        runtime_info: RuntimeInfo,
    ) -> None:
        self.store = core.store
        self.broker_name = core.config.broker.broker_name
        self.broker_address = core.address
        self.topics = topics
        self.clients = consumers.clients
        self.offsets = consumers.offsets
        self.compensation = consumers.compensation
        self.samples = samples
        self.runtime_info = runtime_info
        version = first_version(core.clock.now_ms()).to_bytes().decode()
        self.settings_answer = Answer(
            header=GetBrokerConfigResponse(version=version),
            body=as_properties(core.config).encode(),
        )

    # -- offsets ---------------------------------------------------------------------------------

    def topic_stats(
        self, header: headers.GetTopicStatsInfo, command: Command, connection: Peer
    ) -> Awaitable[Answer]:
        """GET_TOPIC_STATS_INFO: every queue, those only read or only written included."""
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
        self, header: headers.GetConsumeStats, command: Command, connection: Peer
    ) -> Answer:
        """GET_CONSUME_STATS: an unknown group has an empty table."""
        table: list[bytes] = []
        tps = 0.0
        turns = Turns()
        for name in self.topics_of(header):
            await turns.give_way()
            topic = self.topics.get(name)
            if topic is None:
                continue
            if len(table) + topic.read_queue_nums > QUEUES_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"more than {QUEUES_MAX} queues are asked for: ask topic by topic",
                )
            for queue_id in range(topic.read_queue_nums):
                await turns.give_way()
                progress = await self.progress(header.consumer_group, name, queue_id)
                table.append(by_queue(self.queue(name, queue_id), progress))
            got = self.samples.growth("GROUP_GET", f"{name}@{header.consumer_group}")
            tps += got.per_s if got else 0.0
        return Answer(body=consume_stats(table, tps))

    def topics_of(self, header: headers.GetConsumeStats) -> Iterable[str]:
        """The topics asked for; unless they are named one by one, only those consumed now."""
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
        self, header: headers.QueryTopicConsumeByWho, command: Command, connection: Peer
    ) -> Answer:
        """QUERY_TOPIC_CONSUME_BY_WHO: who is connected for it, pulled of it, or has an offset."""
        groups = {
            *self.offsets.groups_of(header.topic),
            *self.compensation.groups_of(header.topic),
            *(
                group.name
                for group in self.clients.consumers.values()
                if header.topic in group.subscriptions
            ),
        }
        return Answer(body=GroupList(group_list=sorted(groups)).to_bytes())

    def topics_with_offsets(
        self, header: headers.QueryTopicsByConsumer, command: Command, connection: Peer
    ) -> Answer:
        """QUERY_TOPICS_BY_CONSUMER: none for an unknown group."""
        names = self.offsets.topics_of(header.group)
        return Answer(body=TopicList(topic_list=names, broker_addr=self.broker_address).to_bytes())

    async def progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        """How far a group is in one queue."""
        at = self.offsets.query(group, topic, queue_id)
        at = 0 if at == NO_OFFSET else at
        last_ms = await self.stored_ms(topic, queue_id, at - 1)
        return OffsetWrapper(max(0, self.store.max_offset(topic, queue_id)), at, at, last_ms)

    async def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored; 0 for one that is not there."""
        if queue_offset < max(0, self.store.min_offset(topic, queue_id)):
            return 0
        call = self.store.store_time
        return max(0, await self.store.complete(lambda: call(topic, queue_id, queue_offset)))

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """One of our queues by name."""
        return MessageQueue(broker_name=self.broker_name, queue_id=queue_id, topic=topic)

    # -- connections -----------------------------------------------------------------------------

    def consumer_connections(
        self, header: headers.GetConsumerConnectionList, command: Command, connection: Peer
    ) -> Answer:
        """GET_CONSUMER_CONNECTION_LIST."""
        entry = self.clients.group(header.consumer_group)
        if entry is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{header.consumer_group}] not online",
            )
        body = ConsumerConnection(
            connection_set=[connected(client) for client in entry.clients.values()],
            consume_from_where=entry.consume_from_where,
            consume_type=entry.consume_type,
            message_model=entry.message_model,
            subscription_table={name: one.data for name, one in entry.subscriptions.items()},
        )
        return Answer(body=body.to_bytes())

    def producer_connections(
        self, header: headers.GetProducerConnectionList, command: Command, connection: Peer
    ) -> Answer:
        """GET_PRODUCER_CONNECTION_LIST."""
        clients = self.clients.producers.get(header.producer_group)
        if clients is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist"
            )
        body = ProducerConnection([connected(client) for client in clients.values()])
        return Answer(body=body.to_bytes())

    # -- figures ---------------------------------------------------------------------------------

    def stats_data(
        self, header: headers.ViewBrokerStatsData, command: Command, connection: Peer
    ) -> Answer:
        """VIEW_BROKER_STATS_DATA."""
        item, of_bytes = ITEMS.get(header.stats_name, ("", False))
        minute, hour, day = (self.snapshot(item, header.stats_key, w, of_bytes) for w in WINDOWS)
        if minute is None or hour is None or day is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return Answer(body=BrokerStatsData(minute, hour, day).to_bytes())

    def snapshot(self, item: str, key: str, window: Window, of_bytes: bool) -> StatsSnapshot | None:
        """A series over one window; None for one that nothing is known of."""
        grown = self.samples.growth(item, key, window)
        if grown is None:
            return None
        total, per_s = grown.messages, grown.per_s
        if of_bytes:
            total, per_s = grown.size_bytes, grown.bytes_per_s
        return StatsSnapshot(total, per_s, total / grown.messages if grown.messages else 0.0)

    def settings(
        self, header: headers.GetBrokerConfig, command: Command, connection: Peer
    ) -> Answer:
        """GET_BROKER_CONFIG: as the broker was started."""
        return self.settings_answer

    async def runtime(
        self, header: headers.GetBrokerRuntimeInfo, command: Command, connection: Peer
    ) -> Answer:
        """GET_BROKER_RUNTIME_INFO."""
        return Answer(body=KVTable(await self.runtime_info.figures()).to_bytes())


def connected(client: Client) -> Connection:
    """One member as tools show it."""
    return Connection(client.connection.address, client.client_id, client.language, client.version)
