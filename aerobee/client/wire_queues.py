"""Converts queues between the SDK's values and those of request bodies and offset files."""

from __future__ import annotations

from aerobee.client.send_result import MessageQueue
from aerobee.remoting.wire.bodies import queue as bodies


def from_wire(queue: bodies.MessageQueue) -> MessageQueue:
    """The SDK's queue for a queue in a body."""
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id)


def to_wire(queue: MessageQueue) -> bodies.MessageQueue:
    """The queue for a body, from the SDK's queue."""
    return bodies.MessageQueue(
        topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id
    )
