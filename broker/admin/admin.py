"""Connected clients and time series, for administrators and dashboards.

Source: admin §4.2, §4.3, §6 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.core.lists import encoded_table
from aerobee.broker.errors import Refusal
from aerobee.broker.metrics.samples import WINDOWS
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import ProducerInfo
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.statistics import (
    BrokerStatsData,
    Connection,
    ConsumerConnection,
    ConsumerSubscription,
    ProducerConnection,
    StatsSnapshot,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.admin.runtime_info import RuntimeInfo
    from aerobee.broker.consumers.clients import Client
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.samples import Samples, Window
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

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
"""RocketMQ's name → the series, and whether the figure is its bytes.

The figures that would need a counter or a clock per message are left out: QUEUE_PUT_…, QUEUE_GET_…,
TOPIC_PUT_LATENCY, GROUP_GET_LATENCY, GROUP_GET_FALL_…, …_REGISTER_TIME. Tools get "not exist".
"""


class AdminProcessor:
    """Handles the codes 28, 203, 204, 315, 328 and 345."""

    def __init__(
        self,
        core: Core,
        *,
        consumers: ConsumerTables,
        samples: Samples,
        runtime_info: RuntimeInfo,
    ) -> None:
        self.store = core.store
        self.clock = core.clock
        self.clients = consumers.clients
        self.samples = samples
        self.runtime_info = runtime_info

    # ── Connections ──

    def consumer_connections(
        self, header: headers.GetConsumerConnectionList, command: Command, connection: Caller
    ) -> Answer:
        """GET_CONSUMER_CONNECTION_LIST."""
        entry = self.clients.group(header.consumer_group)
        if entry is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{header.consumer_group}] not online",
            )
        body = ConsumerConnection(
            connection_set=[connected(client) for client in entry.clients.values()],
            consume_from_where=entry.consume_from_where,
            consume_type=entry.consume_type,
            message_model=entry.message_model,
            subscription_table={
                name: subscription.data for name, subscription in entry.subscriptions.items()
            },
        )
        return Answer(body=body.to_bytes())

    def producer_connections(
        self, header: headers.GetProducerConnectionList, command: Command, connection: Caller
    ) -> Answer:
        """GET_PRODUCER_CONNECTION_LIST."""
        clients = self.clients.producers.get(header.producer_group)
        if clients is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist"
            )
        body = ProducerConnection([connected(client) for client in clients.values()])
        return Answer(body=body.to_bytes())

    def all_producers(
        self, header: headers.GetAllProducerInfo, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_PRODUCER_INFO: group → members."""
        table = {}
        for group, clients in list(self.clients.producers.items()):
            table[group] = [self.producer(client) for client in clients.values()]
            yield
        body = yield from encoded_table(table)
        return Answer(body=b'{"data":' + body + b"}")

    def producer(self, client: Client) -> ProducerInfo:
        """One producer as tools show it: Java prints addresses with a leading slash."""
        silent_ms = monotonic_ms(self.clock) - client.last_update_ms
        return ProducerInfo(
            client_id=client.client_id,
            remote_ip=f"/{client.connection.address}",
            language=client.language,
            version=client.version,
            last_update_timestamp=self.clock.now_ms() - silent_ms,
        )

    def subscription(
        self, header: headers.QuerySubscriptionByConsumer, command: Command, connection: Caller
    ) -> Answer:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: empty while no member of the group is connected."""
        entry = self.clients.group(header.group)
        topic = header.topic or ""
        subscription_data = None if entry is None else entry.subscriptions.get(topic)
        body = ConsumerSubscription(
            group=header.group,
            topic=topic,
            subscription_data=subscription_data.data if subscription_data else None,
        )
        return Answer(body=body.to_bytes())

    # ── Figures ──

    def stats_data(
        self, header: headers.ViewBrokerStatsData, command: Command, connection: Caller
    ) -> Answer:
        """VIEW_BROKER_STATS_DATA."""
        item, of_bytes = ITEMS.get(header.stats_name, ("", False))
        minute, hour, day = (self.snapshot(item, header.stats_key, w, of_bytes) for w in WINDOWS)
        if minute is None or hour is None or day is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return Answer(body=BrokerStatsData(minute, hour, day).to_bytes())

    def snapshot(self, item: str, key: str, window: Window, of_bytes: bool) -> StatsSnapshot | None:
        """A series over one window; None for a series without data."""
        grown = self.samples.growth(item, key, window)
        if grown is None:
            return None
        total, per_s = grown.messages, grown.per_s
        if of_bytes:
            total, per_s = grown.size_bytes, grown.bytes_per_s
        return StatsSnapshot(total, per_s, total / grown.messages if grown.messages else 0.0)

    async def runtime(
        self, header: headers.GetBrokerRuntimeInfo, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_RUNTIME_INFO."""
        return Answer(body=KVTable(await self.runtime_info.figures()).to_bytes())


def connected(client: Client) -> Connection:
    """One member of a group as tools show it."""
    return Connection(client.connection.address, client.client_id, client.language, client.version)
