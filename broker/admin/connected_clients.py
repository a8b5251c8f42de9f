"""Producers and consumers that are connected, as tools show them.

Source: admin §4.2 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.lists import encoded_table
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import ProducerInfo
from aerobee.remoting.wire.bodies.statistics import (
    Connection,
    ConsumerConnection,
    ConsumerSubscription,
    ProducerConnection,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.clock import monotonic_ms

if TYPE_CHECKING:
    from aerobee.broker.consumers.clients import Client, ClientTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers
    from aerobee.store.clock import Clock


class ConnectedClients:
    """Handles the codes 203, 204, 328 and 345."""

    def __init__(self, clients: ClientTable, clock: Clock) -> None:
        self.clients = clients
        self.clock = clock

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


def connected(client: Client) -> Connection:
    """One member of a group as tools show it."""
    return Connection(client.connection.address, client.client_id, client.language, client.version)
