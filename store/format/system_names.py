"""The names of system topics and groups, each written here and nowhere else.

Brokers, their tools and clients of RocketMQ agree on them. Source: semantics §4.2, admin §8.
"""

from typing import Final

# ── Topics ──

RETRY_PREFIX: Final = "%RETRY%"
"""With a group behind it: what the group sent back. POP adds the topic."""
DLQ_PREFIX: Final = "%DLQ%"
"""With a group behind it: what exceeded the retries of the group."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
WHEEL_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Halves whose producers did not answer the checks."""
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
AUTO_CREATE_TOPIC: Final = "TBW102"
"""Its settings are those of topics that a send creates."""
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
REVIVE_LOG_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""With the cluster behind it: check points and acknowledgements of pops."""
MEMBERS_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers of one name find each other by such a topic; its route shows the true ids."""
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Behind the cluster: the answers of request-reply."""
TOPIC_PREFIX: Final = "RMQ_SYS_"
OWN_TOPIC_PREFIX: Final = "rmq_sys_"
"""Of the topics that brokers since 5.0 write to themselves."""

# ── Groups ──

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets are the progress in both queues of halves."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
REDRIVE_PREFIX: Final = "CID_RMQ_SYS_REDRIVE_"
"""With a group behind it: how far its dead letters are done with."""
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group with which tools read; every broker has it."""
BUILT_IN_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""The groups that every broker has."""
SYSTEM_GROUPS: Final = (SYSTEM_GROUP_PREFIX, "CID_ONS", TOOLS_GROUP, "SELF_TEST", "FILTERSRV_")
"""The prefixes of system groups."""
