"""Random groups and topics for the allocation strategies, and the strategy behind a Java name."""

from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

from aerobee.allocation import Allocator, machine_room, machine_room_nearby, strategy
from aerobee.client.send_result import MessageQueue

NAMES = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "MACHINE_ROOM",
    "NEARBY-AVG",
    "NEARBY-AVG_BY_CIRCLE",
)
ROOMS = "east north"
"""The rooms that the strategy MACHINE_ROOM is told."""


class Case(NamedTuple):
    """A strategy, sorted queues as `topic/broker/id`, and sorted client ids, both with blanks."""

    strategy: str
    queues: str
    members: str
    rooms: str = ROOMS


def random_case(name: str, random: Random) -> Case:
    """Any group and topic; rooms stand where the strategy looks for them."""
    sign = "@" if name == "MACHINE_ROOM" else "-"
    brokers = [f"{random.choice(('east', 'north', 'west'))}{sign}{n}" for n in range(3)]
    queues = sorted(
        MessageQueue("Topic", broker, n) for broker in brokers for n in range(random.randint(1, 9))
    )
    members = {
        f"{random.choice(ROOMS.split())}-10.0.0.{random.randint(1, 250)}@{random.getrandbits(9)}"
        for _ in range(random.randint(1, 9))
    }
    return Case(name, " ".join(map(str, queues)), " ".join(sorted(members)))


def named(name: str) -> Allocator:
    """The strategy that Java knows by this name; rooms are what stands before the first dash."""
    if name == "MACHINE_ROOM":
        return machine_room(*ROOMS.split())
    if name.startswith("NEARBY-"):
        return machine_room_nearby(
            name.removeprefix("NEARBY-"),
            lambda queue: queue.broker_name.split("-")[0],
            lambda client_id: client_id.split("-")[0],
        )
    return strategy(name)


def shares(case: Case) -> list[str]:
    """What each member gets, as Java's driver says it."""
    queues = []
    for text in case.queues.split():
        topic, broker, number = text.split("/")
        queues.append(MessageQueue(topic, broker, int(number)))
    members = case.members.split()
    return [
        " ".join(map(str, named(case.strategy)("g", member, queues, members))) for member in members
    ]


def ring_of_go(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """What the Go client's CONSISTENT_HASH gives with 10 positions of each member.

    Its ring is another one than Java's: CRC-32, and the next position after that of the queue.
    """
    del group
    ring = {crc32(f"{n}{one}".encode()): one for one in client_ids for n in range(10)}
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        topic, broker, number = queue
        name = f"MessageQueue [topic={topic}, brokerName={broker}, queueId={number}]"
        return ring[places[bisect_right(places, crc32(name.encode())) % len(places)]]

    return [queue for queue in queues if owner(queue) == client_id]
