"""The system topics and groups, which brokers and their tools create.

Source: admin §8, spark §9.
"""

from __future__ import annotations

from aerobee.store.format.system_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    CHECKPOINT_TOPIC,
    GIVEN_UP_TOPIC,
    OFFSET_MOVED_TOPIC,
    OWN_TOPIC_PREFIX,
    REPLY_SUFFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUPS,
    TOPIC_PREFIX,
)

SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        GIVEN_UP_TOPIC,
        OFFSET_MOVED_TOPIC,
        AUTO_CREATE_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
SYSTEM_PREFIXES = (TOPIC_PREFIX, OWN_TOPIC_PREFIX)


def is_system_topic(name: str) -> bool:
    """Whether a name is that of a system topic."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES) or name.endswith(REPLY_SUFFIX)


def is_system_group(name: str) -> bool:
    """Whether a name is that of a system group of brokers or their tools."""
    return name.startswith(SYSTEM_GROUPS)
