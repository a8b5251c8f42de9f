"""Whole numbers in texts of others: arguments, properties of messages, answers."""

from __future__ import annotations

import re
from typing import Final

DIGITS: Final = re.compile("[0-9]{1,19}")
"""As many as a signed number of 64 bits has. `str.isdigit` also takes `²`, which `int` refuses."""


FIRST_SECONDS, LAST_SECONDS = 10**8, 10**11 - 1
"""Times of these lengths are in seconds: as milliseconds they would lie before April 1973."""


def whole_number(text: str) -> int | None:
    """The number that a text of at most 19 decimal digits is; None for any other text."""
    return int(text) if DIGITS.fullmatch(text) else None


def epoch_ms(text: str) -> int | None:
    """Milliseconds since 1970; None for a text that is no whole number.

    Raises: ValueError for seconds, which would lie in front of every message.
    """
    number = whole_number(text)
    if number is not None and FIRST_SECONDS <= number <= LAST_SECONDS:
        raise ValueError(f"these are seconds; write milliseconds since 1970, {number}000")
    return number
