"""What a broker says of itself: offsets by queue, who is connected, figures over time.

Maps whose keys are queues are written as Java writes them, which is no JSON. Source: admin §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.heartbeat import SubscriptionData  # noqa: TC001  (msgspec reads it)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.remoting.wire.bodies.queue_lock import MessageQueue

__all__ = [
    "BrokerStatsData",
    "Connection",
    "ConsumerConnection",
    "OffsetWrapper",
    "ProducerConnection",
    "StatsSnapshot",
    "TopicOffset",
    "by_queue",
    "consume_stats",
    "topic_stats",
]

_encode = msgspec.json.Encoder(order="sorted").encode


class TopicOffset(msgspec.Struct, rename="camel"):
    """One queue: its first and next offset, and when its last message was stored, in ms."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class OffsetWrapper(msgspec.Struct, rename="camel"):
    """One queue of a group: its end, how far the group is, when that message was stored, in ms."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int


def topic_stats(queues: Iterable[bytes], put_tps: float) -> bytes:
    """Body of GET_TOPIC_STATS_INFO (TopicStatsTable); each queue as `by_queue` gives it."""
    return b'{"offsetTable":{%b},"topicPutTps":%b}' % (b",".join(queues), _encode(put_tps))


def consume_stats(queues: Iterable[bytes], consume_tps: float) -> bytes:
    """Body of GET_CONSUME_STATS (ConsumeStats); each queue as `by_queue` gives it."""
    return b'{"consumeTps":%b,"offsetTable":{%b}}' % (_encode(consume_tps), b",".join(queues))


def by_queue(queue: MessageQueue, value: TopicOffset | OffsetWrapper) -> bytes:
    """One entry of a map whose keys are objects."""
    return _encode(queue) + b":" + _encode(value)


class Connection(Body, msgspec.Struct, rename="camel"):
    """One connected client."""

    client_addr: str
    client_id: str
    language: str
    version: int


class ProducerConnection(Body, msgspec.Struct, rename="camel"):
    """The members of a producer group."""

    connection_set: list[Connection]


class ConsumerConnection(Body, msgspec.Struct, rename="camel"):
    """The members of a consumer group, and what they agreed on."""

    connection_set: list[Connection]
    consume_from_where: str
    consume_type: str
    message_model: str
    subscription_table: dict[str, SubscriptionData]


class StatsSnapshot(msgspec.Struct, rename="camel"):
    """A counter over a window: its growth, per second, and per message."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, msgspec.Struct, rename="camel"):
    """Body of VIEW_BROKER_STATS_DATA."""

    stats_minute: StatsSnapshot
    stats_hour: StatsSnapshot
    stats_day: StatsSnapshot
