"""Which queues each member of a group is to consume, worked out here instead of by every client.

Pure: sorted queues and sorted client ids in, queues out, the same for whoever works it out.
Source: semantics §11.2 (QueryAssignmentProcessor, AllocateMessageQueueAveragely).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remoting.wire.bodies.queue_lock import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ALL_QUEUES", "STRATEGIES", "shared"]

ALL_QUEUES: Final = -1
"""The queue id that stands for all of a broker's queues of a topic."""


def averagely(
    queues: Sequence[MessageQueue], clients: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """Runs of neighbours, the first ones longer by one where it does not come out even."""
    if client_id not in clients:
        return []
    place, many = clients.index(client_id), len(clients)
    size, longer = divmod(len(queues), many)
    begin = place * size + min(place, longer)
    return list(queues[begin : begin + size + (place < longer)])


def by_circle(
    queues: Sequence[MessageQueue], clients: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """Dealt out one by one."""
    if client_id not in clients:
        return []
    return list(queues[clients.index(client_id) :: len(clients)])


STRATEGIES: Final[dict[str, Callable[..., list[MessageQueue]]]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
}


def shared(
    allocate: Callable[..., list[MessageQueue]],
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    client_id: str,
    share: int,
) -> list[MessageQueue]:
    """The queues of one member that pops; `share` others work on each of them as well.

    With a share of 0 or less, or one that reaches everybody, each member pops from all brokers.
    """
    many = len(clients)
    if share <= 0 or share >= many - 1:
        brokers = {(queue.topic, queue.broker_name) for queue in queues}
        return [
            MessageQueue(broker_name=broker, queue_id=ALL_QUEUES, topic=topic)
            for topic, broker in sorted(brokers)
        ]
    if client_id not in clients:
        return []
    place = clients.index(client_id)
    if many > len(queues):
        return [queues[place % len(queues)]] if queues else []
    found: dict[MessageQueue, None] = {}
    for step in range(share + 1):
        found.update(dict.fromkeys(allocate(queues, clients, clients[(place + step) % many])))
    return list(found)
