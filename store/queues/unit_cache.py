"""Blocks of written units that readers have asked for lately, of all queues together.

A consumer reads its queue in order, a few units at a time: of one block it asks many times, and
so does each group that reads the same. Written units never change while the store runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

BLOCK_BYTES: Final = 4_000
BLOCKS_MAX: Final = 1_024
"""Blocks that are kept, 4 MB; the oldest is dropped first."""


class UnitCache:
    """(queue, number of the block) → its bytes. For the loop."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, int], bytes] = {}

    def keep(self, queue: Hashable, number: int, data: bytes) -> None:
        """Keep a block."""
        if len(self.kept) >= BLOCKS_MAX:
            del self.kept[next(iter(self.kept))]
        self.kept[queue, number] = data
