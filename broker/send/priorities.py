"""The queue of a message with a priority: the higher the one, the higher the id of the other.

Properties alone decide, not the type of the topic. Source: grpc §8 (SendMessageProcessor,
TopicMessageType).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.timers.timer_properties import ASKS_FOR_TIME
from aerobee.store.format.priority import PRIORITY, priority_of

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHER_TYPES: Final = ASKS_FOR_TIME | {"DELAY", "__SHARDINGKEY"}
"""Properties that make a message one of another type, and the queue its own."""


def has_queue(properties: Mapping[str, str]) -> bool:
    """Whether the type of a message leaves no say to its priority: it is in order, is delayed, or
    ends with a transaction.
    """
    half = properties.get("TRAN_MSG", "").lower() == "true"
    return half or not OTHER_TYPES.isdisjoint(properties)


def place(properties: dict[str, str], queue_id: int, write_queues: int) -> int:
    """The queue of a message that asks for `queue_id`. Another type costs it its priority."""
    priority = priority_of(properties.get(PRIORITY))
    if priority is None:
        return queue_id
    if has_queue(properties):
        del properties[PRIORITY]
        return queue_id
    return min(priority, write_queues - 1) if write_queues > 0 else queue_id
