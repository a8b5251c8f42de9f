"""Committed offsets of consumer groups: `topic@group` → queue → next message to consume.

Commits overwrite: no range check and no order, a smaller offset is stored like any other. A
negative offset means "none". The table is saved in `consumerOffset.json`; a crash loses the commits
since the last save, and their messages are delivered again. With them are the resets that running
consumers have not got yet: after a start they still have their offsets of before. Source: semantics
§3.1–3.2 (ConsumerOffsetManager).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aerobee.broker.consumers.first_pulls import FirstPulls
from aerobee.broker.errors import LimitReached, NoPermission
from aerobee.broker.saved.data_version import bumped, version_document, version_of
from aerobee.broker.saved.documents import mapping, object_pieces, unknown_fields
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.store.format.system_names import REVIVE_GROUP, TRANSACTION_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
    """`topic@group` → queue → offset."""

NO_OFFSET: Final = -1
SEPARATOR: Final = "@"
OWN_GROUPS: Final = frozenset({TRANSACTION_GROUP, REVIVE_GROUP})
"""If a client moved these, transactions and popped messages would be lost."""
PARTS: Final = 8
"""The parts of the free capacity, of which one user may have one."""
OF_GROUP_PART: Final = 10
"""One group may have one in so many of the entries of the table."""
LEAST_OF_GROUP: Final = 256
"""Entries that a group may have even when the table is nearly full."""
MERGE_STEP: Final = 500
"""Topics and groups of a master that are looked at in one step of the loop."""
CLAMP_STEP: Final = 1_000
"""Offsets that are compared with the ends of their queues in one step of the loop."""
RESETS_MAX: Final = 100_000
"""Pending resets of topics made anew, each for a pull of a queue that may never come."""
MARKS: Final = "SPARK_SINK_"
"""Groups with this prefix store the last batch of a sink, not offsets."""


def share(most: int, left: int, least: int) -> int:
    """How much one user may take while `left` is free: at most `most`, at least `least`.

    So a few can take much while nobody else does, but never all: a user at its limit leaves eight
    ninths of the free capacity to the next.
    """
    return min(most, max(least, left // PARTS))


def check_not_own(group: str) -> None:
    """Refuse groups whose offsets are the progress of a service of the broker.

    Raises: NoPermission.
    """
    if group in OWN_GROUPS:
        raise NoPermission(f"the group[{group}] belongs to the broker itself")


class ClampedOffset(NamedTuple):
    """An offset beyond its queue: its old value, and the queue's end that replaced it."""

    topic: str
    group: str
    queue_id: int
    consumer_offset: int
    max_offset: int


class ConsumerOffsetTable:
    """Committed offsets of all groups.

    Invariant: `count` is the number of (topic, group, queue) entries and never exceeds
    `max_entries`; `by_group` has those of each group, and none exceeds its share of what is left;
    `topics_by_group` and `groups_by_topic` say which topics and groups have entries; `changes`
    increases with every change, so that an unchanged table need not be saved.
    """

    def __init__(
        self,
        *,
        version_step: int = 500,
        max_entries: int = 1_000_000,
    ) -> None:
        self.entries: dict[str, dict[int, int]] = {}
        self.topics_by_group: dict[str, set[str]] = {}
        self.groups_by_topic: dict[str, set[str]] = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue id) → the offset of a reset that is not applied yet."""
        self.first_pulls = FirstPulls()
        self.version = DataVersion()
        self.version_step = version_step
        self.max_entries = max_entries
        self.max_of_group = max(1, max_entries // OF_GROUP_PART)
        self.count = 0
        self.by_group: dict[str, int] = {}
        self.commits = 0
        self.changes = 0
        self.popped = 0
        """Commits that refer to check points: they must not reach the disk before those."""
        self.listeners: list[Callable[[Sequence[str]], None]] = []
        """Called with the group of each reset."""
        self.extra: dict[str, Any] = {}

    def commit(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> bool:
        """Store the next offset of `group`, unless a reset of it is pending.

        The version changes every `version_step` commits. Returns whether it was stored.
        Raises: NoPermission for a group of the broker itself; LimitReached for a new entry in a
        full table, or of a group that has too many.
        """
        check_not_own(group)
        if self.resets and (group, topic, queue_id) in self.resets:
            return False
        self._store(group, topic, queue_id, consumer_offset, now_ms)
        return True

    def commit_own(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> None:
        """As `commit`, by the service that owns a group of the broker.

        Such an offset refers to what the service has put. Raises: LimitReached.
        """
        self.popped += 1
        self._store(group, topic, queue_id, consumer_offset, now_ms)

    def _store(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> None:
        key = f"{topic}{SEPARATOR}{group}"
        queues = self.entries.get(key)
        if queues is None or queue_id not in queues:
            self._count_new(group)
            if queues is None:
                queues = self.entries[key] = {}
                self.note(topic, group)
        queues[queue_id] = consumer_offset
        self.changes += 1
        self.commits += 1
        if self.commits % self.version_step == 0:
            self.version = bumped(self.version, now_ms)

    def _count_new(self, group: str) -> None:
        """Count a new entry. Raises: LimitReached, but not for groups of the broker itself."""
        if group not in OWN_GROUPS:
            self.check_room(group, 1)
        self.count += 1
        self.by_group[group] = self.by_group.get(group, 0) + 1

    def check_room(self, group: str, new: int) -> None:
        """Check that a group can have `new` more entries, the last one included. Raises:
        LimitReached.

        A group may have a share of what is left, which shrinks as it grows.
        """
        before = max(0, new - 1)
        left = self.max_entries - self.count - before
        if new and left <= 0:
            raise LimitReached("consumer offset", self.max_entries, self._remedy(0))
        most = share(self.max_of_group, left, LEAST_OF_GROUP)
        if new and self.by_group.get(group, 0) + before >= most:
            what = f"consumer offset of group {group[:120]}"
            raise LimitReached(what, most, self._remedy(left))

    def check_commit(self, group: str, topic: str, queue_id: int) -> None:
        """Check that a commit can be stored, before something that must not be without it.

        Raises: NoPermission, LimitReached.
        """
        check_not_own(group)
        if queue_id not in self.queues(group, topic):
            self.check_room(group, 1)

    def _remedy(self, left: int) -> str:
        return (
            f"all groups together have {left} of maxConsumerOffsets={self.max_entries} left: "
            "delete groups (with their offsets) and topics that nobody uses, or raise it"
        )

    def commit_popped(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> bool:
        """As `commit`, after popping, or putting check points for, the messages before the
        offset.
        """
        self.popped += 1
        return self.commit(group, topic, queue_id, consumer_offset, now_ms)

    def reset(
        self, group: str, topic: str, queue_id: int, consumer_offset: int, now_ms: int
    ) -> None:
        """Reset a group's offset: its consumer gets the new one with its next pull of the queue.

        Until then its commits are ignored; not those of a Spark sink, which never pulls. Raises:
        NoPermission, LimitReached.
        """
        check_not_own(group)
        self._store(group, topic, queue_id, consumer_offset, now_ms)
        if not group.startswith(MARKS):
            self.resets[group, topic, queue_id] = consumer_offset
        for listener in self.listeners:
            listener((group,))

    def first_pull(
        self, queue: tuple[str, str, int], queue_offset: int, connection: int, now_ms: int
    ) -> None:
        """Reset a group that has got more than the log has. Only while first pulls are awaited.

        `queue` is group, topic, queue id; `connection` the number of the consumer's.
        """
        committed = NO_OFFSET if queue in self.resets else self.query(*queue)
        back = self.first_pulls.pull(queue, queue_offset, connection, committed)
        if back is not None:
            self.reset(*queue, back, now_ms)

    def early_commit(
        self,
        queue: tuple[str, str, int],
        commit_offset: int,
        connection: int,
        end: int,
        *,
        consumes: bool,
    ) -> bool:
        """Note a commit that may come from such a consumer; whether it may be stored. Only while
        first pulls are awaited.

        Behind `end`, the present one of the queue, no tool puts a group: who took the queue over,
        or this broker after its next start, would go on there. `consumes`: see `FirstPulls.commit`.
        """
        if queue[0].startswith(MARKS):
            return True
        if commit_offset > end and self.first_pulls.is_beyond(queue, commit_offset):
            return False
        committed = self.query(*queue)
        self.first_pulls.commit(queue, commit_offset, connection, committed, consumes=consumes)
        return True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a pending reset, returned once; None without one."""
        reset = self.resets.pop((group, topic, queue_id), None)
        self.changes += reset is not None
        return reset

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
        return sorted(self.topics_by_group.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of `topic`, sorted."""
        return sorted(self.groups_by_topic.get(topic, ()))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(topic, group) of all entries."""
        for key in self.entries:
            yield split_key(key)

    def delete_topic(self, topic: str) -> None:
        """Remove the offsets of all groups for `topic`, and their open resets."""
        self.delete_pairs([(topic, group) for group in self.groups_of(topic)])
        self._drop_resets([key for key in self.resets if key[1] == topic])

    def begin_again(self, group: str, topic: str, queue_ids: Iterable[int]) -> None:
        """Reset a group to the first message of a topic that was created again.

        Nothing is stored: a group without running members begins as its next consumer says. Where
        there are too many, the oldest such reset goes: that of a topic that nobody has made again.
        """
        for queue_id in queue_ids:
            if len(self.resets) >= RESETS_MAX:
                begun = (key for key in self.resets if key[2] not in self.queues(*key[:2]))
                self._drop_resets(list(islice(begun, 1)))
            self.resets[group, topic, queue_id] = 0
            self.changes += 1

    def _drop_resets(self, keys: Sequence[tuple[str, str, int]]) -> None:
        for key in keys:
            del self.resets[key]
            self.changes += 1

    def delete_group(self, group: str) -> None:
        """Remove all offsets of `group`, and its open resets. Raises: NoPermission."""
        check_not_own(group)
        self.delete_pairs([(topic, group) for topic in self.topics_of(group)])
        self._drop_resets([key for key in self.resets if key[0] == group])

    def delete_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Remove everything about these topics and groups."""
        self.changes += 1
        for topic, group in pairs:
            queues = self.entries.pop(f"{topic}{SEPARATOR}{group}")
            for queue_id in queues:
                self.resets.pop((group, topic, queue_id), None)
            self.count -= len(queues)
            self.by_group[group] -= len(queues)
            for names, key, other in (
                (self.topics_by_group, group, topic),
                (self.groups_by_topic, topic, group),
            ):
                names[key].discard(other)
                if not names[key]:
                    del names[key]
            if group not in self.topics_by_group:
                del self.by_group[group]

    def note(self, topic: str, group: str) -> None:
        """Record that these two have an entry."""
        self.topics_by_group.setdefault(group, set()).add(topic)
        self.groups_by_topic.setdefault(topic, set()).add(group)

    def clamp(self, max_offset: Callable[[str, int], int]) -> Iterator[list[ClampedOffset]]:
        """Move each offset beyond the end of its queue back to it; gives those that moved, step by
        step, and others may run in between. Open resets move as well.

        Called once after recovery: the log is the truth, and an offset beyond its end would skip
        the messages stored there next. Marks of Spark sinks are not offsets and stay.
        `max_offset(topic, queue_id)` is 0 for an unknown queue.
        """
        for (group, topic, queue_id), at in self.resets.items():
            if at > 0:
                self.resets[group, topic, queue_id] = min(at, max_offset(topic, queue_id))
        cut: list[ClampedOffset] = []
        looked = 0
        for key in list(self.entries):
            topic, group = split_key(key)
            if group.startswith(MARKS):
                continue
            queues = self.entries.get(key, {})
            for queue_id, consumer_offset in queues.items():
                end = max_offset(topic, queue_id) if consumer_offset >= 0 else consumer_offset
                if consumer_offset > end:
                    queues[queue_id] = end
                    self.changes += 1
                    cut.append(ClampedOffset(topic, group, queue_id, consumer_offset, end))
            looked += len(queues)
            if looked >= CLAMP_STEP:
                yield cut
                cut, looked = [], 0
        yield cut

    # ── The offsets of a master ──

    def merge(self, theirs: Offsets, before: Offsets) -> Iterator[None]:
        """Take the offsets of a master where they are greater; `before` are those of the last time:
        one that the master has moved back since is moved back here, and what it has dropped goes.
        Others may run at each yield.

        No limit counts: it is the master's.
        """
        dropped = before.keys() - theirs.keys()
        if gone := [split_key(key) for key in dropped if key in self.entries]:
            self.delete_pairs(gone)
        for number, (key, queues) in enumerate(theirs.items(), 1):
            known = before.get(key, {})
            own = self.entries.get(key, {})
            for queue_id, at in queues.items():
                here = own.get(queue_id, NO_OFFSET)
                moved_back = at < known.get(queue_id, at)
                if at > here or (moved_back and at != here):
                    self._take(key, queue_id, at)
            if number % MERGE_STEP == 0:
                yield

    def add(self, theirs: Offsets) -> Iterator[None]:
        """Take the offsets of a master that are missing here, and none of its own services. Others
        may run at each yield.
        """
        for number, (key, queues) in enumerate(theirs.items(), 1):
            own = self.entries.get(key, {})
            if split_key(key)[1] not in OWN_GROUPS:
                for queue_id in queues.keys() - own.keys():
                    self._take(key, queue_id, queues[queue_id])
            if number % MERGE_STEP == 0:
                yield

    def replace(self, theirs: Offsets) -> Iterator[None]:
        """Have the offsets of a master and no others, where nobody else commits. Others may run at
        each yield.
        """
        if gone := [split_key(key) for key in self.entries if key not in theirs]:
            self.delete_pairs(gone)
        for number, (key, queues) in enumerate(theirs.items(), 1):
            own = self.entries.get(key, {})
            if own.keys() - queues.keys():
                self.delete_pairs([split_key(key)])
                own = {}
            for queue_id, at in queues.items():
                if own.get(queue_id) != at:
                    self._take(key, queue_id, at)
            if number % MERGE_STEP == 0:
                yield

    def _take(self, key: str, queue_id: int, consumer_offset: int) -> None:
        topic, group = split_key(key)
        queues = self.entries.get(key)
        if queues is None:
            queues = self.entries[key] = {}
            self.note(topic, group)
        if queue_id not in queues:
            self.count += 1
            self.by_group[group] = self.by_group.get(group, 0) + 1
        queues[queue_id] = consumer_offset
        self.changes += 1
        # The number refers to what the master has put, as far as this log has it.
        self.popped += 1

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `consumerOffset.json`.

        `groupTopicMap` is derived and not read. Raises: ValueError when it is malformed; the table
        is unchanged then.
        """
        entries = offsets_of(document)
        resets = resets_of(document)
        version = version_of(document)
        self.entries, self.resets = entries, resets
        self.topics_by_group, self.groups_by_topic = {}, {}
        for topic, group in self.pairs():
            self.note(topic, group)
        self.version = version
        self.count = sum(map(len, self.entries.values()))
        self.by_group = {}
        for key, queues in self.entries.items():
            group = split_key(key)[1]
            self.by_group[group] = self.by_group.get(group, 0) + len(queues)
        self.extra = unknown_fields(document, OUR_KEYS)

    def pieces(self) -> Iterator[bytes]:
        """The text of `consumerOffset.json`. A change between two pieces may be in it or not.

        An offset that was committed before the first piece is in it, unless something newer
        replaced it.
        """
        head = {**self.extra, "dataVersion": version_document(self.version)}
        yield msgspec.json.encode(head)[:-1]
        if self.resets:
            yield b',"resets":'
            resets = list(self.resets.items())
            yield from object_pieces(
                (f"{topic}{SEPARATOR}{group}{SEPARATOR}{queue_id}", at)
                for (group, topic, queue_id), at in resets
            )
        yield b',"groupTopicMap":'
        groups = list(self.topics_by_group)
        yield from object_pieces(
            (group, self.topics_of(group)) for group in groups if group in self.topics_by_group
        )
        yield b',"offsetTable":'
        keys = list(self.entries)
        yield from object_pieces((key, self.entries[key]) for key in keys if key in self.entries)
        yield b"}"


OUR_KEYS: Final = frozenset({"dataVersion", "groupTopicMap", "offsetTable", "resets"})


def offsets_of(document: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """The offsets in a decoded `consumerOffset.json`. Raises: ValueError when it is malformed."""
    return {
        str(key): {int(queue_id): int(at) for queue_id, at in queues.items()}
        for key, queues in mapping(document, "offsetTable").items()
        if SEPARATOR in key
    }


def resets_of(document: Mapping[str, Any]) -> dict[tuple[str, str, int], int]:
    """The pending resets in it, which are ours alone. Raises: ValueError when it is malformed."""
    resets = {}
    for key, at in mapping(document, "resets").items():
        topic, group, queue_id = key.split(SEPARATOR)
        if not group.startswith(MARKS):
            resets[group, topic, int(queue_id)] = int(at)
    return resets


def split_key(key: str) -> tuple[str, str]:
    """`topic@group` → (topic, group). Neither may contain an `@`."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
