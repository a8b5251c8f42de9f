"""Answers whose maps have queues as their keys, read: offsets of topics, groups, running consumers.

In a map read here a key is the queue's own compact JSON; `queue_of` reads that. How they are
written stands in `statistics`. Source: admin §2.
"""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.heartbeat import SubscriptionData  # noqa: TC001  (msgspec reads it)
from aerobee.remoting.wire.bodies.queue_lock import MessageQueue

__all__ = [
    "ConsumeStats",
    "ConsumeStatus",
    "ConsumerRunningInfo",
    "GroupProgress",
    "PopQueueInfo",
    "ProcessQueueInfo",
    "QueueRange",
    "ResetOffsets",
    "TopicStatsTable",
    "queue_of",
]


def queue_of(key: str) -> MessageQueue:
    """The queue that a key of such a map stands for. Raises: BodyError."""
    return MessageQueue.from_bytes(key.encode())


class QueueRange(msgspec.Struct, rename="camel", kw_only=True):
    """One queue: its first and next offset, and when its last message was stored, in ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_TOPIC_STATS_INFO."""

    offset_table: dict[str, QueueRange] = {}


class GroupProgress(msgspec.Struct, rename="camel", kw_only=True):
    """One queue of a group: its end, how far the group is, when that message was stored, in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int | None = None
    """4.9 does not say."""
    last_timestamp: int = 0


class ConsumeStats(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_CONSUME_STATS."""

    offset_table: dict[str, GroupProgress] = {}
    consume_tps: float = 0.0


class ResetOffsets(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of the answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[str, int] = {}


class ProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One queue inside a running consumer. `droped` is spelled so. Times in ms."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    locked: bool = False
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One queue inside a consumer that pops."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumeStatus(msgspec.Struct, rename="camel", kw_only=True):
    """One topic inside a running consumer. Rates are per second, times in ms."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_CONSUMER_RUNNING_INFO, as the consumer itself made it."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[str, ProcessQueueInfo] = {}
    mq_pop_table: dict[str, PopQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None
