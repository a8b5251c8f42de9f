"""The system topics and groups, which brokers and their tools create.

Source: admin §8, spark §9.
"""

from __future__ import annotations

SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
    }
)
SYSTEM_PREFIXES = ("RMQ_SYS_", "rmq_sys_")
REPLY_SUFFIX = "_REPLY_TOPIC"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_GROUPS = ("CID_RMQ_SYS_", "CID_ONS", "TOOLS_CONSUMER", "SELF_TEST", "FILTERSRV_")
"""The prefixes of system groups."""


def is_system_topic(name: str) -> bool:
    """Whether a name is that of a system topic."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES) or name.endswith(REPLY_SUFFIX)


def is_system_group(name: str) -> bool:
    """Whether a name is that of a system group of brokers or their tools."""
    return name.startswith(SYSTEM_GROUPS)
