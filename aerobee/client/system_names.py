"""Topics and groups that brokers and their tools make for themselves.

Source: admin §8, spark §9.
"""

from __future__ import annotations

__all__ = [
    "DLQ_PREFIX",
    "RETRY_PREFIX",
    "SYSTEM_GROUPS",
    "SYSTEM_PREFIXES",
    "SYSTEM_TOPICS",
    "is_system_group",
    "is_system_topic",
]

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
"""What their names begin with."""


def is_system_topic(name: str) -> bool:
    """Whether a topic is the brokers' own, as far as its name tells."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES) or name.endswith(REPLY_SUFFIX)


def is_system_group(name: str) -> bool:
    """Whether a group is the brokers' own or that of their tools."""
    return name.startswith(SYSTEM_GROUPS)
