"""How often a group's messages are tried again, when, and what a message says of its tries.

Source: semantics §7 (AbstractSendMessageProcessor.consumerSendMsgBack, handleRetryAndDLQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.subscription_group import SubscriptionGroupConfig

__all__ = ["max_tries", "next_level", "returned", "tried_again"]

KNOWS_TRIES: Final = 121
"""V3_4_9: from here on a client's own limit counts."""
TRIES_MAX: Final = (1 << 31) - 1
FIRST_LEVEL: Final = 3
"""The delay level of the first try after the first delivery: 10 s."""


def max_tries(group: SubscriptionGroupConfig, asked: int | None, client_version: int) -> int:
    """How often a message is delivered again before it is given up."""
    if asked is not None and client_version >= KNOWS_TRIES:
        return asked
    return group.retry_max_times


def tried_again(reconsume_times: int) -> int:
    """One more try, within what the field of a record holds."""
    return min(reconsume_times + 1, TRIES_MAX)


def next_level(reconsume_times: int, delay_level: int, limit: int) -> int | None:
    """The delay level of the next try; None when there is none any more.

    `delay_level` is what the consumer asks for: 0 leaves it to the broker, less gives up.
    """
    if delay_level < 0 or reconsume_times >= limit:
        return None
    return delay_level or FIRST_LEVEL + reconsume_times


def returned(
    properties: dict[str, str], topic: str, message_id: str, level: int | None
) -> dict[str, str]:
    """The properties of a message that came back: where it was first, and when it goes on."""
    return {
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": message_id,
        **properties,
        "WAIT": "false",
        "DELAY": str(level or 0),
    }
