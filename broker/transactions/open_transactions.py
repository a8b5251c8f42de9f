"""Open transactions: the state of the half and op queues, loaded once and kept up to date.

The queues are the truth; this table is loaded from them at the start and can be dropped at any
time. It ensures that a transaction has one end: Java's broker does not check for an earlier one.

Invariant: every half before `position` is finished, was put again behind it, or is given up;
`decided` holds those of which this is so behind `position`, and never `position` itself. Source:
semantics §10.2, §10.3.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.transactions.half_messages import Half

MOVED_MAX: Final = 500_000
"""Halves put again whose first offset is remembered. A late end for a forgotten one is taken for a
repeated one; the check still asks for the half itself."""
GIVEN_UP_MAX: Final = 10_000
"""Halves given up that a late commit may still deliver."""


class Transactions:
    """Open halves by queue offset, and the progress in both queues."""

    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        """Whether the halves of the queues are in here: not before a new master has read them."""
        self.position = 0
        """Queue offset of the first half that may be open."""
        self.decided: set[int] = set()
        self.moved: dict[int, int] = {}
        """Key of a half that was put again → its newest offset, while it is open."""
        self.given_up: dict[int, None] = {}
        """Keys of halves that were given up, oldest first."""
        self.op_position = 0
        """Every op record before it is only about halves before `position`."""
        self.ops: deque[tuple[int, int]] = deque()
        """(offset, greatest half offset in it) of the op records that still matter."""
        self.open: dict[str, int] = {}
        """Open halves by target topic, where there are any. Halves being put count as well."""
        self.changed_ms: dict[str, int] = {}
        """When each of these counts changed."""
        self.newest_ms = 0
        """The latest change of any count."""
        self.changes = 0

    def clear(self) -> None:
        """Forget every half: they are read from the log again."""
        self.decided.clear()
        self.moved.clear()
        self.given_up.clear()
        self.ops.clear()
        self.open.clear()

    # ── Questions ──

    def newest(self, half: Half) -> int | None:
        """The offset of the newest copy of a half, None when it is finished."""
        at = half.record.queue_offset
        if not self.is_open(at):
            exact, alike = half.keys
            at = self.moved.get(exact, self.moved.get(alike, at))
        return at if self.is_open(at) or self.was_given_up(half) else None

    def was_given_up(self, half: Half) -> bool:
        """Whether it was given up, and a late end still counts."""
        return any(key in self.given_up for key in half.keys)

    def is_open(self, at: int) -> bool:
        """Whether the half at this offset is neither finished nor given up."""
        return at >= self.position and at not in self.decided

    # ── What happens to a half ──

    def began(self, topic: str, now_ms: int) -> None:
        """Count a new half for a topic."""
        self._count(topic, 1, now_ms)

    def decide(self, half: Half, at: int, now_ms: int) -> None:
        """Record the end of a half whose newest copy is at `at`: open, or given up."""
        key = next((key for key in half.keys if self.moved.get(key) == at), half.key)
        self.moved.pop(key, None)
        if not self.is_open(at):
            key = next(key for key in half.keys if key in self.given_up)
            del self.given_up[key]
            return
        self._count(half.topic, -1, now_ms)
        self.decided.add(at)
        self._advance()

    def move(self, half: Half, to: int) -> None:
        """Record that an open half was put again, at offset `to`."""
        at = half.record.queue_offset
        assert self.position <= at < to, "what is done with is not moved"
        self.remember_move(half.key, to)
        self.gone(at, at + 1)

    def give_up(self, half: Half, now_ms: int) -> None:
        """Record that an open half was given up."""
        at = half.record.queue_offset
        assert self.position <= at, "what is done with is not given up"
        self.moved.pop(half.key, None)
        self.remember_given_up(half.key)
        self._count(half.topic, -1, now_ms)
        self.gone(at, at + 1)

    def gone(self, begin: int, end: int) -> None:
        """Record that nothing from `begin` to before `end` is open any more."""
        if begin <= self.position:
            self.go_on(max(end, self.position))
        else:
            self.decided.update(range(begin, end))

    def next_open(self, at: int) -> int:
        """The first offset from `at` on that may be open."""
        at = max(at, self.position)
        while at in self.decided:
            at += 1
        return at

    def go_on(self, position: int) -> None:
        """Advance: nothing before `position` is open any more, or it is deleted."""
        assert position >= self.position, "what is done with stays so"
        if self.decided and position > self.position + 1:
            self.decided = {at for at in self.decided if at >= position}
        self.position = position
        self._advance()

    def remember_move(self, key: int, to: int) -> None:
        """Remember the newest offset of a half that was put again."""
        self.moved.pop(key, None)
        self.moved[key] = to
        if len(self.moved) > MOVED_MAX:
            del self.moved[next(iter(self.moved))]

    def remember_given_up(self, key: int) -> None:
        """Remember a half for a late commit."""
        self.given_up[key] = None
        if len(self.given_up) > GIVEN_UP_MAX:
            del self.given_up[next(iter(self.given_up))]

    def _advance(self) -> None:
        position, decided = self.position, self.decided
        while position in decided:
            decided.remove(position)
            position += 1
        self.position = position
        ops = self.ops
        while ops and ops[0][1] < position:
            self.op_position = ops.popleft()[0] + 1

    # ── Op records ──

    def op_written(self, op_offset: int, half_offsets: Iterable[int]) -> None:
        """Add an op record with the halves that it is about."""
        self.ops.append((op_offset, max(half_offsets, default=-1)))

    def progress(self) -> tuple[int, int]:
        """The progress in the half queue and the op queue."""
        return self.position, self.op_position

    # ── The count ──

    def _count(self, topic: str, by: int, now_ms: int) -> None:
        self.changes += 1
        self.newest_ms = max(self.newest_ms, now_ms)
        # A half that the disk could not read at the start was not counted.
        count = max(0, self.open.get(topic, 0) + by)
        if count:
            self.open[topic], self.changed_ms[topic] = count, now_ms
        else:
            # Topics come and go: what had a half once is not kept.
            self.open.pop(topic, None)
            self.changed_ms.pop(topic, None)

    def document(self) -> dict[str, Any]:
        """The content of `transactionMetrics`: for Java's broker, which continues to count from
        it.
        """
        counts = {
            topic: {"count": count, "timeStamp": self.changed_ms[topic]}
            for topic, count in self.open.items()
        }
        version = {"counter": self.changes, "stateVersion": 0, "timestamp": self.newest_ms}
        return {"dataVersion": version, "transactionCount": counts}
