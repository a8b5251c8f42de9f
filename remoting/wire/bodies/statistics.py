"""The bodies in which a broker reports about itself: offsets by queue, connected clients, figures
over time.

Maps whose keys are queues are written in Java's form, which is not JSON. Source: admin §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.remoting.wire.bodies.queue import MessageQueue  # noqa: TC001  (msgspec reads it)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_encode = msgspec.json.Encoder(order="sorted").encode


class TopicOffset(msgspec.Struct, rename="camel"):
    """One queue: its first and next offset, and when its last message was stored, in ms."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class OffsetWrapper(msgspec.Struct, rename="camel"):
    """One queue of a group: its max offset, the group's offset, when that message was stored, in
    ms.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int


def topic_stats(queues: Iterable[bytes], put_tps: float) -> bytes:
    """Body of GET_TOPIC_STATS_INFO (TopicStatsTable); each queue as `by_queue` gives it."""
    return b'{"offsetTable":{%b},"topicPutTps":%b}' % (b",".join(queues), _encode(put_tps))


def consume_stats(
    queues: Iterable[bytes],
    consume_tps: float,
    history: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> bytes:
    """Body of GET_CONSUME_STATS (ConsumeStats); each queue as `by_queue` gives it.

    `history` is Aerobee's own: for each topic times in ms and the lag in messages then.
    """
    more = b"" if history is None else b',"lagHistory":' + _encode(history)
    tps = _encode(consume_tps)
    return b'{"consumeTps":%b,"offsetTable":{%b}%b}' % (tps, b",".join(queues), more)


def broker_consume_stats(
    address: str, groups: Mapping[str, Sequence[bytes]], *, behind: int, in_flight: int
) -> bytes:
    """Body of GET_BROKER_CONSUME_STATS (ConsumeStatsList): a `consume_stats` for each topic.

    `behind` and `in_flight` count the messages of all of them.
    """
    each = [b"{%b:[%b]}" % (_encode(name), b",".join(stats)) for name, stats in groups.items()]
    return b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d}' % (
        _encode(address),
        b",".join(each),
        behind,
        in_flight,
    )


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
    """The members of a consumer group, and the settings they agree on."""

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


class ConsumeTimeSpan(msgspec.Struct, rename="camel", kw_only=True):
    """Store times of one queue, in ms, −1 where there is no message.

    Of the first and the last message, and of the last one that the group has consumed; `delay_time`
    is how long the next one has waited.
    """

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int = 0


class ConsumeTimeSpans(Body, msgspec.Struct, rename="camel"):
    """Body of QUERY_CONSUME_TIME_SPAN (QueryConsumeTimeSpanBody)."""

    consume_time_span_set: list[ConsumeTimeSpan]


class ConsumerSubscription(Body, msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Body of QUERY_SUBSCRIPTION_BY_CONSUMER; without a subscription no consumer is connected."""

    group: str
    topic: str = ""
    subscription_data: SubscriptionData | None = None


class HAClientRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A slave's side of the replication; of a master all of it is empty."""

    activated: bool = False
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str = ""
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0
    state: str = ""
    """Ours: searching, unreachable, following, stuck or diverged; empty from a Java slave."""
    problem: str = ""
    """Ours: why it does not follow, in words."""


class HAConnectionInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One slave, as its master sees it."""

    addr: str
    diff: int = 0
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_byte_in_second: int = 0
    lag_millis: int = 0
    """Ours: how long ago it had everything."""
    standing: str = ""
    """Ours: silent, follows, ahead or deleted; empty from a Java master."""


class GroupRecord(msgspec.Struct, rename="camel", kw_only=True):
    """Ours: who is the master of a group, as one of its members last heard of it."""

    epoch: int
    master: int
    sync_set: list[int]
    set_epoch: int
    unclean_epoch: int = 0
    held: bool = False
    """Whether some member's lease lasts."""
    member: int = 0
    """The member that says so."""
    served: bool = True
    """Whether this member has come to serve clients since it took the lease last; older ones do not
    say."""
    problem: str = ""
    """Why nobody can become the master, or is it: the decider does not answer, or what this member
    waits for. Empty: no reason is known."""
    damage: str = ""
    """Where the log of this member cannot be read; empty: nothing of it is known to be damaged."""
    unfit: str = ""
    """Why this member should not be the next master; empty: it may be."""
    read_to: int = 0
    """The present reading of the whole log is so far."""
    passes: int = 0
    """So often all of it was read since the start, without damage."""


class HARuntimeInfo(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_BROKER_HA_STATUS; the connections are those of slaves."""

    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionInfo] = []
    in_sync_slave_nums: int = 0
    master: bool = True
    master_commit_log_max_offset: int
    epoch: int = -1
    """Ours: the number of the latest change of the master; −1 from a Java broker."""
    broker_id: int = -1
    """Ours: the number that this broker has as a slave; −1 from a Java broker."""
    shadow: bool = False
    """Ours: a copy that no master counts."""
    ha_address: str = ""
    """Ours: where the log of this broker is copied, once it is the master."""
    record: GroupRecord | None = None
    """Ours: of a member of a group that decides on its master by itself."""
