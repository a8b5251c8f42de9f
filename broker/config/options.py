"""The settings of the broker itself: who it is, topics, groups, clients, transactions.

Read like `store.config`; the marks in `extra` are explained there. Beside them: `choices` (the only
values), `formerly` (an old key that is taken where the new one is absent).
Source: configuration §2.5, §3.1 to §3.3. Long because every setting stands here whole.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

__all__ = ["NAME", "BrokerOptions", "BrokerRole", "RequestMode"]

NAME = r"^[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.-]{0,126}$"  # becomes a topic and so a directory


class BrokerRole(StrEnum):
    """A master that answers at once, one that waits for its slaves, or a slave."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class RequestMode(StrEnum):
    """A group pulls from queues that are its own, or pops from queues that others use as well."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Names, roles, addresses, topics, groups, clients, transactions."""

    # Who we are
    broker_name: Annotated[
        str,
        Meta(
            pattern=NAME,
            description="Name of this broker; one name, one master.",
            extra={"key": "brokerName", "derived": "the host name"},
        ),
    ] = "DEFAULT_BROKER"
    broker_cluster_name: Annotated[
        str,
        Meta(
            pattern=NAME,
            description="Name of the cluster.",
            extra={"key": "brokerClusterName"},
        ),
    ] = "DefaultCluster"
    broker_id: Annotated[
        int,
        Meta(
            ge=0,
            le=9_223_372_036_854_775_807,
            description="0 is a master, the only kind there is.",
            extra={"key": "brokerId"},
        ),
    ] = 0
    broker_role: Annotated[
        BrokerRole,
        Meta(
            description="ASYNC_MASTER, or SYNC_MASTER as long as no replica is asked for.",
            extra={"key": "brokerRole"},
        ),
    ] = BrokerRole.ASYNC_MASTER
    broker_ip1: Annotated[
        str,
        Meta(
            description="Published address; also the store host of every record.",
            extra={
                "key": "brokerIP1",
                "derived": "advertisedHost, else a single bindAddress, else one of this host",
            },
        ),
    ] = "127.0.0.1"
    broker_ip2: Annotated[
        str,
        Meta(
            description="Published address for replication.",
            extra={"key": "brokerIP2", "derived": "as brokerIP1"},
        ),
    ] = "127.0.0.1"
    advertised_host: Annotated[
        str,
        Meta(
            description="Sets brokerIP1 and brokerIP2 in one go.",
            extra={"key": "advertisedHost", "own": True},
        ),
    ] = ""
    advertised: Annotated[
        str,
        Meta(
            description="Our address as our name server tells it, by the network of who asks.",
            extra={"key": "advertised", "own": True, "list": ";", "kind": "advertised"},
        ),
    ] = ""
    region_id: Annotated[
        str,
        Meta(
            description="Goes into the MSG_REGION property.",
            extra={"key": "regionId"},
        ),
    ] = "DefaultRegion"
    broker_permission: Annotated[
        int,
        Meta(
            ge=0,
            le=6,
            description="Mask over the permissions of all topics: 4 read, 2 write.",
            extra={"key": "brokerPermission", "hot": True, "choices": (0, 2, 4, 6)},
        ),
    ] = 6
    insecure: Annotated[
        bool,
        Meta(
            description="Allow listeners beyond this host without credentials.",
            extra={"key": "insecure", "own": True},
        ),
    ] = False
    ephemeral: Annotated[
        bool,
        Meta(
            description="Do not mind a data directory that is lost with the machine.",
            extra={"key": "ephemeral", "own": True},
        ),
    ] = False
    allow_runtime_config: Annotated[
        bool,
        Meta(
            description="Let administrators change settings while running.",
            extra={"key": "allowRuntimeConfig", "own": True, "later": True},
        ),
    ] = True
    config_overlay_path: Annotated[
        str,
        Meta(
            description="File of the changes made while running.",
            extra={
                "key": "configOverlayPath",
                "kind": "path",
                "own": True,
                "derived": "config/aerobee-overlay.yaml below storePathRootDir",
            },
        ),
    ] = ""

    # Name servers
    namesrv_addr: Annotated[
        str,
        Meta(
            description="Name servers to register at, beside our own.",
            extra={"key": "namesrvAddr", "list": ";", "kind": "addresses"},
        ),
    ] = ""
    register_name_server_period_ms: Annotated[
        int,
        Meta(
            ge=10_000,
            le=60_000,
            description="Period of the registration.",
            extra={"key": "registerNameServerPeriod", "unit": "ms", "clamp": True},
        ),
    ] = 30_000
    register_broker_timeout_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=60_000,
            description="How long a registration may take.",
            extra={"key": "registerBrokerTimeoutMills", "unit": "ms", "hot": True},
        ),
    ] = 24_000
    force_register: Annotated[
        bool,
        Meta(
            description="Register each time; false: ask for the version first.",
            extra={"key": "forceRegister", "hot": True},
        ),
    ] = True

    # Topics
    auto_create_topic_enable: Annotated[
        bool,
        Meta(
            description="Create an unknown topic on its first message.",
            extra={"key": "autoCreateTopicEnable"},
        ),
    ] = True
    default_topic_queue_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=1_024,
            description="Queues of TBW102, whose settings such a topic gets.",
            extra={"key": "defaultTopicQueueNums"},
        ),
    ] = 8
    cluster_topic_enable: Annotated[
        bool,
        Meta(
            description="Let clients use the topic named after the cluster.",
            extra={"key": "clusterTopicEnable"},
        ),
    ] = True
    broker_topic_enable: Annotated[
        bool,
        Meta(
            description="Let clients use the topic named after the broker.",
            extra={"key": "brokerTopicEnable"},
        ),
    ] = True
    trace_topic_enable: Annotated[
        bool,
        Meta(
            description="Create the trace topic at start.",
            extra={"key": "traceTopicEnable"},
        ),
    ] = False
    msg_trace_topic_name: Annotated[
        str,
        Meta(
            pattern=NAME,
            description="Name of the trace topic.",
            extra={"key": "msgTraceTopicName"},
        ),
    ] = "RMQ_SYS_TRACE_TOPIC"
    trace_on: Annotated[
        bool,
        Meta(
            description="Goes into the TRACE_ON property.",
            extra={"key": "traceOn", "hot": True},
        ),
    ] = True
    validate_system_topic_when_update_topic: Annotated[
        bool,
        Meta(
            description="Refuse to create or change a system topic.",
            extra={"key": "validateSystemTopicWhenUpdateTopic", "hot": True},
        ),
    ] = True
    clear_retry_topic_when_delete_topic: Annotated[
        bool,
        Meta(
            description="Delete the retry topics of its groups with a topic.",
            extra={"key": "clearRetryTopicWhenDeleteTopic", "hot": True, "later": True},
        ),
    ] = True
    enable_split_metadata: Annotated[
        bool,
        Meta(
            description="Answer long lists of topics and groups in pages.",
            extra={"key": "enableSplitMetadata", "later": True},
        ),
    ] = True
    split_metadata_size: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Entries of such a page.",
            extra={"key": "splitMetadataSize", "later": True},
        ),
    ] = 2_000

    # Sending
    start_accept_send_request_time_stamp_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=9_223_372_036_854_775_807,
            description="Refuse sends before this time, in milliseconds since 1970.",
            extra={"key": "startAcceptSendRequestTimeStamp", "unit": "ms"},
        ),
    ] = 0
    reject_transaction_message: Annotated[
        bool,
        Meta(
            description="Refuse transactional messages.",
            extra={"key": "rejectTransactionMessage", "hot": True},
        ),
    ] = False
    store_reply_message_enable: Annotated[
        bool,
        Meta(
            description="Store the answers of request-reply.",
            extra={"key": "storeReplyMessageEnable", "hot": True},
        ),
    ] = True
    recall_message_enable: Annotated[
        bool,
        Meta(
            description="Let producers take timers back.",
            extra={"key": "recallMessageEnable", "hot": True},
        ),
    ] = False
    start_deliver_time_compat: Annotated[
        bool,
        Meta(
            description="Deliver messages at the time that cloud clients set (__STARTDELIVERTIME).",
            extra={"key": "startDeliverTimeCompat", "own": True},
        ),
    ] = False

    # Groups and pulling
    auto_create_subscription_group: Annotated[
        bool,
        Meta(
            description="Create an unknown group on its first request.",
            extra={"key": "autoCreateSubscriptionGroup", "hot": True},
        ),
    ] = True
    reject_pull_consumer_enable: Annotated[
        bool,
        Meta(
            description="Refuse groups that pull by themselves.",
            extra={"key": "rejectPullConsumerEnable", "hot": True, "later": True},
        ),
    ] = False
    lite_pull_message_enable: Annotated[
        bool,
        Meta(
            description="Serve the lite pull (code 361).",
            extra={"key": "litePullMessageEnable", "hot": True},
        ),
    ] = True
    long_polling_enable: Annotated[
        bool,
        Meta(
            description="Hold pulls as long as they ask; false: shortPollingTimeMills.",
            extra={"key": "longPollingEnable", "hot": True},
        ),
    ] = True
    short_polling_time_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How long a pull is held without long polling.",
            extra={"key": "shortPollingTimeMills", "unit": "ms", "hot": True},
        ),
    ] = 1_000
    max_held_pulls: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Pulls held in all. When so many are, one of a connection with fewer takes"
            " the place of one of a connection with more.",
            extra={"key": "maxHeldPulls", "own": True},
        ),
    ] = 100_000
    max_held_requests_of_connection: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Pulls held for one connection, and as many pops; the next is answered at"
            " once.",
            extra={"key": "maxHeldRequestsOfConnection", "own": True},
        ),
    ] = 20_000
    max_held_requests_of_group: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Pulls held for one group, and as many pops; the next is answered at once.",
            extra={"key": "maxHeldRequestsOfGroup", "own": True},
        ),
    ] = 80_000
    max_bulk_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=67_108_864,
            description="Most bytes of one bulk pull.",
            extra={"key": "maxBulkBytes", "unit": "B", "own": True},
        ),
    ] = 4_194_304
    disable_consume_if_consumer_read_slowly: Annotated[
        bool,
        Meta(
            description="Stop a group that takes messages and is further behind than"
            " consumerFallbehindThreshold, until an administrator switches it on again.",
            extra={"key": "disableConsumeIfConsumerReadSlowly"},
        ),
    ] = False
    consumer_fallbehind_threshold_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=9_223_372_036_854_775_807,
            description="Bytes of the log that such a group may be behind.",
            extra={"key": "consumerFallbehindThreshold", "unit": "B"},
        ),
    ] = 17_179_869_184
    notify_consumer_ids_changed_enable: Annotated[
        bool,
        Meta(
            description="Tell the members of a group when one comes or goes.",
            extra={"key": "notifyConsumerIdsChangedEnable", "hot": True},
        ),
    ] = True
    real_time_notify_consumer_change: Annotated[
        bool,
        Meta(
            description="Tell them at once, not at their next heartbeat.",
            extra={"key": "realTimeNotifyConsumerChange", "hot": True, "later": True},
        ),
    ] = True
    slave_read_enable: Annotated[
        bool,
        Meta(
            description="Send reads of old messages to a slave.",
            extra={"key": "slaveReadEnable", "hot": True, "later": True},
        ),
    ] = False
    enable_property_filter: Annotated[
        bool,
        Meta(
            description="Allow filters written in SQL92.",
            extra={"key": "enablePropertyFilter", "hot": True},
        ),
    ] = False
    dedupe: Annotated[
        str,
        Meta(
            description="Topics that store a repeated send once: topic → by (a property), window.",
            extra={"key": "dedupe", "own": True, "list": ";", "kind": "dedupe"},
        ),
    ] = ""
    dedupe_max_entries: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="Messages that dedupe remembers at most, at some 120 bytes each.",
            extra={"key": "dedupeMaxEntries", "own": True},
        ),
    ] = 1_000_000
    use_server_side_reset_offset: Annotated[
        bool,
        Meta(
            description="Keep a reset offset here until the group has taken it.",
            extra={"key": "useServerSideResetOffset", "hot": True},
        ),
    ] = True

    # Popping
    revive_queue_num: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Queues of a new revive log.",
            extra={"key": "reviveQueueNum"},
        ),
    ] = 8
    revive_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60000,
            description="Period in which the revive log is read.",
            extra={"key": "reviveInterval", "unit": "ms"},
        ),
    ] = 1_000
    pop_from_retry_probability_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="How often a pop looks into the retry topic first.",
            extra={"key": "popFromRetryProbability", "unit": "%"},
        ),
    ] = 20
    enable_retry_topic_v2: Annotated[
        bool,
        Meta(
            description="Name new retry topics of pops %RETRY%group+topic.",
            extra={"key": "enableRetryTopicV2"},
        ),
    ] = False
    pop_polling_size: Annotated[
        int,
        Meta(
            ge=1,
            le=1000000,
            description="Pops held for one queue and group.",
            extra={"key": "popPollingSize"},
        ),
    ] = 1_024
    pop_polling_map_size: Annotated[
        int,
        Meta(
            ge=1,
            le=1000000,
            description="Pairs of topic and group with held pops.",
            extra={"key": "popPollingMapSize"},
        ),
    ] = 100_000
    max_pop_polling_size: Annotated[
        int,
        Meta(
            ge=1,
            le=1000000,
            description="Pops held in all.",
            extra={"key": "maxPopPollingSize"},
        ),
    ] = 100_000
    default_message_request_mode: Annotated[
        RequestMode,
        Meta(
            description="How groups consume that leave it to the broker.",
            extra={"key": "defaultMessageRequestMode"},
        ),
    ] = RequestMode.PULL
    default_pop_share_queue_num: Annotated[
        int,
        Meta(
            ge=-1,
            le=65536,
            description="Further clients per queue where POP is such a default; -1: all.",
            extra={"key": "defaultPopShareQueueNum"},
        ),
    ] = -1

    # Clients and offsets
    channel_expired_timeout_ms: Annotated[
        int,
        Meta(
            ge=10_000,
            le=3_600_000,
            description="A client that sends no heartbeat for so long is gone.",
            extra={"key": "channelExpiredTimeout", "unit": "ms", "hot": True},
        ),
    ] = 120_000
    subscription_expired_timeout_ms: Annotated[
        int,
        Meta(
            ge=60_000,
            le=86_400_000,
            description="A subscription not renewed for so long is gone.",
            extra={"key": "subscriptionExpiredTimeout", "unit": "ms", "hot": True},
        ),
    ] = 600_000
    flush_consumer_offset_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="Period in which consumer offsets are saved.",
            extra={"key": "flushConsumerOffsetInterval", "unit": "ms"},
        ),
    ] = 5_000
    consumer_offset_update_version_step: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="Commits per step of the version of the consumer offsets.",
            extra={"key": "consumerOffsetUpdateVersionStep"},
        ),
    ] = 500
    delay_offset_update_version_step: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="Deliveries per step of the version of the delay offsets.",
            extra={"key": "delayOffsetUpdateVersionStep"},
        ),
    ] = 200
    enable_detail_stat: Annotated[
        bool,
        Meta(
            description="Count per queue as well as per topic.",
            extra={"key": "enableDetailStat", "later": True},
        ),
    ] = True

    # Transactions
    transaction_time_out_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="Age of a half message before the first check.",
            extra={"key": "transactionTimeOut", "unit": "ms", "hot": True},
        ),
    ] = 6_000
    transaction_check_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Checks before a half message is given up.",
            extra={"key": "transactionCheckMax", "hot": True},
        ),
    ] = 15
    transaction_check_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="Pause between two checks.",
            extra={"key": "transactionCheckInterval", "unit": "ms", "hot": True},
        ),
    ] = 30_000
