"""Allocates queues to the members of a group, here instead of in every client.

Pure: sorted queues and sorted client ids in, queues out, the same wherever it is computed. Source:
semantics §11.2 (QueryAssignmentProcessor, AllocateMessageQueueAveragely).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.remoting.wire.bodies.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALL_QUEUES: Final = -1
"""The queue id that stands for all of a broker's queues of a topic."""


def averagely(queues: Sequence[MessageQueue], many: int, index: int) -> Sequence[MessageQueue]:
    """Contiguous ranges, the first ones longer by one where the division has a remainder."""
    size, longer = divmod(len(queues), many)
    begin = index * size + min(index, longer)
    return queues[begin : begin + size + (index < longer)]


def by_circle(queues: Sequence[MessageQueue], many: int, index: int) -> Sequence[MessageQueue]:
    """Round robin."""
    return queues[index::many]


Strategy: TypeAlias = "Callable[[Sequence[MessageQueue], int, int], Sequence[MessageQueue]]"
"""The queues of the member at `index` of `many`. Every queue is allocated once."""

STRATEGIES: Final[dict[str, Strategy]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def alone(
    allocate: Strategy, queues: Sequence[MessageQueue], clients: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """The queues of one member that pulls: no other member has them."""
    index = index_of(clients, client_id)
    return [] if index is None else list(allocate(queues, len(clients), index))


def index_of(clients: Sequence[str], client_id: str) -> int | None:
    """The index of a client among the sorted ids; None if it is not there."""
    index = bisect_left(clients, client_id)
    return index if index < len(clients) and clients[index] == client_id else None


def shared(
    allocate: Strategy,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    client_id: str,
    share: int,
) -> list[MessageQueue]:
    """The queues of one member that pops; `share` other members pop from each of them as well.

    With a share of 0 or less, or one that includes all members, each member pops from all brokers.
    """
    many = len(clients)
    if share <= 0 or share >= many - 1:
        brokers = {(queue.topic, queue.broker_name) for queue in queues}
        return [
            MessageQueue(broker_name=broker, queue_id=ALL_QUEUES, topic=topic)
            for topic, broker in sorted(brokers)
        ]
    index = index_of(clients, client_id)
    if index is None:
        return []
    if many > len(queues):
        return [queues[index % len(queues)]] if queues else []
    assigned: dict[MessageQueue, None] = {}
    for step in range(share + 1):
        assigned.update(dict.fromkeys(allocate(queues, many, (index + step) % many)))
    return list(assigned)
