"""The priority of a message: a number in a property. Where nothing else is asked, it is the queue.

Source: grpc §8 (MessageConst, Message.getPriority).
"""

from __future__ import annotations

import re
from typing import Final

PRIORITY: Final = "_SYS_MSG_PRIORITY_"
"""The name of the property."""
PRIORITY_MAX: Final = (1 << 31) - 1
NUMBER: Final = re.compile(r"[+]?0*(\d{1,10})")
"""Digits of any script, as Java's `Integer.parseInt` reads them."""


def priority_of(text: str | None) -> int | None:
    """The priority that a property says, from 0 on; None where there is none, or no such number."""
    digits = None if text is None else NUMBER.fullmatch(text)
    if digits is None:
        return None
    number = int(digits[1])
    return number if number <= PRIORITY_MAX else None
