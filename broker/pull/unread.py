"""Which groups lost messages to the clean-up before they had consumed them.

In: ranges of deleted queue offsets. Out: a count per group and topic, and a few lines of the log. A
group that consumes a topic and has stored no offset for one of its queues has read nothing of it; a
group that stored none for the topic is not one of its consumers, nor is one with the mark of a
Spark sink.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.consumers.consumer_offsets import MARKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.store.space.cleanup_queues import DeletedRange

BATCH: Final = 500
"""Pairs of group and topic that are checked in one step, about 1 ms."""
LINES_MAX: Final = 50
"""Groups named in the log per clean-up, those that lost most first; the metric has all."""

log = structlog.stdlib.get_logger(__name__)


class UnreadReport:
    """Compares deleted ranges with the consumer offsets, and counts per group."""

    def __init__(self, offsets: ConsumerOffsetTable, stats: BrokerStats) -> None:
        self.offsets = offsets
        self.stats = stats

    async def deleted(self, ranges: Sequence[DeletedRange]) -> None:
        """Count the deleted messages that each group had not consumed, and log them."""
        by_topic: dict[str, list[DeletedRange]] = defaultdict(list)
        for gone in ranges:
            by_topic[gone.topic].append(gone)
        lost: Counter[tuple[str, str]] = Counter()
        for number, (topic, group) in enumerate(list(self.offsets.pairs()), 1):
            unread = self.unread(group, topic, by_topic.get(topic, ()))
            if unread:
                lost[group, topic] = unread
                self.stats.group_out(group, topic).unread_deleted += unread
            if number % BATCH == 0:
                await trio.lowlevel.checkpoint()
        for (group, topic), messages in lost.most_common(LINES_MAX):
            log.warning("cleanup.unread_deleted", group=group, topic=topic, messages=messages)
        if len(lost) > LINES_MAX:
            log.warning("cleanup.unread_deleted_more", groups=len(lost) - LINES_MAX)

    def unread(self, group: str, topic: str, ranges: Sequence[DeletedRange]) -> int:
        """How many of the deleted messages of one topic the group had not consumed.

        None, where its offsets were deleted while others were looked at.
        """
        queues = self.offsets.queues(group, topic)
        if not queues or group.startswith(MARKS):
            return 0
        return sum(
            max(0, gone.end - max(gone.begin, queues.get(gone.queue_id, 0))) for gone in ranges
        )
