"""Retries: how often and when a group's messages are redelivered, and their properties.

Source: semantics §7 (AbstractSendMessageProcessor.consumerSendMsgBack, handleRetryAndDLQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig

ORIGIN: Final = "RETRY_TOPIC"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
KNOWS_TRIES: Final = 121
"""V3_4_9: from here on a client's own limit counts."""
TRIES_MAX: Final = (1 << 31) - 1
FIRST_LEVEL: Final = 3
"""The delay level of the first retry: 10 s."""


def max_tries(group: SubscriptionGroupConfig, wanted: int | None, client_version: int) -> int:
    """How often a message is redelivered before it becomes a dead letter."""
    if wanted is not None and client_version >= KNOWS_TRIES:
        return wanted
    return group.retry_max_times


def tried_again(reconsume_times: int) -> int:
    """The number of the next try, within the field of a record."""
    return min(reconsume_times + 1, TRIES_MAX)


def next_level(reconsume_times: int, delay_level: int, limit: int) -> int | None:
    """The delay level of the next retry; None when there are no more.

    `delay_level` is the consumer's wish: 0 leaves it to the broker, less than 0 means dead letter.
    """
    if delay_level < 0 or reconsume_times >= limit:
        return None
    return delay_level or FIRST_LEVEL + reconsume_times


def returned(
    properties: dict[str, str], topic: str, message_id: str, level: int | None
) -> dict[str, str]:
    """The properties of a message that was sent back: its origin, and its next delivery."""
    return {ORIGIN: topic, ORIGIN_ID: message_id, **properties, **_next(level)}


def without_origin(properties: dict[str, str], level: int) -> dict[str, str]:
    """The properties of a message that was sent back, without room for its origin."""
    own = {name: text for name, text in properties.items() if name not in (ORIGIN, ORIGIN_ID)}
    return own | _next(level)


def _next(level: int | None) -> dict[str, str]:
    return {"WAIT": "false", "DELAY": str(level or 0)}
