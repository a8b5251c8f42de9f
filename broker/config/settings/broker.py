"""The settings of the broker itself: identity, topics, groups, clients, transactions.

Source: configuration §2.5, §3.1 to §3.3.
"""

from dataclasses import dataclass
from enum import StrEnum

from aerobee.setting import setting
from aerobee.store.format.system_names import TRACE_TOPIC

NAME = r"^[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.-]{0,126}$"  # becomes a topic and so a directory
ROOM_AND_NAME = r"^[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.@-]{0,126}$"  # `room@name` for MACHINE_ROOM


class BrokerRole(StrEnum):
    """The role: a master that answers at once, one that waits for its slaves, or a slave."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class RequestMode(StrEnum):
    """How a group consumes: it pulls from queues assigned to it, or pops from shared queues."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Names, roles, addresses, topics, groups, clients, transactions."""

    # Identity
    broker_name: str = setting(
        "brokerName", "DEFAULT_BROKER", pattern=ROOM_AND_NAME, derived="the host name"
    )
    """Name of this broker, and of its slaves; one name, one master."""
    brokers: str = setting("brokers", "1", own=True, kind="brokers")
    """Brokers of this configuration, each a process with a data directory and ports of its own: 1
    to 64, or auto for one per core.
    """
    broker_cluster_name: str = setting("brokerClusterName", "DefaultCluster", pattern=NAME)
    """Name of the cluster."""
    broker_id: int = setting("brokerId", 0, ge=0, le=9_223_372_036_854_775_807)
    """Number of this broker below its name: a master has 0, each slave another one from 1 on."""
    broker_role: BrokerRole = setting("brokerRole", BrokerRole.ASYNC_MASTER)
    """ASYNC_MASTER; SYNC_MASTER: sends wait for slaves, see inSyncReplicas; SLAVE: this broker
    copies the master of its name, and serves reads.
    """
    broker_ip1: str = setting(
        "brokerIP1",
        "127.0.0.1",
        derived="advertisedHost, else a single bindAddress, else one of this host",
    )
    """Published address; also the store host of every record."""
    broker_ip2: str = setting("brokerIP2", "127.0.0.1", derived="as brokerIP1")
    """Published address for replication."""
    advertised_host: str = setting("advertisedHost", "", own=True)
    """Sets brokerIP1 and brokerIP2 in one go."""
    advertised_port: int = setting("advertisedPort", 0, ge=0, le=65_535, own=True)
    """Port that clients are told, where a container or a router maps it; 0 is listenPort."""
    advertised: str = setting("advertised", "", own=True, separator=";", kind="advertised")
    """Address of the broker that its name server returns, by the network of the client."""
    region_id: str = setting("regionId", "DefaultRegion")
    """Goes into the MSG_REGION property."""
    broker_permission: int = setting(
        "brokerPermission", 6, ge=0, le=6, live=True, choices=(0, 2, 4, 6)
    )
    """Mask over the permissions of all topics: 4 read, 2 write."""
    insecure: bool = setting("insecure", False, own=True)
    """Allow listeners beyond this host without credentials."""
    ephemeral: bool = setting("ephemeral", False, own=True)
    """Accept a data directory that is lost with the machine."""
    config_overlay_path: str = setting(
        "configOverlayPath",
        "",
        kind="path",
        own=True,
        derived="config/aerobee-overlay.yaml below storePathRootDir",
    )
    """Overlay file: the changes made while running."""
    allow_runtime_config: bool = setting("allowRuntimeConfig", True, own=True)
    """Change settings while running when an administrator asks for it (codes 25 and 318)."""

    # Name servers
    namesrv_addr: str = setting("namesrvAddr", "", separator=";", kind="addresses")
    """Name servers to register at, beside the embedded one."""
    register_name_server_period_ms: int = setting(
        "registerNameServerPeriod", 30_000, ge=10_000, le=60_000, unit="ms", clamp=True
    )
    """Period of the registration."""
    register_broker_timeout_ms: int = setting(
        "registerBrokerTimeoutMills", 24_000, ge=1_000, le=60_000, unit="ms", live=True
    )
    """How long a registration may take."""
    force_register: bool = setting("forceRegister", True, live=True)
    """Register each time; false: ask for the version first."""
    enable_single_topic_register: bool = setting("enableSingleTopicRegister", False, live=True)
    """Register changed topics singly, for name servers with deleteTopicWithBrokerRegistration."""

    # Topics
    auto_create_topic_enable: bool = setting("autoCreateTopicEnable", True)
    """Create an unknown topic on its first message."""
    default_topic_queue_nums: int = setting("defaultTopicQueueNums", 8, ge=1, le=1_024)
    """Queues of TBW102, whose settings such a topic gets."""
    max_topics: int = setting("maxTopics", 10_000, ge=1, le=1_000_000, own=True, live=True)
    """Topics, and as many retry and dead-letter topics of groups; one more is refused."""
    max_queues_of_topic: int = setting(
        "maxQueuesOfTopic", 1_024, ge=1, le=32_768, own=True, live=True
    )
    """Queues that a topic may be given."""
    auto_create_burst: int = setting(
        "autoCreateBurst", 1_000, ge=1, le=1_000_000, own=True, live=True
    )
    """Topics, and as many groups, that may be created by use at once."""
    auto_create_rate: int = setting("autoCreateRate", 20, ge=0, le=1_000_000, own=True, live=True)
    """Topics, and as many groups, that may be created by use in each second beyond autoCreateBurst;
    clients are told to try again later then."""
    cluster_topic_enable: bool = setting("clusterTopicEnable", True)
    """Let clients use the topic named after the cluster."""
    broker_topic_enable: bool = setting("brokerTopicEnable", True)
    """Let clients use the topic named after the broker."""
    trace_topic_enable: bool = setting("traceTopicEnable", False)
    """Create the trace topic at start."""
    msg_trace_topic_name: str = setting("msgTraceTopicName", TRACE_TOPIC, pattern=NAME)
    """Name of the trace topic."""
    trace_on: bool = setting("traceOn", True, live=True)
    """Goes into the TRACE_ON property."""
    validate_system_topic_when_update_topic: bool = setting(
        "validateSystemTopicWhenUpdateTopic", True, live=True
    )
    """Refuse to create or change a system topic."""

    # Sending
    start_accept_send_request_time_stamp_ms: int = setting(
        "startAcceptSendRequestTimeStamp", 0, ge=0, le=9_223_372_036_854_775_807, unit="ms"
    )
    """Refuse sends before this time, in milliseconds since 1970."""
    reject_transaction_message: bool = setting("rejectTransactionMessage", False, live=True)
    """Refuse transactional messages."""
    store_reply_message_enable: bool = setting("storeReplyMessageEnable", True, live=True)
    """Store the answers of request-reply."""
    recall_message_enable: bool = setting("recallMessageEnable", False, live=True)
    """Let producers recall timer messages."""
    start_deliver_time_compat: bool = setting("startDeliverTimeCompat", False, own=True)
    """Deliver messages at the time that cloud clients set (__STARTDELIVERTIME)."""

    # Groups and pulling
    auto_create_subscription_group: bool = setting("autoCreateSubscriptionGroup", True, live=True)
    """Create an unknown group on its first request."""
    max_consumer_groups: int = setting(
        "maxConsumerGroups", 10_000, ge=1, le=1_000_000, own=True, live=True
    )
    """Consumer groups; one more is refused. As many may be connected at once."""
    max_subscriptions_of_group: int = setting(
        "maxSubscriptionsOfGroup", 1_024, ge=1, le=100_000, own=True, live=True
    )
    """Topics that a client may subscribe to in one group."""
    reject_pull_consumer_enable: bool = setting("rejectPullConsumerEnable", False, live=True)
    """Refuse groups that pull by themselves."""
    lite_pull_message_enable: bool = setting("litePullMessageEnable", True, live=True)
    """Serve the lite pull (code 361)."""
    long_polling_enable: bool = setting("longPollingEnable", True, live=True)
    """Hold pulls as long as they ask; false: shortPollingTimeMills."""
    short_polling_time_ms: int = setting(
        "shortPollingTimeMills", 1_000, ge=100, le=60_000, unit="ms", live=True
    )
    """How long a pull is held without long polling."""
    max_held_pulls: int = setting("maxHeldPulls", 100_000, ge=1, le=10_000_000, own=True, live=True)
    """Pulls held in all. When so many are, one of a connection with fewer takes the place of
    one of a connection with more.
    """
    max_held_requests_of_connection: int = setting(
        "maxHeldRequestsOfConnection", 20_000, ge=1, le=10_000_000, own=True, live=True
    )
    """Pulls held for one connection, and as many pops; the next is answered at once."""
    max_held_requests_of_group: int = setting(
        "maxHeldRequestsOfGroup", 80_000, ge=1, le=10_000_000, own=True, live=True
    )
    """Pulls held for one group, and as many pops; the next is answered at once."""
    max_bulk_bytes: int = setting(
        "maxBulkBytes", 4_194_304, ge=65_536, le=67_108_864, unit="B", own=True
    )
    """Most bytes of one bulk pull."""
    disable_consume_if_consumer_read_slowly: bool = setting(
        "disableConsumeIfConsumerReadSlowly", False
    )
    """Stop a group that consumes and whose lag exceeds consumerFallbehindThreshold, until an
    administrator enables it again.
    """
    consumer_fallbehind_threshold_bytes: int = setting(
        "consumerFallbehindThreshold", 17_179_869_184, ge=1, le=9_223_372_036_854_775_807, unit="B"
    )
    """The lag allowed to such a group, in bytes of the log."""
    notify_consumer_ids_changed_enable: bool = setting(
        "notifyConsumerIdsChangedEnable", True, live=True
    )
    """Tell the members of a group when one comes or goes."""
    enable_property_filter: bool = setting("enablePropertyFilter", False, live=True)
    """Allow filters written in SQL92."""
    dedupe: str = setting("dedupe", "", own=True, separator=";", kind="dedupe")
    """Topics that store a repeated send once: topic → by (a property), window."""
    dedupe_max_entries: int = setting(
        "dedupeMaxEntries", 1_000_000, ge=1_000, le=100_000_000, own=True
    )
    """Messages that dedupe remembers at most, at some 200 bytes each."""
    use_server_side_reset_offset: bool = setting("useServerSideResetOffset", True, live=True)
    """Keep a reset offset on the broker until the group has used it."""

    # Popping
    revive_queue_num: int = setting("reviveQueueNum", 8, ge=1, le=1024)
    """Queues of a new revive log."""
    revive_interval_ms: int = setting("reviveInterval", 1_000, ge=100, le=60000, unit="ms")
    """Period in which the revive log is read."""
    pop_from_retry_probability_percent: int = setting(
        "popFromRetryProbability", 20, ge=0, le=100, unit="%"
    )
    """How often a pop reads the retry topic first."""
    pop_from_retry_probability_for_priority_percent: int = setting(
        "popFromRetryProbabilityForPriority", 0, ge=0, le=100, unit="%", live=True
    )
    """How often a pop that reads the highest priority of a topic first reads the retry topic before
    that."""
    priority_order_asc: bool = setting("priorityOrderAsc", True, live=True)
    """Whether 0 is the lowest priority; otherwise it is the highest."""
    enable_retry_topic_v2: bool = setting("enableRetryTopicV2", False)
    """Name new retry topics of pops %RETRY%group+topic."""
    pop_polling_size: int = setting("popPollingSize", 1_024, ge=1, le=1000000)
    """Pops held for one queue and group."""
    pop_polling_map_size: int = setting("popPollingMapSize", 100_000, ge=1, le=1000000)
    """Pairs of topic and group with held pops."""
    max_pop_polling_size: int = setting("maxPopPollingSize", 100_000, ge=1, le=1000000)
    """Pops held in all."""
    default_message_request_mode: RequestMode = setting(
        "defaultMessageRequestMode", RequestMode.PULL
    )
    """How groups consume that have no mode of their own."""
    default_pop_share_queue_num: int = setting("defaultPopShareQueueNum", -1, ge=-1, le=65536)
    """Further clients per queue where POP is such a default; -1: all."""

    # Clients and offsets
    channel_expired_timeout_ms: int = setting(
        "channelExpiredTimeout", 120_000, ge=10_000, le=3_600_000, unit="ms", live=True
    )
    """A client that sends no heartbeat for this long is removed."""
    subscription_expired_timeout_ms: int = setting(
        "subscriptionExpiredTimeout", 600_000, ge=60_000, le=86_400_000, unit="ms", live=True
    )
    """A subscription not renewed for this long is removed."""
    flush_consumer_offset_interval_ms: int = setting(
        "flushConsumerOffsetInterval", 5_000, ge=1, le=3_600_000, unit="ms"
    )
    """Period in which consumer offsets are saved."""
    consumer_offset_update_version_step: int = setting(
        "consumerOffsetUpdateVersionStep", 500, ge=1, le=1_000_000_000
    )
    """Commits per step of the version of the consumer offsets."""
    max_consumer_offsets: int = setting(
        "maxConsumerOffsets", 1_000_000, ge=1_000, le=20_000_000, own=True
    )
    """Offsets of all groups together, one for each queue that a group reads. A group has at most a
    tenth of them, and less when few are left.
    """
    delay_offset_update_version_step: int = setting(
        "delayOffsetUpdateVersionStep", 200, ge=1, le=1_000_000_000
    )
    """Deliveries per step of the version of the delay offsets."""

    # Transactions
    transaction_time_out_ms: int = setting(
        "transactionTimeOut", 6_000, ge=1_000, le=3_600_000, unit="ms", live=True
    )
    """Age of a half message before the first check."""
    transaction_check_max: int = setting("transactionCheckMax", 15, ge=1, le=100, live=True)
    """Checks before a half message is given up."""
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval", 30_000, ge=1_000, le=3_600_000, unit="ms", live=True
    )
    """Pause between two checks."""

    @property
    def broker_count(self) -> int:
        """How many brokers run with this configuration."""
        return int(self.brokers)
