"""The settings of the network layer: listeners, limits of a connection, pools, overload.

Where a default grows with the machine (`cpus`), the number written here is that of 4 CPUs. A pool
is a bounded queue with a width, so the keys of RocketMQ's thread pools keep their meaning without
threads. Source: configuration §3.3, §3.7.
"""

from dataclasses import dataclass

from aerobee.setting import setting

HIGH_WATER_BYTES = 1 << 20
LOW_WATER_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingConfig:
    """Listeners, connections, our own connections to name servers, pools, overload."""

    # Listeners
    listen_port: int = setting("listenPort", 10_911, ge=1, le=65_535)
    """Port of the broker."""
    vip_listen_port: int = setting(
        "vipListenPort", 10_909, ge=0, le=65_535, own=True, derived="listenPort - 2"
    )
    """Second port of the broker, for clients that prefer it; 0: none."""
    grpc_port: int = setting("grpcPort", 0, ge=0, le=65_535, own=True)
    """Port of the RocketMQ 5.x clients (gRPC), which expect 8081; 0: none. It needs the extra
    `grpc`."""
    max_delay_time_ms: int = setting(
        "maxDelayTimeMills", 86_400_000, ge=1_000, le=3_153_600_000_000, unit="ms", own=True
    )
    """Longest delay that clients over gRPC may ask for, a day as by RocketMQ's proxy."""
    bind_address: str = setting(
        "bindAddress",
        "127.0.0.1",
        derived="127.0.0.1; 0.0.0.0 with credentials or insecure (:: with IPv6 alone)",
    )
    """Local address of every listener."""
    server_socket_backlog: int = setting("serverSocketBacklog", 1_024, ge=1, le=65_535)
    """Connections the system may hold before we accept them."""
    server_selector_threads: int = setting("serverSelectorThreads", 1, ge=1, le=64)
    """Selectors: tasks that read and write the sockets. One event loop serves them all, so more of
    them make smaller rounds and nothing else."""

    # Connections
    server_channel_max_idle_time_s: int = setting(
        "serverChannelMaxIdleTimeSeconds", 120, ge=1, le=86_400, unit="s"
    )
    """Silence after which a connection is closed."""
    server_socket_snd_buf_size_bytes: int = setting(
        "serverSocketSndBufSize", 0, ge=0, le=1_073_741_824, unit="B"
    )
    """Send buffer of a socket; 0: the system decides."""
    server_socket_rcv_buf_size_bytes: int = setting(
        "serverSocketRcvBufSize", 0, ge=0, le=1_073_741_824, unit="B"
    )
    """Receive buffer of a socket; 0: the system decides."""
    write_buffer_high_water_mark_bytes: int = setting(
        "writeBufferHighWaterMark", 0, ge=0, le=1_073_741_824, unit="B"
    )
    """Unsent bytes at which a connection is no longer read; 0: 1 MiB."""
    write_buffer_low_water_mark_bytes: int = setting(
        "writeBufferLowWaterMark", 0, ge=0, le=1_073_741_824, unit="B"
    )
    """Unsent bytes at which it is read again; 0: a quarter of the other mark."""
    write_stall_timeout_ms: int = setting(
        "writeStallTimeout", 10_000, ge=100, le=3_600_000, unit="ms", own=True
    )
    """How long a peer may read nothing while answers wait for it."""
    write_least_rate: int = setting("writeLeastRate", 4_096, ge=0, le=1_073_741_824, own=True)
    """Bytes per second that a peer must read, averaged over writeStallTimeout, while answers wait
    for it; 0: no minimum. A slower one is closed."""
    max_outbound_buffer_bytes: int = setting(
        "maxOutboundBufferBytes", 268_435_456, ge=1_048_576, le=17_179_869_184, unit="B", own=True
    )
    """The most that all connections together may have unsent. Beyond it, a connection with more
    than its share is not read; at twice as much, the one with most is closed."""
    max_frame_bytes: int = setting(
        "maxFrameBytes", 16_777_216, ge=65_536, le=268_435_456, unit="B", own=True
    )
    """Largest frame that is accepted."""
    max_header_bytes: int = setting(
        "maxHeaderBytes", 262_144, ge=32_768, le=16_777_215, unit="B", own=True
    )
    """Largest header that is accepted."""
    max_inbound_buffer_bytes: int = setting(
        "maxInboundBufferBytes", 134_217_728, ge=1_048_576, le=17_179_869_184, unit="B", own=True
    )
    """The most that all connections together may hold of incomplete frames and of frames that wait
    to be served. Beyond it, only the connection with most is read, and closed in the end."""
    max_unauthenticated_buffer_bytes: int = setting(
        "maxUnauthenticatedBufferBytes",
        67_108_864,
        ge=1_048_576,
        le=17_179_869_184,
        unit="B",
        own=True,
    )
    """The most that connections may hold so which have not shown one valid signature, with access
    control: they are not part of maxInboundBufferBytes."""
    first_request_timeout_ms: int = setting(
        "firstRequestTimeout", 30_000, ge=1_000, le=3_600_000, unit="ms", own=True, live=True
    )
    """How long a new connection has until a request of it is let pass: with access control one that
    an account has signed, without it any whole one. Then it is closed, whatever else it sends."""
    max_connections: int = setting("maxConnections", 0, ge=0, le=10_000_000, own=True, live=True)
    """Open connections; for one more, a connection is closed of which no request was let pass yet,
    or one of an address that has more than half of all places; else it is closed itself. 0: as the
    limit on open files allows, less a reserve for the store."""
    max_connections_of_address: int = setting(
        "maxConnectionsOfAddress", 0, ge=0, le=10_000_000, own=True, live=True
    )
    """Open connections of one client address (of IPv6: one network of 64 bits); for one more, one
    of them is closed of which no request was let pass yet, else it is closed itself. 0: no limit,
    but where all places are taken, half of them is what an address keeps."""
    max_request_rate_of_address: int = setting(
        "maxRequestRateOfAddress", 0, ge=0, le=10_000_000, own=True, live=True
    )
    """Requests per second of one such address, and as many at once after a pause; others get
    SYSTEM_BUSY. 0: no limit."""
    max_request_rate_of_user: int = setting(
        "maxRequestRateOfUser", 0, ge=0, le=10_000_000, own=True, live=True
    )
    """Requests per second of one account or user, over all of its connections, with access control.
    0: no limit."""
    max_byte_rate_of_address: int = setting(
        "maxByteRateOfAddress", 0, ge=0, le=1_099_511_627_776, own=True, live=True
    )
    """Bytes of messages per second that one such address sends. Beyond it sends get SYSTEM_BUSY,
    and nothing else does. 0: no limit."""
    max_byte_rate_of_user: int = setting(
        "maxByteRateOfUser", 0, ge=0, le=1_099_511_627_776, own=True, live=True
    )
    """Bytes of messages per second that one account or user sends over all of its connections, with
    access control. 0: no limit."""

    # As a client of name servers
    connect_timeout_ms: int = setting("connectTimeoutMillis", 3_000, ge=1, le=600_000, unit="ms")
    """How long a connect may take."""

    # Pools: requests that run at once
    send_message_thread_pool_nums: int = setting(
        "sendMessageThreadPoolNums", 4, ge=1, le=65_536, cpus=(0, 1, 4)
    )
    """Send pool: requests at once."""
    pull_message_thread_pool_nums: int = setting(
        "pullMessageThreadPoolNums", 24, ge=1, le=65_536, cpus=(16, 2, None)
    )
    """Pull pool: requests at once."""
    lite_pull_message_thread_pool_nums: int = setting(
        "litePullMessageThreadPoolNums", 24, ge=1, le=65_536, cpus=(16, 2, None)
    )
    """Lite-pull pool: requests at once."""
    process_reply_message_thread_pool_nums: int = setting(
        "processReplyMessageThreadPoolNums", 24, ge=1, le=65_536, cpus=(16, 2, None)
    )
    """Reply pool: requests at once."""
    ack_message_thread_pool_nums: int = setting("ackMessageThreadPoolNums", 16, ge=1, le=65_536)
    """Ack pool: requests at once."""
    query_message_thread_pool_nums: int = setting(
        "queryMessageThreadPoolNums", 12, ge=1, le=65_536, cpus=(8, 1, None)
    )
    """Query pool: requests at once."""
    admin_broker_thread_pool_nums: int = setting("adminBrokerThreadPoolNums", 16, ge=1, le=65_536)
    """Admin pool: requests at once."""
    client_manage_thread_pool_nums: int = setting("clientManageThreadPoolNums", 32, ge=1, le=65_536)
    """Client pool: requests at once."""
    consumer_manage_thread_pool_nums: int = setting(
        "consumerManageThreadPoolNums", 32, ge=1, le=65_536
    )
    """Consumer pool: requests at once."""
    load_balance_processor_thread_pool_nums: int = setting(
        "loadBalanceProcessorThreadPoolNums", 32, ge=1, le=65_536
    )
    """Assignment pool: requests at once."""
    heartbeat_thread_pool_nums: int = setting(
        "heartbeatThreadPoolNums", 4, ge=1, le=65_536, cpus=(0, 1, 32)
    )
    """Heartbeat pool: requests at once."""
    end_transaction_thread_pool_nums: int = setting(
        "endTransactionThreadPoolNums", 16, ge=1, le=65_536, cpus=(8, 2, None)
    )
    """Transaction pool: requests at once."""

    # Pools: requests that wait or run; the next one gets SYSTEM_BUSY
    send_thread_pool_queue_capacity: int = setting(
        "sendThreadPoolQueueCapacity", 10_000, ge=1, le=100_000_000
    )
    """Send pool: bound of its queue."""
    pull_thread_pool_queue_capacity: int = setting(
        "pullThreadPoolQueueCapacity", 100_000, ge=1, le=100_000_000
    )
    """Pull pool: bound of its queue."""
    lite_pull_thread_pool_queue_capacity: int = setting(
        "litePullThreadPoolQueueCapacity", 100_000, ge=1, le=100_000_000
    )
    """Lite-pull pool: bound of its queue."""
    ack_thread_pool_queue_capacity: int = setting(
        "ackThreadPoolQueueCapacity", 100_000, ge=1, le=100_000_000
    )
    """Ack pool: bound of its queue."""
    query_thread_pool_queue_capacity: int = setting(
        "queryThreadPoolQueueCapacity", 20_000, ge=1, le=100_000_000
    )
    """Query pool: bound of its queue."""
    reply_thread_pool_queue_capacity: int = setting(
        "replyThreadPoolQueueCapacity", 10_000, ge=1, le=100_000_000
    )
    """Reply pool: bound of its queue."""
    admin_broker_thread_pool_queue_capacity: int = setting(
        "adminBrokerThreadPoolQueueCapacity", 10_000, ge=1, le=100_000_000
    )
    """Admin pool: bound of its queue."""
    heartbeat_thread_pool_queue_capacity: int = setting(
        "heartbeatThreadPoolQueueCapacity", 50_000, ge=1, le=100_000_000
    )
    """Heartbeat pool: bound of its queue."""
    client_manager_thread_pool_queue_capacity: int = setting(
        "clientManagerThreadPoolQueueCapacity", 1_000_000, ge=1, le=100_000_000
    )
    """Client pool: bound of its queue."""
    consumer_manager_thread_pool_queue_capacity: int = setting(
        "consumerManagerThreadPoolQueueCapacity", 1_000_000, ge=1, le=100_000_000
    )
    """Consumer pool: bound of its queue."""
    load_balance_thread_pool_queue_capacity: int = setting(
        "loadBalanceThreadPoolQueueCapacity", 100_000, ge=1, le=100_000_000
    )
    """Assignment pool: bound of its queue."""
    end_transaction_pool_queue_capacity: int = setting(
        "endTransactionPoolQueueCapacity", 100_000, ge=1, le=100_000_000
    )
    """Transaction pool: bound of its queue."""

    # Overload
    broker_fast_failure_enable: bool = setting("brokerFastFailureEnable", True, live=True)
    """Answer SYSTEM_BUSY to requests that waited too long."""
    wait_time_mills_in_send_queue: int = setting(
        "waitTimeMillsInSendQueue", 200, ge=10, le=60_000, unit="ms", live=True
    )
    """Send pool: how long a request may wait."""
    wait_time_mills_in_pull_queue: int = setting(
        "waitTimeMillsInPullQueue", 5_000, ge=100, le=60_000, unit="ms", live=True
    )
    """Pull pool: how long a request may wait."""
    wait_time_mills_in_lite_pull_queue: int = setting(
        "waitTimeMillsInLitePullQueue", 5_000, ge=100, le=60_000, unit="ms", live=True
    )
    """Lite-pull pool: how long a request may wait."""
    wait_time_mills_in_heartbeat_queue: int = setting(
        "waitTimeMillsInHeartbeatQueue", 31_000, ge=1_000, le=120_000, unit="ms", live=True
    )
    """Heartbeat pool: how long a request may wait."""
    wait_time_mills_in_transaction_queue: int = setting(
        "waitTimeMillsInTransactionQueue", 3_000, ge=100, le=60_000, unit="ms", live=True
    )
    """Transaction pool: how long a request may wait."""
    wait_time_mills_in_ack_queue: int = setting(
        "waitTimeMillsInAckQueue", 3_000, ge=100, le=60_000, unit="ms", live=True
    )
    """Ack pool: how long a request may wait."""
    wait_time_mills_in_admin_broker_queue: int = setting(
        "waitTimeMillsInAdminBrokerQueue", 5_000, ge=100, le=60_000, unit="ms", live=True
    )
    """Admin pool: how long a request may wait."""
    os_page_cache_busy_time_out_ms: int = setting(
        "osPageCacheBusyTimeOutMills", 1_000, ge=50, le=60_000, unit="ms", live=True
    )
    """An append that takes longer makes the store busy: sends that came before it ended are
    refused.
    """

    @property
    def high_water_bytes(self) -> int:
        """Unsent bytes at which a connection is no longer read."""
        return self.write_buffer_high_water_mark_bytes or HIGH_WATER_BYTES

    @property
    def low_water_bytes(self) -> int:
        """Unsent bytes at which it is read again."""
        return self.write_buffer_low_water_mark_bytes or self.high_water_bytes // LOW_WATER_SHARE
