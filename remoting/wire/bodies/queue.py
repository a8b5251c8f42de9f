"""Queues: locks of them, and maps whose keys are queues, such as offsets.

In a map read here a key is the queue's own compact JSON; `queue_of` decodes it. How brokers write
theirs is in `statistics`; what consumers write is here. A map of a reset is Java's, whose keys are
objects: `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}`, without spaces, members
sorted. It is no JSON, and must not be: an array of pairs fails in every Java client. Source:
remoting §3.9, §3.11; admin §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.remoting.wire.header import I32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class MessageQueue(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One queue of one topic on one broker."""

    broker_name: str
    queue_id: I32
    topic: str


class LockBatchRequest(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResponse(Body, msgspec.Struct, rename="camel"):
    """The queues that the client holds a lock on."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


_encode = msgspec.json.Encoder(order="sorted").encode


def queue_of(key: str) -> MessageQueue:
    """The queue that a key of such a map stands for. Raises: BodyError."""
    return MessageQueue.from_bytes(key.encode())


def keyed_by_queue(table: Mapping[str, object]) -> msgspec.Raw:
    """A map with queues as keys in Java's form: its keys are objects."""
    entries = (key.encode() + b":" + _encode(value) for key, value in table.items())
    return msgspec.Raw(b"{%b}" % b",".join(entries))


class QueueRange(msgspec.Struct, rename="camel", kw_only=True):
    """One queue: its first and next offset, and when its last message was stored, in ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_TOPIC_STATS_INFO."""

    offset_table: dict[str, QueueRange] = {}


class GroupProgress(msgspec.Struct, rename="camel", kw_only=True):
    """One queue of a group: its max offset, the group's offset, when that message was stored, in
    ms.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int | None = None
    """4.9 does not send it."""
    last_timestamp: int = 0


class ConsumeStats(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_CONSUME_STATS."""

    offset_table: dict[str, GroupProgress] = {}
    consume_tps: float = 0.0
    lag_history: dict[str, list[tuple[int, int]]] | None = None
    """Aerobee's own: for each topic times in ms and the lag in messages then. None: not kept."""


class ConsumeStatsList(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_BROKER_CONSUME_STATS: for each group the stats of each of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []


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
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One queue inside a POP consumer."""

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

    def to_bytes(self) -> bytes:
        """The body in Java's form."""
        members = {
            "jstack": self.jstack,
            "mqPopTable": keyed_by_queue(self.mq_pop_table),
            "mqTable": keyed_by_queue(self.mq_table),
            "properties": self.properties,
            "statusTable": self.status_table,
            "subscriptionSet": self.subscription_set,
            "userConsumerInfo": self.user_consumer_info,
        }
        return _encode(members)


class ConsumerStatus(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_CONSUMER_STATUS_FROM_CLIENT: the offset of a consumer in each queue."""

    message_queue_table: dict[str, int] = {}

    def to_bytes(self) -> bytes:
        """The body in Java's form."""
        table = keyed_by_queue(self.message_queue_table)
        return _encode({"consumerTable": {}, "messageQueueTable": table})


class ConsumeMessageDirectlyResult(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of CONSUME_MESSAGE_DIRECTLY: the result of the listener for one message."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str
    """CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION."""
    remark: str | None = None
    spent_time_mills: int


def offset_row(queue: MessageQueue, offset: int) -> bytes:
    """One row of an `offset_table`."""
    return _encode(queue) + b":%d" % offset


def offset_table(rows: Iterable[bytes]) -> bytes:
    """Body of RESET_CONSUMER_CLIENT_OFFSET and of the answer to 222 (ResetOffsetBody)."""
    return b'{"offsetTable":{' + b",".join(rows) + b"}}"


def offset_row_for_cpp(queue: MessageQueue, offset: int) -> bytes:
    """One row of an `offset_table_for_cpp`."""
    return _encode(
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
    )


def offset_table_for_cpp(rows: Iterable[bytes]) -> bytes:
    """A table of offsets in the only form that the C++ client reads (ResetOffsetBodyForC)."""
    return b'{"offsetTable":[' + b",".join(rows) + b"]}"


class QueueUnit(msgspec.Struct, rename="camel", kw_only=True):
    """One unit, and whether the group's subscription matches its tags code (`eval`)."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = True


class QueueUnits(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Units of a queue with its bounds, and what the group subscribed to, if one was named."""

    min_queue_index: int
    max_queue_index: int
    queue_data: list[QueueUnit]
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
