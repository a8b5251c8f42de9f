"""The running info of a consumer that the broker knows by itself: its subscriptions, and that it
pops any queue.

Consumers of remoting report it; those of gRPC know nothing of queues. Pure. Source: grpc §2.3,
§2.4.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo, MessageQueue, PopQueueInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aerobee.broker.grpc.translation.kept_handles import KeptHandle
    from aerobee.remoting.wire.bodies.client import HeartbeatData


def running_info(
    data: HeartbeatData,
    queues: Callable[[str], int],
    broker: str,
    held: Collection[KeptHandle],
) -> ConsumerRunningInfo:
    """The report. `queues` gives the number of a topic's queues to read, `held` are the messages
    that the consumer works on, as far as the broker hides them again by itself.
    """
    subscriptions = [
        subscription
        for consumer in data.consumer_data_set
        for subscription in consumer.subscription_data_set
    ]
    waiting = Counter((kept.topic, kept.first.receipt.queue_id) for kept in held)
    popped_ms: dict[str, int] = {}
    for kept in held:
        popped_ms[kept.topic] = max(popped_ms.get(kept.topic, 0), kept.first.receipt.pop_time)
    table = {}
    for subscription in subscriptions:
        topic = subscription.topic
        for number in range(queues(topic)):
            queue = MessageQueue(broker_name=broker, queue_id=number, topic=topic)
            table[queue.to_bytes().decode()] = PopQueueInfo(
                wait_ack_count=waiting[topic, number],
                last_pop_timestamp=popped_ms.get(topic, 0),
            )
    return ConsumerRunningInfo(subscription_set=subscriptions, mq_pop_table=table)
