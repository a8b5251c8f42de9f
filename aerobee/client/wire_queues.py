"""Queues as users hold them, and as bodies of requests and offset files have them."""

from __future__ import annotations

from aerobee.client.message import MessageQueue
from aerobee.remoting.wire.bodies import queue_lock

__all__ = ["from_wire", "to_wire"]


def from_wire(queue: queue_lock.MessageQueue) -> MessageQueue:
    """The queue of a body."""
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id)


def to_wire(queue: MessageQueue) -> queue_lock.MessageQueue:
    """The queue for a body."""
    return queue_lock.MessageQueue(
        topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id
    )
