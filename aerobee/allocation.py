"""Strategies that assign queues to members: pure functions of (group, id, queues, all ids).

Every member of a group must run the same strategy over the same sorted lists; nothing else prevents
two members from consuming the same queue. The results are those of the Java client, so that members
in either language can share a group. Consumers name a strategy (`AVG`, `AVG_BY_CIRCLE`,
`CONSISTENT_HASH`) or pass a function. Source: client §8.2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import TypeAlias, TypeVar

from aerobee.client.send_result import MessageQueue
from aerobee.errors import ConfigurationError

__all__ = [
    "Allocator",
    "Nearby",
    "average",
    "by_config",
    "circle",
    "consistent_hash",
    "machine_room",
    "machine_room_nearby",
    "strategy",
]

T = TypeVar("T")
Allocator: TypeAlias = Callable[
    [str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]

VIRTUAL_NODES = 10
"""Positions of each member on the ring of `consistent_hash`."""


def average(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Assigns even runs of adjacent queues, one more to the first members (`AVG`, the default).

    The result is empty if the own id is not in the list. Source: client §8.2
    (AllocateMessageQueueAveragely).
    """
    del group
    if client_id not in client_ids:
        return []
    own = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    start = own * share + min(own, rest)
    return queues[start : start + share + (1 if own < rest else 0)]


def circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Assigns the queues one by one in turn (`AVG_BY_CIRCLE`).

    Source: client §8.2 (AllocateMessageQueueAveragelyByCircle).
    """
    del group
    if client_id not in client_ids:
        return []
    return queues[client_ids.index(client_id) :: len(client_ids)]


def consistent_hash(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Assigns by consistent hashing: few queues move with a member (`CONSISTENT_HASH`).

    Clients in languages other than Java use another ring. Source: client §8.2
    (AllocateMessageQueueConsistentHash, MD5Hash).
    """
    del group
    if client_id not in client_ids:
        return []
    ring = {
        _place(f"{client_id}-{n}"): client_id
        for client_id in client_ids
        for n in range(VIRTUAL_NODES)
    }
    places = sorted(ring)
    mine = []
    for queue in queues:
        topic, broker, number = queue
        place = _place(f"MessageQueue [topic={topic}, brokerName={broker}, queueId={number}]")
        if ring[places[bisect_left(places, place) % len(places)]] == client_id:
            mine.append(queue)
    return mine


def _place(key: str) -> int:
    """The position of a key on the ring."""
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def by_config(*queues: MessageQueue) -> Allocator:
    """Assigns these queues, if they exist, whatever the other members. Source: client §8.2."""

    def allocate(
        group: str, client_id: str, all_queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        del group, client_id, client_ids
        return [queue for queue in queues if queue in all_queues]

    return allocate


def machine_room(*rooms: str) -> Allocator:
    """Assigns the queues of brokers named `room@name` in one of these rooms, evenly.

    The remainder goes one by one to the first members. Source: client §8.2
    (AllocateMessageQueueByMachineRoom).
    """
    wanted = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        del group
        if client_id not in client_ids:
            return []
        own = client_ids.index(client_id)
        inside = [queue for queue in queues if _room(queue.broker_name) in wanted]
        share, rest = divmod(len(inside), len(client_ids))
        mine = inside[own * share : (own + 1) * share]
        return [*mine, inside[share * len(client_ids) + own]] if own < rest else mine

    return allocate


def _room(broker_name: str) -> str | None:
    """The room in `room@name`; None for a name of another form."""
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 and parts[1] else None


@dataclass(frozen=True, slots=True)
class Nearby:
    """The strategy that `machine_room_nearby` makes."""

    inner: Allocator
    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> Sequence[MessageQueue]:
        """The queues of one member."""
        if client_id not in client_ids:
            return []
        members = _by_room(client_ids, self.room_of_client)
        by_room = _by_room(queues, self.room_of_queue)
        own = self.room_of_client(client_id)
        mine: list[MessageQueue] = []
        if own in by_room:
            mine += self.inner(group, client_id, by_room.pop(own), members[own])
        for room in sorted(by_room.keys() - members.keys()):
            mine += self.inner(group, client_id, by_room[room], client_ids)
        return mine


def machine_room_nearby(
    inner: str | Allocator,
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> Nearby:
    """Assigns queues of a room to the members in it, by `inner`; of an empty room to all members.

    Raises: ConfigurationError; the strategy itself, for a queue or client without a room.
    Source: client §8.2 (AllocateMachineRoomNearby).
    """
    return Nearby(strategy(inner), room_of_queue, room_of_client)


def _by_room(things: Collection[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigurationError(f"{thing} has no machine room")
        rooms.setdefault(room, []).append(thing)
    return rooms


STRATEGIES: dict[str, Allocator] = {
    "AVG": average,
    "AVG_BY_CIRCLE": circle,
    "CONSISTENT_HASH": consistent_hash,
}


def strategy(chosen: str | Allocator) -> Allocator:
    """The function of a strategy name. Raises: ConfigurationError."""
    if not isinstance(chosen, str):
        return chosen
    if chosen not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise ConfigurationError(f"no allocation strategy {chosen!r}; there are: {known}")
    return STRATEGIES[chosen]
