"""How ranges are pulled, and what comes out: the words between options, tasks and fetcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["FETCH_OFFSETS", "Chunk", "Pulling"]

FETCH_OFFSETS: Final = 1024
BULK_BYTES: Final = 4_194_304
"""Asked of a broker that answers as much as that; others ignore it."""
READ_AHEAD_BYTES: Final = 16 << 20
EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulling:
    """How to pull. An expression other than `*` makes the broker filter, tags by hash only."""

    group: str
    expression: str = EVERYTHING
    expression_type: str = "TAG"
    batch_size: int = FETCH_OFFSETS
    """The most messages asked for at once."""
    window: int = 8
    timeout_ms: int = 3000
    bulk_bytes: int | None = BULK_BYTES
    """The most that one answer of a broker that can shall have; None for that broker's own way."""
    read_ahead_bytes: int = READ_AHEAD_BYTES
    """With so much in hand and on its way only the first fetch asks for more."""
    fail_on_data_loss: bool = True

    @property
    def answer_bytes(self) -> int | None:
        """What is asked for at once: all of the window together are no more than is read ahead."""
        if self.bulk_bytes is None:
            return None
        fetches = self.window if self.dense else 1
        return max(1, min(self.bulk_bytes, self.read_ahead_bytes // fetches))

    @property
    def dense(self) -> bool:
        """Whether every offset is expected to come."""
        return self.expression == EVERYTHING and self.expression_type == "TAG"


class Chunk(NamedTuple):
    """Whole records with rising offsets, from `first_offset` on; `starts` are their places."""

    first_offset: int
    buffer: bytes | memoryview
    starts: list[int]
