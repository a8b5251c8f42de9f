"""Where a message that waits somewhere is meant to go: what its properties say, if that can be.

Halves, delayed messages and timers say it in REAL_TOPIC and REAL_QID. They are read from the log,
so every value is doubted: a queue id is a number that a record can hold, and no topic is one that
the broker reads itself, or what is delivered there would go round for ever.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aerobee.broker.core.names import is_sendable

__all__ = ["QUEUE_ID_MAX", "Target", "queue_id_of", "target"]

QUEUE_ID_MAX: Final = (1 << 31) - 1
"""What the field of a record holds."""
DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class Target(NamedTuple):
    """Where a message is to go."""

    topic: str
    queue_id: int


def queue_id_of(text: str | None) -> int | None:
    """A queue id as a property says it; None for what is none."""
    if text is None or not DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if number <= QUEUE_ID_MAX else None


def target(topic: str | None, queue_id: str | None) -> Target | None:
    """The two as properties say them; None where nothing can be delivered to."""
    number = queue_id_of(queue_id)
    if not topic or number is None or not is_sendable(topic):
        return None
    return Target(topic, number)
