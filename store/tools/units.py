"""Checks consume queues against the log.

It takes records in the order of the log, builds the expected units of each queue, and compares them
with the files in pieces. Units that recovery would write again are pending, no damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.faults import CQ_MISMATCH, CQ_MISSING, CQ_TAG_MISMATCH, END
from aerobee.store.format.queue_faults import number_fault, unit_fault
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.format.queue_reader import Queue, QueueReader

COMPARE_BYTES = 8_000
CHUNK_UNITS = 3_200
WORDS = {
    CQ_MISSING: "no unit, though the log has the message",
    CQ_MISMATCH: "the unit leads elsewhere than to its message",
    CQ_TAG_MISMATCH: "the unit has another tags code than its message",
}
BEHIND = "the unit leads behind the end of the log, where its message is missing"


class ProblemExtent:
    """The extent of a problem: the first and the last queue offset, and the number of units."""

    __slots__ = ("count", "first", "last")

    def __init__(self, queue_offset: int) -> None:
        self.first = self.last = queue_offset
        self.count = 0


class Expectation:
    """The state of the log shared by all queue checks; `unsafe_from` is set during the scan."""

    __slots__ = ("extended", "farthest", "min_offset", "settled", "unreadable", "unsafe_from")

    def __init__(
        self,
        min_offset: int,
        unreadable: Callable[[int], bool],
        *,
        settled: bool,
        extended: bool = False,
    ) -> None:
        self.min_offset = min_offset
        self.unreadable = unreadable
        """Whether a physical offset is in an unreadable region of the log."""
        self.settled = settled
        """Whether the last stop was clean, so that nothing is pending."""
        self.extended = extended
        """Whether tags codes may be addresses in consumequeue_ext."""
        self.unsafe_from: int | None = None
        """The first record whose unit a crash may have lost; None before the scan reaches it."""
        self.farthest = -1
        """The farthest offset behind the end of the log that a unit leads to, after a clean stop;
        -1 for none."""

    def pending(self, physical_offset: int) -> bool:
        """Whether the unit of a record may be missing or wrong without being damage."""
        return (
            not self.settled
            and self.unsafe_from is not None
            and physical_offset >= self.unsafe_from
        )


class QueueCheck:
    """One queue: the units expected from the log, and the differences in the files."""

    __slots__ = (
        "_opened",
        "base",
        "behind",
        "broken",
        "expected",
        "first",
        "last",
        "lost",
        "next",
        "pending",
        "problems",
        "queue",
        "rules",
        "unnumbered",
    )

    def __init__(
        self, queue: Queue, opened: Callable[[Queue], QueueReader], rules: Expectation
    ) -> None:
        self.queue = queue
        self._opened = opened
        self.rules = rules
        self.expected = bytearray()
        self.unnumbered = 0
        """Records of this queue whose queue offset is not the next one."""
        self.broken = ""
        """The text about the first of those records."""
        self.last = -1
        """Where the last record lies whose unit has been compared; -1 without one."""
        self._restart(-1)

    def _restart(self, queue_offset: int) -> None:
        self.first = self.base = self.next = queue_offset
        self.expected.clear()
        self.lost = self.behind = 0
        self.pending = 0
        self.problems: dict[tuple[str, str], ProblemExtent] = {}
        """Kind and text of a problem of units → its extent."""

    # ── From the log ──

    def jump(self, queue_offset: int, physical_offset: int) -> None:
        """Handle a record of this queue that does not have the next queue offset."""
        expected = None if self.first < 0 else self.next
        if number_fault(expected, queue_offset) == END:
            self._restart(queue_offset)
            return
        self.compare()
        if queue_offset < self.next or not self._explained(queue_offset):
            self.unnumbered += 1
            self.broken = self.broken or (
                f"queue offset {queue_offset} at physical offset {physical_offset}, "
                f"{self.next} is next"
            )
        self.base = self.next = queue_offset

    def _explained(self, queue_offset: int) -> bool:
        """Whether the skipped records are in unreadable regions of the log."""
        lost = self.lost
        self._look(self.next, queue_offset)
        return self.lost - lost == queue_offset - self.next

    def compare(self) -> None:
        """Compare the expected units so far with the files. Raises: OSError."""
        count = len(self.expected) // UNIT_SIZE
        if count:
            self.last = UNIT.read(self.expected, (count - 1) * UNIT_SIZE).physical_offset
            with self._opened(self.queue) as reader:
                there = reader.read(self.base, count)
            # A running broker has deleted the files of messages that were read from the log.
            if there != self.expected and not reader.gone:
                self._differ(there)
        self.base += count
        self.expected.clear()

    def _differ(self, there: bytes) -> None:
        pairs = zip(UNIT.iter_unpack(self.expected), UNIT.iter_unpack(there), strict=True)
        for queue_offset, (wanted, unit) in enumerate(pairs, self.base):
            if wanted != unit:
                self._judge(queue_offset, Unit(*wanted), Unit(*unit))

    def _judge(self, queue_offset: int, wanted: Unit, unit: Unit) -> None:
        kind = unit_fault(self.queue.topic, wanted, unit, extended=self.rules.extended)
        if kind == END:
            return
        if self.rules.pending(wanted.physical_offset):
            self.pending += 1
        else:
            self._problem(kind, queue_offset, WORDS[kind])

    def _problem(self, kind: str, queue_offset: int, detail: str) -> None:
        seen = self.problems.get((kind, detail))
        if seen is None:
            seen = self.problems[kind, detail] = ProblemExtent(queue_offset)
        seen.last = queue_offset
        seen.count += 1

    # ── From the files ──

    def finish(self, log_end: int) -> None:
        """Compare the remaining units, then check the units without a record."""
        self.compare()
        begin, end = self.queue.first, self.queue.end
        if self.first < 0:
            self._look(begin, end, log_end)
            return
        self._look(begin, self.first, log_end)
        self._look(self.next, end, log_end)

    def _look(self, begin: int, end: int, log_end: int | None = None) -> None:
        """Check units without a record: they point before the log's begin, or into damage."""
        with self._opened(self.queue) as reader:
            for first, behind in self.queue.pieces(begin, end):
                for at in range(first, behind, CHUNK_UNITS):
                    data = reader.read(at, min(CHUNK_UNITS, behind - at))
                    if any(data):
                        for queue_offset, unit in enumerate(UNIT.iter_unpack(data), at):
                            self._look_at(queue_offset, unit, log_end)

    def _look_at(self, queue_offset: int, unit: tuple[int, int, int], log_end: int | None) -> None:
        rules = self.rules
        physical_offset, size, _ = unit
        if size <= 0:
            if rules.settled and any(unit):
                self._problem(CQ_MISMATCH, queue_offset, "an invalid unit")
        elif unit == BLANK_UNIT or 0 <= physical_offset < rules.min_offset:
            return
        elif rules.unreadable(physical_offset):
            self.lost += 1
        elif rules.settled and log_end is not None and physical_offset >= log_end:
            self.behind += 1
            rules.farthest = max(rules.farthest, physical_offset)
            self._problem(CQ_MISMATCH, queue_offset, BEHIND)
        elif rules.pending(physical_offset) or (
            log_end is not None and not rules.settled and physical_offset >= log_end
        ):
            self.pending += 1
        else:
            self._problem(CQ_MISMATCH, queue_offset, "the unit leads to no message")


BLANK_UNIT = UNIT.unpack_from(BLANK)
