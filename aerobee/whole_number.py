"""Whole numbers in texts of others: arguments, properties of messages, answers."""

from __future__ import annotations

import re
from typing import Final

DIGITS: Final = re.compile("[0-9]{1,19}")
"""As many as a signed number of 64 bits has. `str.isdigit` also takes `²`, which `int` refuses."""


def whole_number(text: str) -> int | None:
    """The number that a text of at most 19 decimal digits is; None for any other text."""
    return int(text) if DIGITS.fullmatch(text) else None
