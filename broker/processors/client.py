"""Who is there: heartbeats and good-byes, members of a group, queue locks.

Registers in the tables and tells the members of a group when its members or topics changed, so that
they share the queues out again. Source: remoting §3.9, semantics §2, §12 (ClientManageProcessor,
ConsumerManageProcessor, AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from broker.errors import Refused
from broker.tables.clients import BROADCASTING, Client, is_tag_type, subscription_of
from remoting.wire.answer import Answer
from remoting.wire.bodies.client_config import CheckClientConfigBody
from remoting.wire.bodies.consumer_list import ConsumerList
from remoting.wire.bodies.heartbeat import HeartbeatData
from remoting.wire.bodies.queue_lock import LockBatchRequest, LockBatchResponse, MessageQueue
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.headers import client as headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tables.clients import ClientConnection, ClientTable
    from broker.tables.groups import GroupTable, SubscriptionGroupConfig
    from broker.tables.queue_locks import QueueLockTable
    from broker.tables.topics import TopicTable
    from remoting.server.connection import Connection
    from remoting.wire.bodies.heartbeat import ConsumerData
    from remoting.wire.command import Command
    from store.files.disk import Clock

__all__ = ["ClientProcessor"]

DONE: Final = Answer()
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"

log = structlog.stdlib.get_logger("aerobee.broker")


class ClientProcessor:
    """Codes 34, 35, 38, 41, 42 and 46, and what happens when a connection closes or goes silent."""

    def __init__(
        self,
        *,
        clients: ClientTable,
        groups: GroupTable,
        topics: TopicTable,
        locks: QueueLockTable[MessageQueue],
        clock: Clock,
        notify_enabled: Callable[[], bool] = lambda: True,
        reject_pull_consumers: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clients = clients
        self.groups = groups
        self.topics = topics
        self.locks = locks
        self.clock = clock
        self.notify_enabled = notify_enabled
        self.reject_pull_consumers = reject_pull_consumers

    def monotonic_ms(self) -> int:
        """The clock of the client and lock tables."""
        return int(self.clock.monotonic() * 1000)

    # -- heartbeats ------------------------------------------------------------------------------

    def heartbeat(
        self, header: headers.Heartbeat, command: Command, connection: Connection
    ) -> Answer:
        """HEART_BEAT: note the producers and consumers of a connection.

        The answer says whether the client must send its subscriptions in full next time.
        """
        data = HeartbeatData.from_bytes(command.body)
        client = Client(
            connection, data.client_id, str(command.language), command.version, self.monotonic_ms()
        )
        subscriptions_wanted = False
        for consumer in data.consumer_data_set:
            subscriptions_wanted |= self.register(consumer, client, data)
        for producer in data.producer_data_set:
            self.clients.register_producer(producer.group_name, client)
        if not data.heartbeat_fingerprint:
            subscriptions_wanted = True
        return Answer(
            header=headers.HeartbeatResponse(
                is_support_heart_beat_v2=True, is_sub_change=subscriptions_wanted
            )
        )

    def register(self, consumer: ConsumerData, client: Client, data: HeartbeatData) -> bool:
        """One consumer group of a heartbeat; whether its subscriptions are wanted in full.

        A group that may not exist is passed over in silence.
        """
        name = consumer.group_name
        if self.reject_pull_consumers() and consumer.consume_type == CONSUME_ACTIVELY:
            return False
        config = self.groups.find(name, self.clock.now_ms())
        if config is None:
            return False
        self.make_retry_topic(consumer, config)
        fingerprint = data.heartbeat_fingerprint
        full = not (fingerprint and data.without_sub)
        changed = self.clients.register_consumer(
            name,
            client,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=[subscription_of(item) for item in consumer.subscription_data_set]
            if full
            else None,
        )
        if changed:
            log.info("group.changed", group=name, client_id=client.client_id)
            if config.notify_consumer_ids_changed_enable and consumer.message_model != BROADCASTING:
                self.notify(name)
        if not fingerprint:
            return False
        differs = self.clients.fingerprint_differs(name, fingerprint)
        entry = self.clients.group(name)
        # After a restart a heartbeat without subscriptions finds none stored. The Java broker
        # answers "unchanged" then, and the subscription stays unknown for good.
        return differs or entry is None or not entry.subscribed

    def make_retry_topic(self, consumer: ConsumerData, config: SubscriptionGroupConfig) -> None:
        """The group's retry topic: clients ask for its route right after the heartbeat."""
        ordered = any(
            topic is not None and topic.order
            for topic in (self.topics.get(item.topic) for item in consumer.subscription_data_set)
        )
        self.topics.for_group(
            consumer.group_name,
            config.retry_queue_nums,
            self.clock.now_ms(),
            order=ordered,
            unit_mode=consumer.unit_mode,
        )

    # -- leaving ---------------------------------------------------------------------------------

    def unregister(
        self, header: headers.UnregisterClient, command: Command, connection: Connection
    ) -> Answer:
        """UNREGISTER_CLIENT: the sending connection leaves the named groups."""
        if header.producer_group:
            self.clients.leave_producers(connection.id, header.producer_group)
        if header.consumer_group:
            self.clients.leave_consumers(connection.id, header.consumer_group)
            self.notify_rest(header.consumer_group)
        return DONE

    def connection_closed(self, connection: ClientConnection) -> None:
        """A connection is gone, for whatever reason: out of every group, and the rest is told."""
        for group in self.clients.leave_all(connection.id):
            log.info("group.changed", group=group, address=connection.address)
            self.notify_rest(group)

    def expire(self, timeout_ms: int) -> None:
        """Close the connections whose heartbeats stopped, as if their clients had left."""
        for connection in self.clients.expired(self.monotonic_ms(), timeout_ms):
            log.info("client.expired", address=connection.address, timeout_ms=timeout_ms)
            connection.close("no heartbeat in time")
            self.connection_closed(connection)

    def notify_rest(self, group: str) -> None:
        """Tell who is left in a group, unless the group does not want to be told."""
        config = self.groups.get(group)
        if config is not None and config.notify_consumer_ids_changed_enable:
            self.notify(group)

    def notify(self, group: str) -> None:
        """NOTIFY_CONSUMER_IDS_CHANGED to every member."""
        entry = self.clients.group(group)
        if entry is None or not self.notify_enabled():
            return
        header = headers.NotifyConsumerIdsChanged(consumer_group=group)
        for connection in entry.connections():
            connection.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    # -- questions -------------------------------------------------------------------------------

    def consumer_list(
        self, header: headers.GetConsumerListByGroup, command: Command, connection: Connection
    ) -> Answer:
        """GET_CONSUMER_LIST_BY_GROUP: every member once, in an order that all see alike."""
        entry = self.clients.group(header.consumer_group)
        if entry is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )
        return Answer(body=ConsumerList(entry.client_ids()).to_bytes())

    def check_config(
        self, header: headers.CheckClientConfig, command: Command, connection: Connection
    ) -> Answer:
        """CHECK_CLIENT_CONFIG: whether a subscription's expression can be served."""
        subscription = CheckClientConfigBody.from_bytes(command.body).subscription_data
        if is_tag_type(subscription.expression_type):
            return DONE
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{subscription.expression_type}",
        )

    # -- queue locks -----------------------------------------------------------------------------

    def lock(self, header: headers.LockBatchMq, command: Command, connection: Connection) -> Answer:
        """LOCK_BATCH_MQ: take or renew the locks; the answer lists those held now."""
        request = LockBatchRequest.from_bytes(command.body)
        granted = self.locks.lock(
            request.consumer_group, request.client_id, request.mq_set, self.monotonic_ms()
        )
        return Answer(body=LockBatchResponse(granted).to_bytes())

    def unlock(
        self, header: headers.UnlockBatchMq, command: Command, connection: Connection
    ) -> Answer:
        """UNLOCK_BATCH_MQ: give back what the client holds of these."""
        request = LockBatchRequest.from_bytes(command.body)
        self.locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return DONE
