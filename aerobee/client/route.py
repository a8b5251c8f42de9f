"""A topic's route: its queues, their brokers, and the brokers' addresses. Pure.

Source: client §2.2 (MQClientInstance.topicRouteData2TopicPublishInfo).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.client.send_result import MessageQueue
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.remoting.wire.bodies.route import TopicRouteData

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2
QUEUES_MAX = 65_536
"""Of one topic on one broker; no route or order setting makes a client list more."""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of a topic, computed from a name server's response.

    `to_publish` has only queues whose master is alive, `to_subscribe` all readable ones, both
    sorted; `brokers` maps a broker name to its addresses by broker id.
    """

    to_publish: tuple[MessageQueue, ...]
    to_subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    readable: tuple[MessageQueue, ...] = ()
    """All readable queues, whether or not the topic has order settings."""


def read_route(topic: str, data: TopicRouteData, queues_at_most: int | None = None) -> TopicRoute:
    """The route of `topic`, from route data.

    `queues_at_most` limits the queues per broker, for a topic that will be created from the
    template topic of `data`.
    """
    brokers = {b.broker_name: dict(b.broker_addrs) for b in data.broker_datas if b.broker_addrs}
    limit = queues_at_most if queues_at_most is not None else 1 << 30
    readable = _readable_queues(topic, data, limit)
    if data.order_topic_conf:
        queues = _ordered(topic, data.order_topic_conf)
        return TopicRoute(queues, queues, brokers, readable)
    publish: list[MessageQueue] = []
    for q in sorted(data.queue_datas, key=lambda q: q.broker_name):
        name = q.broker_name
        if q.perm & PERM_WRITE and MASTER_ID in brokers.get(name, {}):
            publish += _queues(topic, name, min(limit, q.write_queue_nums))
    return TopicRoute(tuple(publish), readable, brokers, readable)


def in_order(by_id: Mapping[int, str]) -> tuple[str, ...]:
    """The addresses of a broker: the master's first, then the slaves' by number."""
    return tuple(by_id[broker_id] for broker_id in sorted(by_id, key=lambda n: (n != MASTER_ID, n)))


def _readable_queues(
    topic: str, data: TopicRouteData, queues_at_most: int
) -> tuple[MessageQueue, ...]:
    queues: list[MessageQueue] = []
    for q in sorted(data.queue_datas, key=lambda q: q.broker_name):
        if q.perm & PERM_READ:
            queues += _queues(topic, q.broker_name, min(queues_at_most, q.read_queue_nums))
    return tuple(queues)


def _queues(topic: str, broker_name: str, count: int) -> Sequence[MessageQueue]:
    return [
        MessageQueue(topic, broker_name, queue_id) for queue_id in range(min(count, QUEUES_MAX))
    ]


def _ordered(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """The queues of order settings such as `broker-a:4;broker-b:4`."""
    queues: list[MessageQueue] = []
    for part in conf.split(";"):
        name, _, count = part.partition(":")
        queues += _queues(topic, name, whole_number(count) or 0)
    return tuple(queues)
