"""Connected clients: heartbeats and unregistrations, members of a group, queue locks.

Updates the tables, and when the members or topics of a group change, has its members notified so
that they rebalance. Source: remoting §3.9, semantics §2, §12 (ClientManageProcessor,
ConsumerManageProcessor, AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.consumers.clients import BROADCASTING, Client, subscription_of
from aerobee.broker.errors import PropertyFilterOff, Refusal
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import TAGS_CHARS_MAX, filter_of, is_tag_type
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import CheckClientConfigBody, ConsumerList, HeartbeatData
from aerobee.remoting.wire.bodies.queue import LockBatchRequest, LockBatchResponse, MessageQueue
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import client as headers
from aerobee.store.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.broker.consumers.clients import ClientConnection, Subscription
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.filters.consumer_filters import Compilation
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.wire.bodies.client import ConsumerData
    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock

DONE: Final = Answer()
SHOWN_CHARACTERS: Final = 100
"""How much of an invalid text a log line shows."""
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"
TAGS_MAX: Final = 2_048
"""Tags, and codes of tags, that a subscription may list beside its expression."""

log = structlog.stdlib.get_logger(__name__)


class ClientProcessor:
    """Codes 34, 35, 38, 41, 42 and 46, and the end of silent or closed connections."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        tables: ConsumerTables,
        topics: TopicTable,
        clock: Clock,
        changed: Callable[[str], None],
    ) -> None:
        self.options = options
        self.clients = tables.clients
        self.groups = tables.groups
        self.locks = tables.locks
        self.filters = tables.filters
        self.compensation = tables.compensation
        self.topics = topics
        self.clock = clock
        self.changed = changed

    # ── Heartbeats ──

    def heartbeat(
        self, header: headers.Heartbeat, command: Command, connection: Connection
    ) -> Generator[None, None, Answer]:
        """HEART_BEAT: register the producers and consumers of a connection, group by group: one
        heartbeat may have a thousand.

        The answer says whether the client must send its subscriptions in full next time.
        """
        data = HeartbeatData.from_client(command.body)
        self.check_fits(data, connection)
        client = Client(
            connection,
            data.client_id,
            str(command.language),
            command.version,
            monotonic_ms(self.clock),
        )
        subscriptions_wanted = False
        for consumer in data.consumer_data_set:
            subscriptions_wanted |= yield from self.register(consumer, client, data)
            yield
        for producer in data.producer_data_set:
            self.clients.register_producer(producer.group_name, client)
            yield
        if not data.heartbeat_fingerprint:
            subscriptions_wanted = True
        return Answer(
            header=headers.HeartbeatResponse(
                is_support_heart_beat_v2=True, is_sub_change=subscriptions_wanted
            )
        )

    def check_fits(self, data: HeartbeatData, connection: ClientConnection) -> None:
        """Check that all of a heartbeat fits: it is applied whole or not at all. Raises:
        Refusal.
        """
        for consumer in data.consumer_data_set:
            self.clients.check_subscriptions(
                consumer.group_name, len(consumer.subscription_data_set)
            )
            check_expressions(consumer)
        consumers = {consumer.group_name for consumer in data.consumer_data_set}
        self.clients.check_id(data.client_id, connection, consumers)
        producers = {producer.group_name for producer in data.producer_data_set}
        self.clients.check_room(connection.id, consumers, producers)
        self.groups.check_new(consumers, self.clock.now_ms())
        self.topics.check_group_room(group for group in consumers if self.has_retries(group))

    def has_retries(self, group: str) -> bool:
        """Whether a group needs its retry topic; a group that does not exist yet does."""
        config = self.groups.get(group)
        return config is None or config.retry_queue_nums > 0

    def register(
        self, consumer: ConsumerData, client: Client, data: HeartbeatData
    ) -> Generator[None, None, bool]:
        """Register one consumer group of a heartbeat; whether its subscriptions are needed in full.

        A group that may not be created is ignored. Its filters are read in steps, some milliseconds
        each; then all of it is registered in one.
        """
        name = consumer.group_name
        if self.options.reject_pull_consumer_enable and consumer.consume_type == CONSUME_ACTIVELY:
            return False
        fingerprint = data.heartbeat_fingerprint
        full = not (fingerprint and data.without_sub)
        subscriptions: list[Subscription] | None = None
        compiled: Compilation = {}
        if full:
            subscriptions = yield from read_subscriptions(consumer)
            compiled = yield from self.filters.compiled(name, consumer.subscription_data_set)
        config = self.groups.find(name, self.clock.now_ms())
        if config is None:
            return False
        self.make_retry_topic(consumer, config)
        changed = self.clients.register_consumer(
            name,
            client,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=subscriptions,
        )
        if full:
            self.register_filters(consumer, compiled)
        if changed:
            self.group_changed(name, client_id=client.client_id)
            if config.notify_consumer_ids_changed_enable and consumer.message_model != BROADCASTING:
                self.changed(name)
        if not fingerprint:
            return False
        differs = self.clients.fingerprint_differs(name, fingerprint)
        entry = self.clients.group(name)
        # After a restart no subscriptions are stored for a heartbeat that leaves them out. The Java
        # broker answers "unchanged" then, and the subscription stays unknown for good.
        return differs or entry is None or not entry.subscribed

    def register_filters(self, consumer: ConsumerData, compiled: Compilation) -> None:
        """Register the subscriptions of a group that are not by tags."""
        group = consumer.group_name
        for reason in self.filters.register(
            group, consumer.subscription_data_set, self.clock.now_ms(), compiled
        ):
            log.warning("filter.refused", group=group, reason=reason)

    def make_retry_topic(self, consumer: ConsumerData, config: SubscriptionGroupConfig) -> None:
        """Create the group's retry topic: clients ask for its route right after the heartbeat."""
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

    # ── Leaving ──

    def unregister(
        self, header: headers.UnregisterClient, command: Command, connection: Caller
    ) -> Answer:
        """UNREGISTER_CLIENT: the sending connection leaves the named groups."""
        if header.producer_group:
            self.clients.leave_producers(connection.id, header.producer_group)
        if header.consumer_group:
            self.clients.leave_consumers(connection.id, header.consumer_group)
            self.left(header.consumer_group)
        return DONE

    def connection_closed(self, connection: ClientConnection) -> None:
        """A connection was closed: remove it from every group, and notify the other members."""
        for group in self.clients.leave_all(connection.id):
            self.group_changed(group, address=connection.address)
            self.left(group)

    def left(self, group: str) -> None:
        """A member has left: notify the others; without others, mark the group's filters dead."""
        if self.clients.group(group) is None:
            self.filters.group_gone(group, self.clock.now_ms())
        self.notify_rest(group)

    def group_changed(self, group: str, **who: str) -> None:
        """Notify the members of a group that gained or lost a member, or whose topics changed."""
        log.info("group.changed", group=group, **who)

    def expire(self, timeout_ms: int) -> Iterator[None]:
        """Close the connections whose heartbeats stopped, as if their clients had left.

        Also expire what departed consumers left behind. Others may run at each yield.
        """
        self.filters.forget_dead(self.clock.now_ms())
        yield
        yield from self.compensation.expire(
            monotonic_ms(self.clock), self.options.subscription_expired_timeout_ms
        )
        for connection in self.clients.expired(monotonic_ms(self.clock), timeout_ms):
            if connection is not None:
                self.close_silent(connection, timeout_ms)
            yield

    def close_silent(self, connection: ClientConnection, timeout_ms: int) -> None:
        """Close a connection whose heartbeats stopped; it may be closed already."""
        if not self.clients.knows(connection.id):
            return
        log.info("client.expired", address=connection.address, timeout_ms=timeout_ms)
        connection.close("no heartbeat in time")
        self.connection_closed(connection)

    def notify_rest(self, group: str) -> None:
        """Notify the remaining members of a group, unless the group disables that."""
        config = self.groups.get(group)
        if config is not None and config.notify_consumer_ids_changed_enable:
            self.changed(group)

    # ── Questions ──

    def consumer_list(
        self, header: headers.GetConsumerListByGroup, command: Command, connection: Caller
    ) -> Answer:
        """GET_CONSUMER_LIST_BY_GROUP: every member once, in an order that all see alike."""
        entry = self.clients.group(header.consumer_group)
        if entry is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )
        if not entry.list_body:
            entry.list_body = ConsumerList(entry.client_ids()).to_bytes()
        return Answer(body=entry.list_body)

    def check_config(
        self, header: headers.CheckClientConfig, command: Command, connection: Caller
    ) -> Answer:
        """CHECK_CLIENT_CONFIG: whether the expression of a subscription is supported."""
        request = CheckClientConfigBody.from_client(command.body)
        subscription = request.subscription_data
        if is_tag_type(subscription.expression_type):
            return DONE
        if not self.options.enable_property_filter:
            raise PropertyFilterOff(subscription.expression_type)
        parsed = filter_of(subscription.expression_type, subscription.sub_string)
        if isinstance(parsed, SqlFilter) and parsed.ignored:
            log.warning(
                "filter.text_ignored",
                group=request.group,
                topic=subscription.topic,
                ignored=parsed.ignored[:SHOWN_CHARACTERS],
            )
        return DONE

    # ── Queue locks ──

    def lock(self, header: headers.LockBatchMq, command: Command, connection: Caller) -> Answer:
        """LOCK_BATCH_MQ: take or renew the locks; the answer lists those held now.

        Only existing queues of this broker can be locked, by known groups.
        """
        request = LockBatchRequest.from_client(command.body)
        self.clients.check_id(request.client_id, connection, [request.consumer_group])
        if self.groups.find(request.consumer_group, self.clock.now_ms()) is None:
            return Answer(body=LockBatchResponse().to_bytes())
        granted = self.locks.lock(
            request.consumer_group,
            request.client_id,
            [queue for queue in request.mq_set if self.is_ours(queue)],
            monotonic_ms(self.clock),
        )
        return Answer(body=LockBatchResponse(granted).to_bytes())

    def is_ours(self, queue: MessageQueue) -> bool:
        """Whether this broker has the queue."""
        topic = self.topics.get(queue.topic)
        return (
            topic is not None
            and queue.broker_name == self.options.broker_name
            and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
        )

    def unlock(self, header: headers.UnlockBatchMq, command: Command, connection: Caller) -> Answer:
        """UNLOCK_BATCH_MQ: release the client's locks on these queues."""
        request = LockBatchRequest.from_client(command.body)
        self.clients.check_id(request.client_id, connection, [request.consumer_group])
        self.locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return DONE


def read_subscriptions(
    consumer: ConsumerData,
) -> Generator[None, None, list[Subscription]]:
    """The subscriptions of a group, one in each step: the tags of one may take milliseconds."""
    subscriptions = []
    for item in consumer.subscription_data_set:
        subscriptions.append(subscription_of(item))
        yield
    return subscriptions


def check_expressions(consumer: ConsumerData) -> None:
    """Check that no expression is longer than a pull's may be. Raises: Refusal."""
    for item in consumer.subscription_data_set:
        listed = max(len(item.code_set), len(item.tags_set))
        if (
            listed > TAGS_MAX
            or len(item.sub_string) > TAGS_CHARS_MAX
            or sum(map(len, item.tags_set)) > TAGS_CHARS_MAX
        ):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the subscription of group {consumer.group_name[:SHOWN_CHARACTERS]} on topic"
                f" {item.topic[:SHOWN_CHARACTERS]} is too long: {TAGS_CHARS_MAX} characters and"
                f" {TAGS_MAX} tags are taken",
            )
