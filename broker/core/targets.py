"""The target of a stored message: topic and queue in its properties, if they are valid.

Halves, delayed messages and timers have it in REAL_TOPIC and REAL_QID. These are read from the log,
so no value is trusted: a queue id must fit the field of a record, and the topic must not be one
that the broker reads itself, or the message would circulate for ever.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aerobee.broker.core.names import is_sendable

QUEUE_ID_MAX: Final = (1 << 31) - 1
"""The largest queue id that a record can hold."""
DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class Target(NamedTuple):
    """Topic and queue that a message is to be stored in."""

    topic: str
    queue_id: int


def queue_id_of(text: str | None) -> int | None:
    """The queue id in a property; None if it is not one."""
    if text is None or not DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if number <= QUEUE_ID_MAX else None


def target(topic: str | None, queue_id: str | None) -> Target | None:
    """The target in two properties; None if nothing can be delivered there."""
    number = queue_id_of(queue_id)
    if not topic or number is None or not is_sendable(topic):
        return None
    return Target(topic, number)
