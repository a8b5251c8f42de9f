"""How far each group has come in each queue: `topic@group` → queue → next message to consume.

Commits overwrite: no range check and no order, a smaller offset is stored like any other. A
negative offset means "none", whoever stored it. The table lives in `consumerOffset.json`; a crash
loses the commits since the last save, and their messages come again. Source: semantics §3.1–3.2
(ConsumerOffsetManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.errors import LimitReached
from broker.tables.data_version import DataVersion, bumped, version_document, version_of
from broker.tables.documents import mapping, unknown_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["NO_OFFSET", "Clamped", "ConsumerOffsetTable"]

NO_OFFSET: Final = -1
SEPARATOR: Final = "@"
MARKS: Final = "SPARK_SINK_"
"""Groups of these names keep no positions: batch numbers, by the number of a Spark partition."""


class Clamped(NamedTuple):
    """An offset that lay beyond its queue: what it was, and the queue's end that replaced it."""

    topic: str
    group: str
    queue_id: int
    consumer_offset: int
    max_offset: int


class ConsumerOffsetTable:
    """Committed offsets of all groups.

    Law: `count` is the number of (topic, group, queue) entries and never passes `max_entries`;
    `changes` moves with every change, so that an unchanged table need not be saved.
    """

    def __init__(self, *, version_step: int = 500, max_entries: int = 1_000_000) -> None:
        self.entries: dict[str, dict[int, int]] = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue id) → where an administrator put the group; not heard of yet."""
        self.version = DataVersion()
        self.version_step = version_step
        self.max_entries = max_entries
        self.count = 0
        self.commits = 0
        self.changes = 0
        self.popped = 0
        """Offsets that speak of check points: they must not reach the disk before those."""
        self.extra: dict[str, Any] = {}

    def commit(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> bool:
        """Store what `group` consumes next, unless a reset of it is still to be heard of.

        Every `version_step` commits the version moves. Returns whether it was stored.
        Raises: LimitReached for a new entry in a full table.
        """
        if self.resets and (group, topic, queue_id) in self.resets:
            return False
        key = f"{topic}{SEPARATOR}{group}"
        queues = self.entries.get(key)
        if queues is None or queue_id not in queues:
            if self.count >= self.max_entries:
                raise LimitReached("consumer offset", self.max_entries)
            self.count += 1
            if queues is None:
                queues = self.entries[key] = {}
        queues[queue_id] = consumer_offset
        self.changes += 1
        self.commits += 1
        if self.commits % self.version_step == 0:
            self.version = bumped(self.version, now_ms)
        return True

    def commit_popped(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> bool:
        """As `commit`, for what was handed out or put because of the messages before the offset."""
        self.popped += 1
        return self.commit(group, topic, queue_id, consumer_offset, now_ms)

    def reset(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> None:
        """Put a group elsewhere: its consumer hears of it with its next pull of the queue.

        Until then its commits are left aside. Raises: LimitReached.
        """
        self.resets.pop((group, topic, queue_id), None)
        self.commit(group, topic, queue_id, consumer_offset, now_ms)
        self.resets[group, topic, queue_id] = consumer_offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a reset put the group, told once; None when there is nothing to tell."""
        return self.resets.pop((group, topic, queue_id), None)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or NO_OFFSET."""
        queues = self.entries.get(f"{topic}{SEPARATOR}{group}")
        if queues is None:
            return NO_OFFSET
        return max(queues.get(queue_id, NO_OFFSET), NO_OFFSET)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue → offset of one group and topic; negative values mean "none"."""
        return self.entries.get(f"{topic}{SEPARATOR}{group}", {})

    def topics_of(self, group: str) -> list[str]:
        """Topics that `group` has offsets for, sorted."""
        return sorted(topic for topic, of in self.pairs() if of == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of `topic`, sorted."""
        return sorted(group for of, group in self.pairs() if of == topic)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(topic, group) of every entry."""
        for key in self.entries:
            yield split_key(key)

    def delete_topic(self, topic: str) -> None:
        """Forget what every group consumed of `topic`."""
        self.delete_keys(key for key in self.entries if split_key(key)[0] == topic)

    def delete_group(self, group: str) -> None:
        """Forget everything `group` consumed."""
        self.delete_keys(key for key in self.entries if split_key(key)[1] == group)

    def delete_keys(self, keys: Iterator[str]) -> None:
        """Drop whole `topic@group` entries."""
        self.changes += 1
        for key in list(keys):
            topic, group = split_key(key)
            for queue_id in self.entries.pop(key):
                self.resets.pop((group, topic, queue_id), None)
                self.count -= 1

    def clamp(self, max_offset: Callable[[str, int], int]) -> list[Clamped]:
        """Pull back what lies beyond the end of its queue, and say what was pulled back.

        Called once after recovery: the log is the truth, and an offset past its end would skip the
        messages stored there next. Marks of Spark sinks are no offsets and stay.
        `max_offset(topic, queue_id)` is 0 for an unknown queue.
        """
        cut: list[Clamped] = []
        for key, queues in self.entries.items():
            topic, group = split_key(key)
            if group.startswith(MARKS):
                continue
            for queue_id, consumer_offset in queues.items():
                end = max_offset(topic, queue_id) if consumer_offset > 0 else consumer_offset
                if consumer_offset > end:
                    queues[queue_id] = end
                    self.changes += 1
                    cut.append(Clamped(topic, group, queue_id, consumer_offset, end))
        return cut

    # -- the file --------------------------------------------------------------------------------

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace everything by a decoded `consumerOffset.json`.

        `groupTopicMap` is derived and not read. Raises: ValueError when it is none; the table then
        stays as it was.
        """
        entries = {
            str(key): {int(queue_id): int(at) for queue_id, at in queues.items()}
            for key, queues in mapping(document, "offsetTable").items()
        }
        version = version_of(document)
        self.entries = {key: queues for key, queues in entries.items() if SEPARATOR in key}
        self.version = version
        self.count = sum(map(len, self.entries.values()))
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """What `consumerOffset.json` holds, detached: it may be encoded in a thread."""
        topics: dict[str, list[str]] = {}
        for topic, group in self.pairs():
            topics.setdefault(group, []).append(topic)
        return {
            **self.extra,
            "dataVersion": version_document(self.version),
            "groupTopicMap": topics,
            "offsetTable": {key: dict(queues) for key, queues in self.entries.items()},
        }


OUR_KEYS: Final = frozenset({"dataVersion", "groupTopicMap", "offsetTable"})


def split_key(key: str) -> tuple[str, str]:
    """`topic@group` → (topic, group). Neither may hold an `@`."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
