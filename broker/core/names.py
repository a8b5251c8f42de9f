"""Names of topics and groups: the one validator for all requests.

A name becomes a directory of the store, a key of every table and a word in log lines, so no name is
accepted before this check. The messages are those that clients of RocketMQ know. Source: semantics
§4.2 (TopicValidator).
"""

import re
from typing import Final

from aerobee.broker.errors import NameIllegal, NoPermission
from aerobee.store.format.system_names import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    REVIVE_LOG_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    WHEEL_TOPIC,
)

TOPIC_MAX_CHARS: Final = 127
LONG_TOPIC_MAX_CHARS: Final = 255
"""The limit of retry and dead-letter topics, and of any topic found in a store."""
GROUP_MAX_CHARS: Final = 120
GROUP_STORED_MAX_CHARS: Final = 248
"""A longer group found in a store is served as long as `%RETRY%` + group is a legal file name."""

FORBIDDEN_TO_SEND: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        # The Java broker accepts these two from clients, which breaks it.
        WHEEL_TOPIC,
    }
)

ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
ALLOWED_TEXT: Final = "^[%|a-zA-Z0-9_-]+$"


def topic_problem(topic: str, *, stored: bool = False) -> str | None:
    """Why `topic` is not a valid topic name, or None if it is.

    `stored` names were valid when they were written: they may have the greatest length, and a retry
    topic of POP the plus sign that only a broker writes.
    """
    if stored and topic.startswith(RETRY_PREFIX):
        topic = topic.replace("+", "_", 1)
    long = stored or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return problem("topic", topic, LONG_TOPIC_MAX_CHARS if long else TOPIC_MAX_CHARS)


def group_problem(group: str, *, stored: bool = False) -> str | None:
    """Why `group` is not a valid group name, or None if it is."""
    return problem("group", group, GROUP_STORED_MAX_CHARS if stored else GROUP_MAX_CHARS)


def problem(kind: str, name: str, max_chars: int) -> str | None:
    """The first rule that `name` breaks, with the message of the Java broker."""
    if not name.strip():
        return f"The specified {kind} is blank."
    if ALLOWED.fullmatch(name) is None:
        return f"The specified {kind} contains illegal characters, allowing only {ALLOWED_TEXT}"
    if len(name) > max_chars:
        return f"The specified {kind} is longer than {kind} max length."
    return None


def check_topic(topic: str) -> None:
    """Refuse an invalid topic name. Raises: NameIllegal."""
    if remark := topic_problem(topic):
        raise NameIllegal(remark)


def check_group(group: str) -> None:
    """Refuse an invalid group name. Raises: NameIllegal."""
    if remark := group_problem(group):
        raise NameIllegal(remark)


def is_sendable(topic: str) -> bool:
    """Whether clients may send to the topic, not only the broker itself."""
    return topic not in FORBIDDEN_TO_SEND and not topic.startswith(REVIVE_LOG_PREFIX)


def is_deliverable(topic: str) -> bool:
    """Whether a timer may deliver to the topic: what clients send to, and the revive log."""
    return topic not in FORBIDDEN_TO_SEND


def check_sendable(topic: str) -> None:
    """Refuse a topic that only the broker itself writes to. Raises: NoPermission."""
    if not is_sendable(topic):
        raise NoPermission(f"Sending message to topic[{topic}] is forbidden.")


def retry_topic(group: str) -> str:
    """The topic of messages that `group` sent back."""
    return RETRY_PREFIX + group


def was_delivered(topic: str, group: str, origin: str | None) -> bool:
    """Whether a message stored in `topic` can be one that the group has received from `origin`.

    Consumers name the first topic of a message that comes from a retry topic of their group. The
    first form of those of POP does not count: it may be the retry topic of another group.
    """
    retry = retry_topic(group)
    return topic in (origin, retry, f"{retry}+{origin}")


def dead_letter_topic(group: str) -> str:
    """The topic of messages that exceeded the retries of `group`."""
    return DLQ_PREFIX + group


def is_system_group(group: str) -> bool:
    """Whether a consumer group belongs to the broker itself, for metrics: in any case of letters.

    Source: semantics §20.1 (MixAll.isSysConsumerGroup).
    """
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)
