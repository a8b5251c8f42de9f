"""The first pulls of consumers after a start: they may have got more than the log has.

A power cut under ASYNC_FLUSH takes the last messages, a promoted slave may lack them, and so does
an older copy of the directory. A consumer that ran meanwhile goes on behind them: of the messages
that come in their place it would skip as many. So the first pull of a queue over each connection
is compared with the end that the queue had at the start: queues move between consumers that connect
one after the other, and an answer may be lost. From behind that end the group goes back to its
committed offset, also where a consumer has been told to seek there: getting messages again is the
lesser evil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Key: TypeAlias = tuple[str, str, int]
    """Group, topic, queue id."""

WITHIN_MS: Final = 600_000
"""How long consumers have to come back; later ones are believed."""
ANY_CONNECTION: Final = -1
QUEUES_MAX: Final = 100_000
"""Queues of groups that are remembered meanwhile; the first pulls of others are believed."""

log = structlog.stdlib.get_logger(__name__)


class EarlyCommit(NamedTuple):
    """A commit behind the end of then, in front of the first pull: from a tool, or a consumer."""

    connection: int
    """The number of the connection whose pull it does not justify; `ANY_CONNECTION`: of none."""
    before: int
    """The offset that was committed before it."""


class FirstPulls:
    """The groups that have pulled since the start, and the ends that queues had at that time."""

    def __init__(self) -> None:
        self.awaited = False
        """Whether first pulls are looked at."""
        self._until_ms = 0
        self._ends: dict[tuple[str, int], int] = {}
        """Topic and queue id → end, of queues with committed offsets."""
        self._pulled: set[tuple[Key, int]] = set()
        """With the connection."""
        self._early: dict[Key, EarlyCommit] = {}

    def begin(
        self, max_offset: Callable[[str, int], int], now_ms: int
    ) -> Callable[[str, int], int]:
        """Await first pulls from now on; `now_ms` is monotonic.

        Returns a `max_offset(topic, queue_id)` to be called for all queues with committed offsets:
        what it returns is remembered as their end.
        """
        self.end()
        self.awaited, self._until_ms = True, now_ms + WITHIN_MS

        def end_of(topic: str, queue_id: int) -> int:
            end = self._ends[topic, queue_id] = max_offset(topic, queue_id)
            return end

        return end_of

    def end(self) -> None:
        """Believe all pulls from now on."""
        self.awaited = False
        self._ends, self._pulled, self._early = {}, set(), {}

    def expire(self, now_ms: int) -> None:
        """End when the time is over; `now_ms` is monotonic."""
        if self.awaited and now_ms >= self._until_ms:
            self.end()

    def forget(self, topic: str) -> None:
        """Forget the queues of a topic that was deleted: of the same name there may be others."""
        self._ends = {queue: end for queue, end in self._ends.items() if queue[0] != topic}
        self._early = {key: early for key, early in self._early.items() if key[1] != topic}

    def commit(
        self, key: Key, commit_offset: int, connection: int, committed: int, *, consumes: bool
    ) -> None:
        """Note a commit that is about to take the place of `committed`. Only while `awaited`.

        `consumes`: it comes from a member of the group, and no pull over another connection may
        rely on it.
        """
        if (key, connection) in self._pulled or len(self._early) >= QUEUES_MAX:
            return
        if key not in self._early and self.is_beyond(key, commit_offset):
            self._early[key] = EarlyCommit(ANY_CONNECTION if consumes else connection, committed)

    def pull(self, key: Key, queue_offset: int, connection: int, committed: int) -> int | None:
        """The offset to which a group has to go back; None: it may go on. Only while `awaited`.

        `committed` is negative where nothing is. A tool that has committed an offset behind that
        end has meant it.
        """
        if (key, connection) in self._pulled or len(self._pulled) >= QUEUES_MAX:
            return None
        self._pulled.add((key, connection))
        early = self._early.pop(key, None)
        if committed < 0 or not self.is_beyond(key, queue_offset):
            return None
        if early is not None and early.connection in (ANY_CONNECTION, connection):
            committed = early.before
        if committed < 0 or self.is_beyond(key, committed):
            return None
        group, topic, queue_id = key
        log.warning(
            "consumer_offset.beyond",
            topic=topic,
            group=group,
            queue_id=queue_id,
            pulled=queue_offset,
            consumer_offset=committed,
        )
        return committed

    def is_beyond(self, key: Key, offset: int) -> bool:
        """Whether an offset lies behind the end that its queue had at the start."""
        end = self._ends.get(key[1:])
        return end is not None and offset > end
