"""Plans a batch read: how far it goes, which offsets are lost, and its partitions. Pure.

Queues, offsets and positions come from `offsets` and are exported here, too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aerobee.errors import DataLossError
from aerobee.spark.offsets import (
    Offsets,
    Queue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")

TINY_OFFSETS = 1000
"""The size below which a range costs more as a task of its own than its records do."""
MANY_TINY = 8
NAMED_LOSSES = 5
"""The most losses that an error names."""
ASSUMED_RECORD_BYTES = 1024
"""The assumed mean size of a record before any has been read."""

# ── How far a batch goes ──


def carried(start: Mapping[Queue, int], latest: Mapping[Queue, int]) -> Offsets:
    """The possible end of a batch: `latest`, plus the queues that only `start` has, unchanged.

    A broker that is down takes its queues out of the route; that is no data loss. `latest` may be
    the fixed target of an AvailableNow run: queues that are newer than it wait for the next run.
    """
    return dict(sorted({**start, **latest}.items()))


def backlog(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> int:
    """The number of offsets in between; a queue that `start` does not have counts from 0."""
    return sum(max(0, offset - start.get(queue, 0)) for queue, offset in end.items())


def limited(start: Mapping[Queue, int], end: Mapping[Queue, int], limit: int) -> Offsets:
    """The end of a batch of about `limit` offsets, shared among the queues by their backlog.

    A queue's share is rounded down, but is at least 1, so that queues with a small backlog do not
    starve; the sum can exceed `limit` by the number of queues. `start` has every queue.
    """
    sizes = {queue: max(0, offset - start[queue]) for queue, offset in end.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(sorted(end.items()))
    chosen = {
        queue: start[queue] + min(size, max(1, limit * size // total)) if size else end[queue]
        for queue, size in sizes.items()
    }
    return dict(sorted(chosen.items()))


def limit_of(
    max_offsets: int | None, max_bytes: int | None, mean_record_bytes: float | None = None
) -> int | None:
    """The most offsets of a batch; None without a limit.

    Bytes are converted to offsets by the mean size of the records seen so far; at least 1.
    """
    limits = [] if max_offsets is None else [max_offsets]
    if max_bytes is not None:
        limits.append(max(1, int(max_bytes / (mean_record_bytes or ASSUMED_RECORD_BYTES))))
    return min(limits, default=None)


def waits(
    waiting: int, min_offsets: int | None, since_last_s: float | None, max_delay_s: float
) -> bool:
    """Whether to delay a batch until more messages have arrived.

    `waiting` offsets are available; the last batch began `since_last_s` ago. Without a last batch
    (None) the first one is never delayed.
    """
    if min_offsets is None or waiting >= min_offsets:
        return False
    return since_last_s is not None and since_last_s < max_delay_s


# ── What is lost ──


class LossCause(Enum):
    """Why offsets cannot be read: the cause, and what to do besides continuing without them."""

    EXPIRED = (
        "they expired before they were read",
        "read more often or let the broker keep messages longer (fileReservedTime)",
    )
    CUT = (
        "the queue ends before them now: its topic was deleted or made anew, or its broker came "
        "back without its last messages",
        "begin where messages are (startingOffsets; a stream with a new checkpoint)",
    )
    RENEWED = (
        "its topic was deleted and made anew, so what was not read of the old one is gone, and the "
        "stream stands behind these offsets of the new one",
        "start a stream with a new checkpoint and startingOffsets=earliest; with "
        "failOnDataLoss=false this one reads the new topic from its first message",
    )
    REWRITTEN = (
        "other messages have these offsets now: the broker came back without its last messages, "
        "and got new ones that the stream did not read",
        "read the queue from before these offsets again (startingOffsets; a stream with a new "
        "checkpoint)",
    )
    MISSING = (
        "they are missing inside the queue: files were removed, or the topic was compacted",
        "read the queue in parts, on both sides of the hole",
    )
    MOVED = (
        "the batch begins behind the end that was planned for it: the query was restarted before "
        "its first batch was done, and where it began could not be told any more",
        "use startingOffsets=committed with a group, or stateLocation, which keep the beginning",
    )

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy


class Loss(NamedTuple):
    """Offsets [start, end) of a queue that cannot be read."""

    queue: Queue
    start: int
    end: int
    lost: LossCause

    def __str__(self) -> str:
        return f"{self.queue}: offsets [{self.start}, {self.end}): {self.lost.reason}"


class CheckedOffsets(NamedTuple):
    """The offsets that can be read, and those that are lost."""

    start: Offsets
    end: Offsets
    losses: tuple[Loss, ...]


def checked(
    start: Mapping[Queue, int],
    end: Mapping[Queue, int],
    minima: Mapping[Queue, int],
    maxima: Mapping[Queue, int],
    *,
    fail: bool,
) -> CheckedOffsets:
    """Check a batch [start, end) against the bounds of its queues, and leave out what is lost.

    A queue that `start` does not have begins at its minimum, which should be 0. Unknown bounds, as
    of a broker that is down, are not checked.
    Raises: DataLossError with `fail`, if anything is lost.
    """
    begins: Offsets = {}
    ends: Offsets = {}
    losses: list[Loss] = []
    for queue in sorted(end):
        first, last = start.get(queue, 0), end[queue]
        low, high = minima.get(queue, 0), maxima.get(queue, max(first, last))
        if first > high:
            losses.append(Loss(queue, high, max(first, last), LossCause.CUT))
            first = last = high
        elif first > last:
            losses.append(Loss(queue, last, first, LossCause.MOVED))
            first = last
        if last > high:
            losses.append(Loss(queue, max(first, high), last, LossCause.CUT))
            last = max(first, high)
        if first < min(low, last):
            losses.append(Loss(queue, first, min(low, last), LossCause.EXPIRED))
            first = min(low, last)
        begins[queue], ends[queue] = first, last
    if fail:
        refuse(losses)
    return CheckedOffsets(begins, ends, tuple(losses))


def refuse(losses: Sequence[Loss]) -> None:
    """Refuse to continue. Raises: DataLossError, naming the first losses and what to do."""
    if not losses:
        return
    named = "; ".join(str(loss) for loss in losses[:NAMED_LOSSES])
    if len(losses) > NAMED_LOSSES:
        named += f"; and {len(losses) - NAMED_LOSSES} more"
    remedies = "; ".join(dict.fromkeys(loss.lost.remedy for loss in losses))
    raise DataLossError(
        f"messages cannot be read any more: {named}. What to do: {remedies}; or go on without them "
        "by the option failOnDataLoss=false"
    )


# ── Ranges and partitions ──


class Range(NamedTuple):
    """Offsets [start, end) of one queue, and where to read them: `host:port`, best first."""

    topic: str
    broker: str
    addresses: tuple[str, ...]
    queue_id: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start

    @property
    def queue(self) -> Queue:
        """The queue of the range."""
        return Queue(self.topic, self.broker, self.queue_id)


def ranges_of(
    start: Mapping[Queue, int],
    end: Mapping[Queue, int],
    addresses: Mapping[Queue, Sequence[str]],
) -> list[Range]:
    """The non-empty ranges between two offsets. `start` has every queue of `end`."""
    return [
        Range(queue.topic, queue.broker, tuple(addresses[queue]), queue.queue_id, first, end[queue])
        for queue in sorted(end)
        if (first := start[queue]) < end[queue]
    ]


def split(
    ranges: Iterable[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """Split the ranges into at least about `min_partitions`, each with at most `max_records`.

    Long ranges are cut in proportion to their lengths, after those that stay whole are set aside;
    with enough ranges already, `min_partitions` cuts nothing.
    """
    whole = [piece for piece in ranges if piece.size > 0]
    if min_partitions is not None and len(whole) < min_partitions:
        whole = _at_least(whole, min_partitions)
    if max_records is not None:
        whole = [part for piece in whole for part in _cut(piece, -(-piece.size // max_records))]
    return whole


def _at_least(ranges: list[Range], count: int) -> list[Range]:
    total = sum(piece.size for piece in ranges)
    long = [piece for piece in ranges if _parts(piece.size, total, count) > 1]
    total_long = sum(piece.size for piece in long)
    count_long = max(1, count - (len(ranges) - len(long)))
    return [
        part
        for piece in ranges
        for part in _cut(piece, _parts(piece.size, total_long, count_long) if piece in long else 1)
    ]


def _parts(size: int, total: int, count: int) -> int:
    """The share size / total of `count`, rounded half up, at least 1."""
    return max(1, (2 * size * count + total) // (2 * total))


def _cut(whole: Range, parts: int) -> list[Range]:
    """Cut a range into equal parts; the remainder goes to the later ones."""
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [whole._replace(start=first, end=last) for first, last in itertools.pairwise(edges)]


def interleave(ranges: Iterable[Range]) -> list[Range]:
    """Order the ranges by turns of the brokers, so that the first tasks read from all of them."""
    by_broker: dict[str, list[Range]] = defaultdict(list)
    for piece in ranges:
        by_broker[piece.broker].append(piece)
    turns = [
        (turn, at, piece)
        for at, broker in enumerate(sorted(by_broker))
        for turn, piece in enumerate(by_broker[broker])
    ]
    return [piece for _, _, piece in sorted(turns, key=lambda turn: turn[:2])]


def coalesce(ranges: Sequence[Range]) -> list[tuple[Range, ...]]:
    """Group ranges into partitions: one range each; tiny ones share, up to 1000 offsets in each.

    Ranges that share one are of the same broker as far as possible.
    """
    ordered = sorted(ranges, key=lambda piece: piece.broker if piece.size < TINY_OFFSETS else "")
    return tiny_together(ordered, lambda piece: piece.size)


def tiny_together(things: Sequence[T], size_of: Callable[[T], int]) -> list[tuple[T, ...]]:
    """Group things into partitions: one each; tiny ones share, up to 1000 offsets in each.

    Each partition costs tens of milliseconds, however little it reads.
    """
    tiny = [thing for thing in things if size_of(thing) < TINY_OFFSETS]
    if len(tiny) <= MANY_TINY:
        return [(thing,) for thing in things]
    partitions: list[tuple[T, ...]] = [
        (thing,) for thing in things if size_of(thing) >= TINY_OFFSETS
    ]
    together: list[T] = []
    room = TINY_OFFSETS
    for thing in tiny:
        if size_of(thing) >= room:
            partitions.append(tuple(together))
            together, room = [], TINY_OFFSETS
        together.append(thing)
        room -= size_of(thing)
    partitions.append(tuple(together))
    return partitions


def partitions_of(
    ranges: Iterable[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[Range, ...]]:
    """The ranges of each partition: split, in turns of the brokers, tiny ones together.

    With `min_partitions` tiny ranges are not put together.
    """
    ordered = interleave(split(ranges, min_partitions, max_records))
    return coalesce(ordered) if min_partitions is None else [(piece,) for piece in ordered]
