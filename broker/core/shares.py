"""What one may have of a capacity that all share: the less, the less is left."""

from __future__ import annotations

from typing import Final

__all__ = ["share"]

PARTS: Final = 8


def share(most: int, left: int, least: int) -> int:
    """How much one may have while `left` is free: at most `most`, at least `least`.

    So a few can take much of them while nobody else does, and never all: each of them that takes
    what it may leaves eight ninths of the free ones to the next.
    """
    return min(most, max(least, left // PARTS))
