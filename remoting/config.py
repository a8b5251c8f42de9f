"""The settings of the network layer: listeners, limits of a connection, pools, overload.

Read like `store.config`: a field is one declaration. Beside the marks named there, `extra` has
`cpus` (base, factor, limit: the default is base + factor × CPUs, at most the limit; the number
written here is that of 4 CPUs).
A pool is a bounded queue with a width, so the keys of RocketMQ's thread pools keep their meaning
without threads. Source: configuration §3.3, §3.7. Long because every setting stands here whole.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

__all__ = ["RemotingConfig"]

HIGH_WATER_BYTES = 4 << 20
LOW_WATER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingConfig:
    """Listeners, connections, our own connections to name servers, pools, overload."""

    # Listeners
    listen_port: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="Port of the broker.",
            extra={"key": "listenPort"},
        ),
    ] = 10_911
    vip_listen_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Second port of the broker, for clients that prefer it; 0: none.",
            extra={"key": "vipListenPort", "own": True, "derived": "listenPort - 2"},
        ),
    ] = 10_909
    bind_address: Annotated[
        str,
        Meta(
            description="Local address of every listener.",
            extra={"key": "bindAddress", "derived": "127.0.0.1; 0.0.0.0 with insecure"},
        ),
    ] = "127.0.0.1"
    server_socket_backlog: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="Connections the system may hold before we accept them.",
            extra={"key": "serverSocketBacklog"},
        ),
    ] = 1_024
    server_selector_threads: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Selectors: tasks that read and write the sockets.",
            extra={"key": "serverSelectorThreads"},
        ),
    ] = 3
    server_worker_threads: Annotated[
        int,
        Meta(
            ge=1,
            le=1_024,
            description="Kept for RocketMQ's sake: a selector does the worker's part itself.",
            extra={"key": "serverWorkerThreads", "later": True},
        ),
    ] = 8

    # Connections
    server_channel_max_idle_time_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Silence after which a connection is closed.",
            extra={"key": "serverChannelMaxIdleTimeSeconds", "unit": "s"},
        ),
    ] = 120
    server_socket_snd_buf_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_073_741_824,
            description="Send buffer of a socket; 0: the system decides.",
            extra={"key": "serverSocketSndBufSize", "unit": "B"},
        ),
    ] = 0
    server_socket_rcv_buf_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_073_741_824,
            description="Receive buffer of a socket; 0: the system decides.",
            extra={"key": "serverSocketRcvBufSize", "unit": "B"},
        ),
    ] = 0
    write_buffer_high_water_mark_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_073_741_824,
            description="Unsent bytes at which a connection is no longer read; 0: 4 MiB.",
            extra={"key": "writeBufferHighWaterMark", "unit": "B"},
        ),
    ] = 0
    write_buffer_low_water_mark_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_073_741_824,
            description="Unsent bytes at which it is read again; 0: 1 MiB.",
            extra={"key": "writeBufferLowWaterMark", "unit": "B"},
        ),
    ] = 0
    write_stall_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=3_600_000,
            description="How long a peer may take nothing of what waits for it.",
            extra={"key": "writeStallTimeout", "unit": "ms", "own": True},
        ),
    ] = 10_000
    write_least_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1_073_741_824,
            description="Bytes that a peer must take in a second, over the time of"
            " writeStallTimeout, while answers wait for it; 0: any. A slower one is closed.",
            extra={"key": "writeLeastRate", "own": True},
        ),
    ] = 4_096
    max_outbound_buffer_bytes: Annotated[
        int,
        Meta(
            ge=1_048_576,
            le=17_179_869_184,
            description="What all connections together may have unsent. Beyond it one that has more"
            " than its share is not read; at twice as much the one that has most is closed.",
            extra={"key": "maxOutboundBufferBytes", "unit": "B", "own": True},
        ),
    ] = 268_435_456
    max_frame_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Largest frame that is read.",
            extra={"key": "maxFrameBytes", "unit": "B", "own": True},
        ),
    ] = 16_777_216
    max_header_bytes: Annotated[
        int,
        Meta(
            ge=32_768,
            le=16_777_215,
            description="Largest header that is read.",
            extra={"key": "maxHeaderBytes", "unit": "B", "own": True},
        ),
    ] = 262_144
    max_inbound_buffer_bytes: Annotated[
        int,
        Meta(
            ge=1_048_576,
            le=17_179_869_184,
            description="What all connections together may keep of frames that have not ended, and"
            " of whole ones that wait. Beyond it only who has most is read, and closed in the end.",
            extra={"key": "maxInboundBufferBytes", "unit": "B", "own": True},
        ),
    ] = 134_217_728
    max_connections: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Connections at once; the next is closed as it comes. 0: as many as the"
            " limit on open files allows, but for a reserve of the store.",
            extra={"key": "maxConnections", "own": True},
        ),
    ] = 0
    server_oneway_semaphore_value: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="One-way requests on their way to clients.",
            extra={"key": "serverOnewaySemaphoreValue", "later": True},
        ),
    ] = 256
    server_async_semaphore_value: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="Requests to clients that wait for an answer.",
            extra={"key": "serverAsyncSemaphoreValue", "later": True},
        ),
    ] = 64

    # As a client of name servers
    connect_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=600_000,
            description="How long a connect may take.",
            extra={"key": "connectTimeoutMillis", "unit": "ms"},
        ),
    ] = 3_000
    channel_not_active_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="How long a name server that failed is left alone.",
            extra={"key": "channelNotActiveInterval", "unit": "ms", "later": True},
        ),
    ] = 60_000
    client_channel_max_idle_time_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Silence after which our own connection is closed.",
            extra={"key": "clientChannelMaxIdleTimeSeconds", "unit": "s", "later": True},
        ),
    ] = 120
    client_close_socket_if_timeout: Annotated[
        bool,
        Meta(
            description="Close a connection on which a call timed out.",
            extra={"key": "clientCloseSocketIfTimeout", "later": True},
        ),
    ] = True

    # Pools: requests that run at once
    send_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Send pool: requests at once.",
            extra={"key": "sendMessageThreadPoolNums", "cpus": (0, 1, 4)},
        ),
    ] = 4
    pull_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Pull pool: requests at once.",
            extra={"key": "pullMessageThreadPoolNums", "cpus": (16, 2, None)},
        ),
    ] = 24
    lite_pull_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Lite-pull pool: requests at once.",
            extra={"key": "litePullMessageThreadPoolNums", "cpus": (16, 2, None)},
        ),
    ] = 24
    process_reply_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Reply pool: requests at once.",
            extra={
                "key": "processReplyMessageThreadPoolNums",
                "cpus": (16, 2, None),
            },
        ),
    ] = 24
    ack_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Ack pool: requests at once.",
            extra={"key": "ackMessageThreadPoolNums"},
        ),
    ] = 16
    query_message_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Query pool: requests at once.",
            extra={"key": "queryMessageThreadPoolNums", "cpus": (8, 1, None)},
        ),
    ] = 12
    admin_broker_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Admin pool: requests at once.",
            extra={"key": "adminBrokerThreadPoolNums"},
        ),
    ] = 16
    client_manage_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Client pool: requests at once.",
            extra={"key": "clientManageThreadPoolNums"},
        ),
    ] = 32
    consumer_manage_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Consumer pool: requests at once.",
            extra={"key": "consumerManageThreadPoolNums"},
        ),
    ] = 32
    load_balance_processor_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Assignment pool: requests at once.",
            extra={"key": "loadBalanceProcessorThreadPoolNums"},
        ),
    ] = 32
    heartbeat_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Heartbeat pool: requests at once.",
            extra={"key": "heartbeatThreadPoolNums", "cpus": (0, 1, 32)},
        ),
    ] = 4
    end_transaction_thread_pool_nums: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Transaction pool: requests at once.",
            extra={"key": "endTransactionThreadPoolNums", "cpus": (8, 2, None)},
        ),
    ] = 16

    # Pools: requests that wait or run; the next one gets SYSTEM_BUSY
    send_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Send pool: bound of its queue.",
            extra={"key": "sendThreadPoolQueueCapacity"},
        ),
    ] = 10_000
    pull_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Pull pool: bound of its queue.",
            extra={"key": "pullThreadPoolQueueCapacity"},
        ),
    ] = 100_000
    lite_pull_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Lite-pull pool: bound of its queue.",
            extra={"key": "litePullThreadPoolQueueCapacity"},
        ),
    ] = 100_000
    ack_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Ack pool: bound of its queue.",
            extra={"key": "ackThreadPoolQueueCapacity"},
        ),
    ] = 100_000
    query_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Query pool: bound of its queue.",
            extra={"key": "queryThreadPoolQueueCapacity"},
        ),
    ] = 20_000
    reply_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Reply pool: bound of its queue.",
            extra={"key": "replyThreadPoolQueueCapacity"},
        ),
    ] = 10_000
    put_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Put pool: bound of its queue.",
            extra={"key": "putThreadPoolQueueCapacity", "later": True},
        ),
    ] = 10_000
    admin_broker_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Admin pool: bound of its queue.",
            extra={"key": "adminBrokerThreadPoolQueueCapacity"},
        ),
    ] = 10_000
    heartbeat_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Heartbeat pool: bound of its queue.",
            extra={"key": "heartbeatThreadPoolQueueCapacity"},
        ),
    ] = 50_000
    client_manager_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Client pool: bound of its queue.",
            extra={"key": "clientManagerThreadPoolQueueCapacity"},
        ),
    ] = 1_000_000
    consumer_manager_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Consumer pool: bound of its queue.",
            extra={"key": "consumerManagerThreadPoolQueueCapacity"},
        ),
    ] = 1_000_000
    load_balance_thread_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Assignment pool: bound of its queue.",
            extra={"key": "loadBalanceThreadPoolQueueCapacity"},
        ),
    ] = 100_000
    end_transaction_pool_queue_capacity: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Transaction pool: bound of its queue.",
            extra={"key": "endTransactionPoolQueueCapacity"},
        ),
    ] = 100_000

    # Overload
    broker_fast_failure_enable: Annotated[
        bool,
        Meta(
            description="Answer SYSTEM_BUSY to requests that waited too long.",
            extra={"key": "brokerFastFailureEnable", "hot": True},
        ),
    ] = True
    wait_time_mills_in_send_queue: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="Send pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInSendQueue", "unit": "ms", "hot": True},
        ),
    ] = 200
    wait_time_mills_in_pull_queue: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Pull pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInPullQueue", "unit": "ms", "hot": True},
        ),
    ] = 5_000
    wait_time_mills_in_lite_pull_queue: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Lite-pull pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInLitePullQueue", "unit": "ms", "hot": True},
        ),
    ] = 5_000
    wait_time_mills_in_heartbeat_queue: Annotated[
        int,
        Meta(
            ge=1_000,
            le=120_000,
            description="Heartbeat pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInHeartbeatQueue", "unit": "ms", "hot": True},
        ),
    ] = 31_000
    wait_time_mills_in_transaction_queue: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Transaction pool: how long a request may wait.",
            extra={
                "key": "waitTimeMillsInTransactionQueue",
                "unit": "ms",
                "hot": True,
            },
        ),
    ] = 3_000
    wait_time_mills_in_ack_queue: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Ack pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInAckQueue", "unit": "ms", "hot": True},
        ),
    ] = 3_000
    wait_time_mills_in_admin_broker_queue: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Admin pool: how long a request may wait.",
            extra={"key": "waitTimeMillsInAdminBrokerQueue", "unit": "ms", "hot": True},
        ),
    ] = 5_000
    os_page_cache_busy_time_out_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=60_000,
            description=(
                "An append that takes longer makes the store busy: "
                "sends that came before it ended are refused."
            ),
            extra={"key": "osPageCacheBusyTimeOutMills", "unit": "ms", "hot": True},
        ),
    ] = 1_000

    @property
    def high_water_bytes(self) -> int:
        """Unsent bytes at which a connection is no longer read."""
        return self.write_buffer_high_water_mark_bytes or HIGH_WATER_BYTES

    @property
    def low_water_bytes(self) -> int:
        """Unsent bytes at which it is read again."""
        return self.write_buffer_low_water_mark_bytes or min(
            LOW_WATER_BYTES, self.high_water_bytes // 4
        )
