"""How ranges are pulled, and the resulting chunks: values shared by options, tasks and fetcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

FETCH_OFFSETS: Final = 1024
BULK_BYTES: Final = 4_194_304
"""The response size that brokers with bulk pulls are asked for; other brokers ignore it."""
READ_AHEAD_BYTES: Final = 16 << 20
EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """The settings of pulls. Unless the expression is `*` the broker filters, tags by hash only."""

    group: str
    expression: str = EVERYTHING
    expression_type: str = "TAG"
    batch_size: int = FETCH_OFFSETS
    """The most messages per pull."""
    window: int = 8
    timeout_ms: int = 3000
    bulk_bytes: int | None = BULK_BYTES
    """The largest response of a broker with bulk pulls; None for the broker's default."""
    read_ahead_bytes: int = READ_AHEAD_BYTES
    """Above so many bytes buffered and in flight only the first fetch pulls again."""
    fail_on_data_loss: bool = True

    @property
    def answer_bytes(self) -> int | None:
        """The response size to ask for: the whole window stays within the read-ahead."""
        if self.bulk_bytes is None:
            return None
        fetches = self.window if self.dense else 1
        return max(1, min(self.bulk_bytes, self.read_ahead_bytes // fetches))

    @property
    def dense(self) -> bool:
        """Whether every offset is expected in the responses."""
        return self.expression == EVERYTHING and self.expression_type == "TAG"


class Chunk(NamedTuple):
    """Whole records with ascending offsets from `first_offset`; `starts` are their positions."""

    first_offset: int
    buffer: bytes | memoryview
    starts: list[int]
