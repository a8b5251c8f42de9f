"""The fair share of a common capacity: it shrinks with what is left."""

from __future__ import annotations

from typing import Final

PARTS: Final = 8


def share(most: int, left: int, least: int) -> int:
    """How much one user may take while `left` is free: at most `most`, at least `least`.

    So a few can take much while nobody else does, but never all: a user at its limit leaves eight
    ninths of the free capacity to the next.
    """
    return min(most, max(least, left // PARTS))
