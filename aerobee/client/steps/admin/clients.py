"""Connected clients, and the running info of consumers.

Source: admin §3 (consumerConnection, producer, consumerStatus), §4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.admin import (
    ClientConnection,
    ConsumerConnections,
    DirectResult,
    GroupSubscription,
    PoppedQueue,
    RunningInfo,
    RunningQueue,
    RunningTopic,
)
from aerobee.client.steps.admin.brokers import ask, at_each, masters
from aerobee.client.steps.admin.topics import instant
from aerobee.client.steps.answers import header_of, request_name
from aerobee.client.wire_queues import from_wire
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConsumerNotOnlineError,
    TransportError,
)
from aerobee.remoting.wire.bodies.client import ProducerTableInfo
from aerobee.remoting.wire.bodies.queue import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    queue_of,
)
from aerobee.remoting.wire.bodies.statistics import ConsumerConnection, ProducerConnection
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import (
    CloseClient,
    CloseClientResponse,
    ConsumeMessageDirectly,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetProducerConnectionList,
)
from aerobee.remoting.wire.version import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.admin.brokers import Broker, Exchange
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.bodies.client import SubscriptionData
    from aerobee.remoting.wire.bodies.statistics import Connection

FORWARDED_WITHIN_S = 12.0
"""The timeout of forwarded requests: brokers wait 10 s for a client's response."""
MEMBER_S = 4.0
"""The timeout of one member of many: who looks at a group waits for all of them."""
SILENT_MAX = 3
"""The number of silent members after which no more are asked."""


def consumers(routes: Routes, group: str) -> Steps[ConsumerConnections]:
    """The connected members of a consumer group, each once; empty if none is online.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    members: dict[str, ClientConnection] = {}
    table: ConsumerConnection | None = None
    for target in (yield from masters(routes)):
        answered = yield from consumers_at(routes, target, group)
        if answered is not None:
            table = answered
            for member in connections(table.connection_set, target.name):
                members.setdefault(member.client_id, member)
    if table is None:
        return ConsumerConnections(group=group)
    return ConsumerConnections(
        group=group,
        members=[members[client_id] for client_id in sorted(members)],
        consume_type=table.consume_type,
        message_model=table.message_model,
        consume_from=table.consume_from_where,
        subscriptions=subscriptions(table.subscription_table.values()),
    )


def consumers_at(routes: Routes, target: Broker, group: str) -> Steps[ConsumerConnection | None]:
    """The connections of a consumer group at one broker; None if no member is online there.

    Raises: BrokerError, TransportError.
    """
    header = GetConsumerConnectionList(consumer_group=group)
    answered = yield from ask(routes, target, header, accept=(ResponseCode.CONSUMER_NOT_ONLINE,))
    if answered.answer.code != ResponseCode.SUCCESS:
        return None
    return answered.body(ConsumerConnection)


def connections(table: Iterable[Connection], broker: str) -> list[ClientConnection]:
    """A broker's connections, as public values."""
    return [
        ClientConnection(
            client_id=connection.client_id,
            address=connection.client_addr.removeprefix("/"),
            language=connection.language,
            version=describe(connection.version),
            broker=broker,
        )
        for connection in table
    ]


def subscriptions(table: Iterable[SubscriptionData]) -> list[GroupSubscription]:
    """Subscriptions as public values, sorted by topic."""
    listed = [
        GroupSubscription(
            topic=subscription.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type or "TAG",
        )
        for subscription in table
    ]
    return sorted(listed, key=lambda subscription: subscription.topic)


def producers(routes: Routes, group: str) -> Steps[list[ClientConnection]]:
    """The connected members of a producer group, each once; empty if none is connected.

    Raises: BrokerNotFoundError, TransportError.
    """
    header = GetProducerConnectionList(producer_group=group)
    members: dict[str, ClientConnection] = {}
    for target in (yield from masters(routes)):
        # An unknown group has the same code as any other failure.
        answered = yield from ask(routes, target, header, accept=(ResponseCode.SYSTEM_ERROR,))
        if answered.answer.code == ResponseCode.SUCCESS:
            body = answered.body(ProducerConnection)
            for member in connections(body.connection_set, target.name):
                members.setdefault(member.client_id, member)
    return [members[client_id] for client_id in sorted(members)]


def all_producers(routes: Routes) -> Steps[dict[str, list[ClientConnection]]]:
    """The members of every producer group, by group.

    Raises: UnsupportedRequestError, BrokerNotFoundError, BrokerError, TransportError.
    """
    members: dict[str, dict[str, ClientConnection]] = {}
    for target in (yield from masters(routes)):
        answered = yield from ask(routes, target, GetAllProducerInfo())
        for group, listed in answered.body(ProducerTableInfo).data.items():
            for producer in listed:
                member = ClientConnection(
                    client_id=producer.client_id,
                    address=producer.remote_ip.removeprefix("/"),
                    language=producer.language,
                    version=describe(producer.version),
                    broker=target.name,
                )
                members.setdefault(group, {}).setdefault(producer.client_id, member)
    return {
        group: [by_id[client_id] for client_id in sorted(by_id)]
        for group, by_id in sorted(members.items())
    }


def close_client(routes: Routes, client_id: str) -> Steps[dict[str, int]]:
    """Close every connection of a client to every broker; returns how many by broker.

    It may connect again, and most clients do so by themselves: disable its user, or pause its
    group, to keep it out. Raises: ConsumerNotOnlineError if it is connected to no broker;
    UnsupportedRequestError where a broker is not Aerobee's; BrokerError, TransportError.
    """
    if not client_id.strip():
        raise ConfigurationError("a client id is not empty")
    closed: dict[str, int] = {}
    refusals: list[Exchange] = []

    def close(target: Broker) -> Steps[None]:
        header = CloseClient(client_id=client_id)
        answered = yield from ask(routes, target, header, accept=(ResponseCode.SYSTEM_ERROR,))
        if answered.answer.code == ResponseCode.SUCCESS:
            done = header_of(answered.ask, answered.answer, CloseClientResponse)
            closed[target.name] = done.closed
        else:
            refusals.append(answered)

    yield from at_each((yield from masters(routes)), close)
    if not closed:
        answered = refusals[0]
        raise ConsumerNotOnlineError(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"no client with the id {client_id} is connected",
            answered.peer,
            answered.ask.address,
            request_name(answered.ask),
        )
    return closed


def running_info(
    routes: Routes,
    group: str,
    client_id: str,
    *,
    stacks: bool = False,
    within_s: float = FORWARDED_WITHIN_S,
) -> Steps[RunningInfo]:
    """The running info of a connected consumer; with `stacks` also the stacks of its threads.

    Raises: ConsumerNotOnlineError if it is connected to no broker, UnsupportedRequestError,
    BrokerError, TransportError.
    """
    header = GetConsumerRunningInfo(
        consumer_group=group, client_id=client_id, jstack_enable=stacks or None
    )
    refusal: BrokerError | None = None
    away: AerobeeError | None = None
    for target in (yield from masters(routes)):
        try:
            answered = yield from ask(routes, target, header, within_s=within_s)
        except (TransportError, BrokerNotFoundError) as error:
            away = error  # another one may have it
        except BrokerError as error:
            if error.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUMER_NOT_ONLINE):
                raise
            refusal = error
        else:
            return described(group, client_id, answered.body(ConsumerRunningInfo))
    if away is not None:
        raise away
    assert refusal is not None, "masters() gives at least one"
    raise ConsumerNotOnlineError(
        ResponseCode.CONSUMER_NOT_ONLINE,
        refusal.remark,
        refusal.broker,
        refusal.address,
        refusal.request,
    )


def described(group: str, client_id: str, info: ConsumerRunningInfo) -> RunningInfo:
    """A consumer's running info, as a public value."""
    return RunningInfo(
        group=group,
        client_id=client_id,
        properties=info.properties,
        subscriptions=subscriptions(info.subscription_set),
        queues=running_queues(info),
        topics=[
            RunningTopic(
                topic=topic,
                pull_tps=status.pull_tps,
                pull_ms=status.pull_rt,
                consume_ok_tps=status.consume_ok_tps,
                consume_failed_tps=status.consume_failed_tps,
                consume_ms=status.consume_rt,
                failed_last_hour=status.consume_failed_msgs,
            )
            for topic, status in sorted(info.status_table.items())
        ],
        stacks=info.jstack,
        popped=popped_queues(info),
    )


def running_queues(info: ConsumerRunningInfo) -> list[RunningQueue]:
    """The queues that are assigned to a consumer, sorted."""
    queues = []
    for key, process_queue in info.mq_table.items():
        queues.append(
            RunningQueue(
                queue=from_wire(queue_of(key)),
                commit_offset=process_queue.commit_offset,
                cached_messages=process_queue.cached_msg_count,
                cached_mib=process_queue.cached_msg_size_in_mi_b,
                locked=process_queue.locked,
                dropped=process_queue.droped,
                last_pulled_at=instant(process_queue.last_pull_timestamp),
                last_consumed_at=instant(process_queue.last_consume_timestamp),
                last_locked_at=instant(process_queue.last_lock_timestamp),
                cached_first=process_queue.cached_msg_min_offset,
                cached_last=process_queue.cached_msg_max_offset,
            )
        )
    return sorted(queues, key=lambda state: state.queue)


def popped_queues(info: ConsumerRunningInfo) -> list[PoppedQueue]:
    """The queues that a consumer pops from, sorted."""
    queues = [
        PoppedQueue(
            queue=from_wire(queue_of(key)),
            waiting_acks=pop_queue.wait_ack_count,
            dropped=pop_queue.droped,
            last_popped_at=instant(pop_queue.last_pop_timestamp),
        )
        for key, pop_queue in info.mq_pop_table.items()
    ]
    return sorted(queues, key=lambda state: state.queue)


def consume_directly(
    routes: Routes, group: str, message: ReceivedMessage, *, client_id: str | None = None
) -> Steps[DirectResult]:
    """Have a member of a group consume a stored message once more; offsets stay.

    The broker of the message forwards it to `client_id`, else to the first member. Raises:
    ConsumerNotOnlineError, BrokerNotFoundError, BrokerError, TransportError.
    """
    broker = message.queue.broker_name
    (target,) = yield from masters(routes, broker=broker)
    if client_id is None:
        online = yield from consumers(routes, group)
        if not online.members:
            code = ResponseCode.CONSUMER_NOT_ONLINE
            text = f"no member of group {group} is online"
            raise ConsumerNotOnlineError(code, text, broker, target.address, "consume directly")
        client_id = online.members[0].client_id
    header = ConsumeMessageDirectly(
        consumer_group=group,
        client_id=client_id,
        msg_id=message.offset_message_id,
        topic=message.topic,
    )
    answered = yield from ask(routes, target, header, within_s=FORWARDED_WITHIN_S)
    result = answered.body(ConsumeMessageDirectlyResult)
    return DirectResult(
        client_id=client_id,
        result=result.consume_result,
        remark=result.remark,
        took_ms=result.spent_time_mills,
    )
