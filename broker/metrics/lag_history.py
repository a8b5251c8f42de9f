"""The lag of consumer groups over the last hour, for GET_CONSUME_STATS.

In: the lag of all groups, every ten minutes. Out: the samples of one group in one topic. They begin
anew with each start of the broker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import trio

from aerobee.broker.metrics.figures import LAGS_MAX
from aerobee.broker.metrics.samples import HOUR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.broker.metrics.figures import GroupLag


class LagSample(NamedTuple):
    """The groups that were behind at one time."""

    at_ms: int
    behind: dict[tuple[str, str], int]
    """(group, topic) → messages that it has not consumed, those that POP puts again included."""
    complete: bool
    """Whether a pair that is not in `behind` was not behind: not with more pairs than are read."""


class LagHistory:
    """The service: as many samples as the rates of an hour have, as far from each other."""

    def __init__(
        self, read: Callable[[], Awaitable[Sequence[GroupLag]]], now_ms: Callable[[], int]
    ) -> None:
        self._read = read
        self._now_ms = now_ms
        self._samples: deque[LagSample] = deque(maxlen=HOUR.size)
        self._deleted: list[Callable[[tuple[str, str]], bool]] = []
        """The groups and topics deleted while a sample is taken, which still has their lag."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Sample until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(HOUR.period_s)
            await self.sample()

    async def sample(self) -> None:
        """Add the lag of all groups as it is now."""
        self._deleted.clear()
        lags = await self._read()
        behind: dict[tuple[str, str], int] = {}
        for lag in lags:
            pair = (lag.group, lag.topic)
            if lag.behind and not any(deleted(pair) for deleted in self._deleted):
                behind[pair] = behind.get(pair, 0) + lag.behind
        self._samples.append(LagSample(self._now_ms(), behind, len(lags) < LAGS_MAX))

    def of(self, group: str, topic: str) -> list[tuple[int, int]]:
        """Times in ms and the lag in messages then, the oldest first."""
        pair = (group, topic)
        return [
            (sample.at_ms, sample.behind.get(pair, 0))
            for sample in self._samples
            if sample.complete or pair in sample.behind
        ]

    def delete_topic(self, topic: str) -> None:
        """Remove the lags in a deleted topic: one made anew has no history."""
        self._remove(lambda pair: pair[1] == topic)

    def delete_group(self, group: str) -> None:
        """Remove the lags of a deleted group."""
        self._remove(lambda pair: pair[0] == group)

    def _remove(self, deleted: Callable[[tuple[str, str]], bool]) -> None:
        self._deleted.append(deleted)
        for sample in self._samples:
            for pair in [pair for pair in sample.behind if deleted(pair)]:
                del sample.behind[pair]
