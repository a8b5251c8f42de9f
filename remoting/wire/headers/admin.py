"""Administration of a broker: configuration, statistics, clients. Source: admin §4.2, §4.3, §6."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header


class GetBrokerConfig(Header):
    """GET_BROKER_CONFIG (26): every setting, as properties."""

    code = RequestCode.GET_BROKER_CONFIG


class GetBrokerConfigResponse(Header):
    """Which settings these are: the version of a table, as JSON."""

    version: str


class GetBrokerRuntimeInfo(Header):
    """GET_BROKER_RUNTIME_INFO (28): figures of the whole broker, by name."""

    code = RequestCode.GET_BROKER_RUNTIME_INFO


class GetTopicStatsInfo(Header):
    """GET_TOPIC_STATS_INFO (202): first and next offset of each queue."""

    code = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


class GetConsumerConnectionList(Header):
    """GET_CONSUMER_CONNECTION_LIST (203): the members of a consumer group."""

    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


class GetProducerConnectionList(Header):
    """GET_PRODUCER_CONNECTION_LIST (204): the members of a producer group."""

    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


class GetConsumeStats(Header):
    """GET_CONSUME_STATS (208): the offsets of a group. `topic_list`: `t1;t2;` limits it to
    these. `history` is Aerobee's own: the lag of the last hour too.
    """

    code = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    history: bool | None = None


class QueryTopicConsumeByWho(Header):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic."""

    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


class QueryTopicsByConsumer(Header):
    """QUERY_TOPICS_BY_CONSUMER (343): the topics that a group has offsets of."""

    code = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str


class ViewBrokerStatsData(Header):
    """VIEW_BROKER_STATS_DATA (315): one item over its last minute, hour and day."""

    code = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str
    stats_key: str


class UpdateBrokerConfig(Header):
    """UPDATE_BROKER_CONFIG (25); the settings are the body, as properties."""

    code = RequestCode.UPDATE_BROKER_CONFIG


class GetAllProducerInfo(Header):
    """GET_ALL_PRODUCER_INFO (328): the members of all producer groups."""

    code = RequestCode.GET_ALL_PRODUCER_INFO


class GetConsumerRunningInfo(Header):
    """GET_CONSUMER_RUNNING_INFO (307): a consumer's report of itself, relayed by the broker."""

    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class CloseClient(Header):
    """AEROBEE_CLOSE_CLIENT (900001): close every connection of a client id."""

    code = RequestCode.AEROBEE_CLOSE_CLIENT
    client_id: str


class CloseClientResponse(Header):
    """How many connections were closed."""

    closed: I32


class Promote(Header):
    """AEROBEE_PROMOTE (900002): make a slave the master of its group.

    `accepted`: names of reasons against it that the caller lets pass, joined by `;`. `offset`: the
    master itself asks, and has put nothing behind that.
    """

    code = RequestCode.AEROBEE_PROMOTE
    accepted: str | None = None
    offset: I64 | None = None


class PromoteResponse(Header):
    """The end of the log at that moment, and how often the master has changed so far."""

    max_offset: I64
    epoch: I64


class Switch(Header):
    """AEROBEE_SWITCH (900003): this master hands its role to a slave, and follows it.

    `to`: the listenPort of the slave, as `host:port`. `check_only`: say whether it would.
    """

    code = RequestCode.AEROBEE_SWITCH
    to: str
    check_only: bool | None = None


class SwitchResponse(Header):
    """The end of the log at that moment, how often the master has changed so far, and for how long
    sends were refused, in ms.
    """

    max_offset: I64
    epoch: I64
    paused_ms: I64


class Follow(Header):
    """AEROBEE_FOLLOW (900004): this slave follows another master from now on.

    `master`: its listenPort, as `host:port`. `check_only`: say whether it would. `cut`: give up
    what this log has and that of the master has not, with the next start.
    """

    code = RequestCode.AEROBEE_FOLLOW
    master: str
    check_only: bool | None = None
    cut: bool | None = None


class FollowResponse(Header):
    """The epoch of that master, the end of this log and of what both have, and what lies behind.

    `kept_in`: the directory that has what was cut. `refused`: why it would not, of a mere check.
    """

    epoch: I64
    max_offset: I64
    common_offset: I64
    messages: I64
    size_bytes: I64
    kept_in: str | None = None
    refused: str | None = None


class GetConsumerStatusFromClient(Header):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), from the broker: the consumer's offsets are asked
    for.
    """

    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str


class ConsumeMessageDirectly(Header):
    """CONSUME_MESSAGE_DIRECTLY (309): let a consumer handle one message; the broker adds the
    message.
    """

    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class GetBrokerHaStatus(Header):
    """GET_BROKER_HA_STATUS (907): the slaves, and how far they have replicated."""

    code = RequestCode.GET_BROKER_HA_STATUS


class ExchangeBrokerHaInfo(Header):
    """EXCHANGE_BROKER_HA_INFO (906): where the master is, and how long its log was at its start.

    Without fields a master is asked; with them a slave is told.
    """

    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    master_address: str | None = None
    master_flush_offset: I64 | None = None
    master_ha_address: str | None = None


class ExchangeBrokerHaInfoResponse(Header):
    """A master's answer; a slave's has no fields."""

    master_address: str | None = None
    master_flush_offset: I64 | None = None
    master_ha_address: str | None = None


class ResetMasterFlushOffset(Header):
    """RESET_MASTER_FLUSH_OFFSET (908): what a slave shall take for its master's flushed offset."""

    code = RequestCode.RESET_MASTER_FLUSH_OFFSET
    master_flush_offset: I64 | None = None


class GetTimerCheckPoint(Header):
    """GET_TIMER_CHECK_POINT (60): how far the timers are, for slaves; the body is binary."""

    code = RequestCode.GET_TIMER_CHECK_POINT


class GetTimerMetrics(Header):
    """GET_TIMER_METRICS (61): the waiting timers of each topic, for slaves."""

    code = RequestCode.GET_TIMER_METRICS


class GetBrokerConsumeStats(Header):
    """GET_BROKER_CONSUME_STATS (317): offsets of every group, in all topics or the ordered ones."""

    code = RequestCode.GET_BROKER_CONSUME_STATS
    is_order: bool = False


class QueryConsumeTimeSpan(Header):
    """QUERY_CONSUME_TIME_SPAN (303): times of the first, last and next message of each queue."""

    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


class QuerySubscriptionByConsumer(Header):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): what the members of a group subscribe to in a topic."""

    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str
    topic: str | None = None


class QueryConsumeQueue(Header):
    """QUERY_CONSUME_QUEUE (321): `count` units of a queue from `index` on, as they are stored."""

    code = RequestCode.QUERY_CONSUME_QUEUE
    topic: str
    queue_id: I32
    index: I64
    count: I32 = 10
    consumer_group: str | None = None
