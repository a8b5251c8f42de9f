"""Orderly pops: which messages of a queue are invisible for a group, and when the next pop may be.

Each queue has one batch. While any of its messages is neither acknowledged nor visible again, only
the same attempt gets more messages of the queue. Messages are acknowledged one by one; the group's
offset moves to the first unacknowledged one. The table is saved in `consumerOrderInfo.json`.
Source: semantics §11.1, §11.2 (ConsumerOrderInfoManager).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.saved.documents import mapping, unknown_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

IDLE_MS: Final = 24 * 3_600_000
"""A queue that was not popped for so long, and hides no message since, is removed."""
OUR_KEYS: Final = frozenset({"orderedConsumptionLevel", "table"})
LEVEL: Final = "QUEUE"


class OffsetIllegal(ValueError):
    """The offset is not one of the batch."""


class Counts(NamedTuple):
    """How often messages of a batch were popped before: by offset, and the lowest count of all."""

    by_offset: Mapping[int, int]
    least: int


@dataclass(slots=True)
class OrderBatch:
    """The invisible messages of one queue; times in ms. Bit i of `acked` is `offsets[i]`."""

    pop_time: int
    invisible_ms: int
    offsets: list[int]
    visible_at: dict[int, int] = field(default_factory=dict)
    """Offset → when it becomes visible, where that was changed."""
    counts: dict[int, int] = field(default_factory=dict)
    """Offset → how often it was popped before this batch."""
    last_ms: int = 0
    acked: int = 0
    attempt_id: str | None = None
    ahead_ms: int = 0
    """How far the clock was ahead at the pop, as is known since it went back."""

    def out(self, committed: int) -> Iterator[int]:
        """The offsets that are not acknowledged: those before the group's offset are, though the
        bits may be of an older file than that.
        """
        for number, offset in enumerate(self.offsets):
            if offset >= committed and not self.acked >> number & 1:
                yield offset

    def blocked_until(self, committed: int = 0) -> int:
        """When the last invisible message becomes visible, by the clock of the pop; 0 when none
        is.
        """
        usual = self.pop_time + self.invisible_ms
        return max((self.visible_at.get(at, usual) for at in self.out(committed)), default=0)

    def next_offset(self, committed: int = 0) -> int:
        """The first unacknowledged offset, or the one after all of them."""
        return next(self.out(committed), self.offsets[-1] + 1)

    def document(self) -> dict[str, Any]:
        """The batch in the form of the file: offsets are relative to the first."""
        first = self.offsets[0]
        fields = {
            "popTime": self.pop_time,
            "i": self.invisible_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "oc": {str(offset): count for offset, count in self.counts.items()},
            "l": self.last_ms,
            "cm": self.acked,
        }
        if self.visible_at:
            fields["ot"] = {str(offset): at for offset, at in self.visible_at.items()}
        if self.attempt_id is not None:
            fields["a"] = self.attempt_id
        return fields


class PopOrderTable:
    """Invariant: a batch has at least one message; `changes` increases with every change."""

    def __init__(self) -> None:
        self.batches: dict[tuple[str, str], dict[int, OrderBatch]] = {}
        """(topic, group) → queue → its batch."""
        self.changes = 0
        self.extra: dict[str, Any] = {}

    def forget_all(self) -> None:
        """Remove all batches."""
        self.batches.clear()
        self.changes += 1

    def get(self, topic: str, group: str, queue_id: int) -> OrderBatch | None:
        """The batch of a queue."""
        queues = self.batches.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def is_out(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> bool:
        """Whether a message of this pop is neither acknowledged nor popped again since, whatever
        its time.
        """
        batch = self.get(topic, group, queue_id)
        return batch is not None and batch.pop_time == pop_time and offset in batch.out(0)

    def blocked_until(
        self,
        topic: str,
        group: str,
        queue_id: int,
        attempt_id: str | None,
        now_ms: int,
        committed: int = 0,
    ) -> int:
        """Until when the queue may not be popped; 0 when it may be now. `committed`: the offset of
        the group, before which nothing is out.
        """
        batch = self.get(topic, group, queue_id)
        if batch is None or (attempt_id is not None and batch.attempt_id == attempt_id):
            return 0
        # A pop in the future: the clock went back since. The messages that it hid stay hidden for
        # as long as was asked for, from now on.
        batch.ahead_ms = max(batch.ahead_ms, batch.pop_time - now_ms)
        until = batch.blocked_until(committed) - batch.ahead_ms
        return until if until > now_ms else 0

    def hand_out(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_ms: int,
    ) -> Counts:
        """Record a pop: these messages are invisible from now on, and no others of the queue."""
        before = self.get(topic, group, queue_id)
        counts: dict[int, int] = {}
        if before is not None:
            if attempt_id is not None and before.attempt_id == attempt_id:
                counts = before.counts
            else:
                again = set(before.offsets).intersection(offsets)
                counts = {offset: before.counts.get(offset, 0) + 1 for offset in sorted(again)}
        self.batches.setdefault((topic, group), {})[queue_id] = OrderBatch(
            pop_time,
            invisible_ms,
            list(offsets),
            counts=counts,
            last_ms=pop_time,
            attempt_id=attempt_id,
        )
        self.changes += 1
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        return Counts(counts, least)

    def acknowledge(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time: int,
        committed: int = 0,
    ) -> int | None:
        """Acknowledge one message; returns the offset that the group should have, at least the one
        that it has, `committed`.

        None when the batch was popped again since: its new receipts count; or when the batch is
        unknown, after a kill or a reset: messages before this one may not be acknowledged, so that
        all of them are delivered again (Java continues after the message, and loses them). Raises:
        OffsetIllegal.
        """
        batch = self.get(topic, group, queue_id)
        if batch is None or batch.pop_time != pop_time:
            return None
        batch.acked |= 1 << _number(batch, offset)
        self.changes += 1
        return batch.next_offset(committed)

    def hide(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_at: int
    ) -> None:
        """Change when one message becomes visible; a stale receipt changes nothing."""
        batch = self.get(topic, group, queue_id)
        if batch is not None and batch.pop_time == pop_time and offset in batch.offsets:
            batch.visible_at[offset] = visible_at + batch.ahead_ms
            self.changes += 1

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Remove the batch of a queue: the group's offset was reset."""
        queues = self.batches.get((topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self.changes += 1
            if not queues:
                del self.batches[topic, group]

    def delete_topic(self, topic: str) -> None:
        """Remove the batches of a deleted topic, which would block its queues made anew."""
        for key in [key for key in self.batches if key[0] == topic]:
            del self.batches[key]
            self.changes += 1

    def delete_group(self, group: str) -> None:
        """Remove the batches of a deleted group, which would block its queues for one made anew."""
        for key in [key for key in self.batches if key[1] == group]:
            del self.batches[key]
            self.changes += 1

    def expire(self, age_ms: Callable[[int], int]) -> Iterator[None]:
        """Remove queues that for a day were not popped and hid nothing; others may run between two
        groups.

        `age_ms` is how long ago a time was, without time that the clock skipped.
        """
        for (topic, group), queues in list(self.batches.items()):
            yield
            if self.batches.get((topic, group)) is not queues:
                continue  # Topic or group were deleted meanwhile.
            for queue_id, batch in list(queues.items()):
                if age_ms(max(batch.last_ms, batch.blocked_until())) > IDLE_MS:
                    self.clear(topic, group, queue_id)

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `consumerOrderInfo.json`.

        Raises: ValueError when it is not one; the table is unchanged then.
        """
        loaded: dict[tuple[str, str], dict[int, OrderBatch]] = {}
        try:
            for key, queues in mapping(document, "table").items():
                topic, _, group = key.partition("@")
                batches = {int(queue): _batch(fields) for queue, fields in queues.items()}
                kept = {queue: batch for queue, batch in batches.items() if batch.offsets}
                if kept:
                    loaded[topic, group] = kept
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"table: {error!r}") from error
        self.batches = loaded
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """The content of `consumerOrderInfo.json`, detached: it may be encoded in a thread."""
        return {
            **self.extra,
            "orderedConsumptionLevel": LEVEL,
            "table": {
                f"{topic}@{group}": {
                    str(queue_id): batch.document() for queue_id, batch in queues.items()
                }
                for (topic, group), queues in self.batches.items()
            },
        }


def _number(batch: OrderBatch, offset: int) -> int:
    try:
        return batch.offsets.index(offset)
    except ValueError:
        raise OffsetIllegal(f"offset {offset} is not out, {batch.offsets} are") from None


def _numbers(fields: Mapping[str, Any], name: str) -> dict[int, int]:
    return {int(key): int(value) for key, value in (fields.get(name) or {}).items()}


def _batch(fields: Mapping[str, Any]) -> OrderBatch:
    """A batch in the form of the file.

    Raises: AttributeError, KeyError, TypeError, ValueError.
    """
    distances = [int(distance) for distance in fields.get("o") or ()]
    return OrderBatch(
        int(fields["popTime"]),
        int(fields.get("i") or 0),
        [distances[0], *(distances[0] + distance for distance in distances[1:])]
        if distances
        else [],
        _numbers(fields, "ot"),
        _numbers(fields, "oc"),
        int(fields.get("l") or 0),
        int(fields.get("cm") or 0),
        fields.get("a"),
    )
