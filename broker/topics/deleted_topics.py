"""Topics that were deleted, and where the log ended then.

A delayed message, a timer or a half may be due after its topic was deleted. Storing it would bring
the topic's queue back, and after a crash the topic. A topic that is merely unknown says nothing of
the kind: made by its first send, it may be missing from a table after a crash. So a message counts
as deleted only where its topic is known to have been deleted behind it in the log. A message that
was stored later was accepted for a topic made anew, whatever the tables have lost since.

To a topic made anew comes what still waited from before, as in Java brokers. But a start that
builds its queues from the log passes over the messages of before: nothing else tells of their
deletion. At most `limit` topics are remembered, then the oldest is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

KEY: Final = "deletedTopics"


class DeletedTopics:
    """Topic → the end of the log at its last deletion, oldest deletion first."""

    def __init__(self, limit: int, existing: Container[str]) -> None:
        """`existing` are the topics that there are now."""
        self.limit = limit
        self._existing = existing
        self.log_ends: dict[str, int] = {}

    def add(self, topic: str, log_end: int) -> None:
        """Remember a topic that is deleted now; `log_end` is a physical offset."""
        self.log_ends.pop(topic, None)
        self.log_ends[topic] = log_end
        while len(self.log_ends) > self.limit:
            del self.log_ends[next(iter(self.log_ends))]

    def removed(self, topic: str, physical_offset: int) -> bool:
        """Whether the topic was deleted after the message at this offset was stored."""
        return physical_offset < self.log_ends.get(topic, 0)

    def covers(self, topic: str, physical_offset: int) -> bool:
        """Whether it was, and has not been made anew since."""
        return topic not in self._existing and self.removed(topic, physical_offset)

    def fit(self, log: range) -> bool:
        """Keep what concerns this log; whether anything changed.

        A power cut may have shortened it: what is stored next is not from before the deletion.
        """
        fitting = {
            topic: min(end, log.stop) for topic, end in self.log_ends.items() if end > log.start
        }
        changed = fitting != self.log_ends
        self.log_ends = fitting
        return changed

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Take them from a decoded `topics.json`.

        Raises: ValueError when they are malformed; nothing has changed then.
        """
        stored = msgspec.convert(mapping(document, KEY), dict[str, int])
        self.log_ends = {}
        for topic, log_end in stored.items():
            self.add(topic, log_end)

    def document(self) -> dict[str, dict[str, int]]:
        """Their field of `topics.json`, which Java brokers ignore; none while there are none."""
        return {KEY: self.log_ends.copy()} if self.log_ends else {}
