"""Topics that were deleted and not made anew, and where the log ended then.

A delayed message, a timer or a half may be due after its topic was deleted. Storing it would bring
the topic's queue back, and after a crash the topic. A topic that is merely unknown says nothing of
the kind: made by its first send, it may be missing from a table after a crash. So a message counts
as deleted only where its topic is known to have been deleted behind it in the log. A message that
was stored later was accepted for a topic made anew, whatever the tables have lost since.

A topic made anew is forgotten here: what still waited from before comes to it, as in Java brokers.
At most `limit` topics are remembered, then the oldest is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

KEY: Final = "deletedTopics"


class DeletedTopics:
    """Deleted topic → the end of the log at its deletion, oldest deletion first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.log_ends: dict[str, int] = {}

    def add(self, topic: str, log_end: int) -> None:
        """Remember a topic that is deleted now; `log_end` is a physical offset."""
        self.log_ends.pop(topic, None)
        self.log_ends[topic] = log_end
        while len(self.log_ends) > self.limit:
            del self.log_ends[next(iter(self.log_ends))]

    def forget(self, topic: str) -> None:
        """The topic exists again."""
        self.log_ends.pop(topic, None)

    def covers(self, topic: str, physical_offset: int) -> bool:
        """Whether the topic was deleted after the message at this offset was stored."""
        return physical_offset < self.log_ends.get(topic, 0)

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

    def load(self, document: Mapping[str, Any], existing: Container[str]) -> None:
        """Take them from a decoded `topics.json`, but for those that exist.

        Raises: ValueError when they are malformed; nothing has changed then.
        """
        stored = msgspec.convert(mapping(document, KEY), dict[str, int])
        self.log_ends = {}
        for topic, log_end in stored.items():
            if topic not in existing:
                self.add(topic, log_end)

    def document(self) -> dict[str, dict[str, int]]:
        """Their field of `topics.json`, which Java brokers ignore; none while there are none."""
        return {KEY: self.log_ends.copy()} if self.log_ends else {}
