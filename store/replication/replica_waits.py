"""Senders that are answered once enough slaves have their messages, or all of a group's sync set.

Source: store format §8 (GroupTransferService). One report answers all messages in front of its
offset, in the order of the log; nobody waits behind one that is late.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
import trio

from aerobee.store.results import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock
    from aerobee.store.flush.log_flush import LogFlush
    from aerobee.store.replication.log_out import LogOut

ANSWER_S: Final = 0.001
"""How long senders are called back in one step."""
TELL_S: Final = 1.0
"""At most one line of the log in so long tells of those that were timed out."""
STRIDE: Final = 16
"""Senders between two checks of the clock."""

log = structlog.get_logger(__name__)


class Sender(msgspec.Struct, eq=False):
    """A sender that waits until slaves have the log up to `end_offset`."""

    end_offset: int
    deadline: float
    """By the monotonic clock."""
    callback: Callable[[PutOutcome], None] | None
    """None once it was answered."""


class ReplicaWaits:
    """Waits for slaves, or for those of a sync set while a lease lasts."""

    def __init__(
        self, log_out: LogOut, flush: LogFlush, clock: Clock, on_answered: Callable[[], None]
    ) -> None:
        """`on_answered`: senders were called back."""
        self._log_out = log_out
        self._flush = flush
        self._clock = clock
        self._on_answered = on_answered
        self.is_on = False
        """Whether senders wait for slaves."""
        self.timeout_s = 3.0
        self._held: Callable[[], int] = lambda: -1
        """The end of what may be acknowledged now; −1: nothing may."""
        self._nobody = PutOutcome.NO_SLAVE
        self._by_end: list[tuple[int, int, Sender]] = []
        self._by_deadline: deque[Sender] = deque()
        self._numbers = count()
        self._waited = trio.Event()
        self._left = trio.Event()
        self._late = 0
        """Senders that were timed out and that no line of the log has told of."""
        self._told_at = float("-inf")

    @property
    def senders(self) -> int:
        """How many are kept: those that wait, and answered ones behind them."""
        return len(self._by_deadline)

    def configure(self, needed: int, timeout_s: float) -> None:
        """Wait for so many slaves, for so long."""
        assert needed > 0, needed
        self._held = partial(self._log_out.held_by, needed)
        self.is_on, self.timeout_s = True, timeout_s
        self._log_out.after_report.add(self.answer)

    def configure_group(self, held: Callable[[], int], timeout_s: float) -> None:
        """Wait for what a group says, for so long. Its owner calls `answer` when it moves.

        `held` is asked immediately before each answer: the end of what may be acknowledged at that
        moment; −1: nothing may, and senders are refused.
        """
        self._held, self._nobody = held, PutOutcome.NO_LEASE
        self.is_on, self.timeout_s = True, timeout_s

    def when_held(self, end_offset: int, callback: Callable[[PutOutcome], None]) -> None:
        """Call back once enough slaves have the log up to there, or that cannot be. Hot.

        Without enough slaves that follow it is called at once: nothing is there to wait for.
        """
        held = self._held()
        if held >= end_offset:
            callback(PutOutcome.DURABLE)
        elif held < 0:
            callback(self._nobody)
        else:
            deadline = self._clock.monotonic() + self.timeout_s
            sender = Sender(end_offset, deadline, callback)
            heappush(self._by_end, (end_offset, next(self._numbers), sender))
            self._by_deadline.append(sender)
            self._waited.set()

    def when_kept(self, end_offset: int, callback: Callable[[PutOutcome], None]) -> None:
        """As `when_held`, and once the log is on disk here under SYNC_FLUSH: both are waited for
        side by side. Of two that are late the slave is told. Hot.
        """
        if not self._flush.answers_wait:
            self.when_held(end_offset, callback)
            return
        flushed: list[PutOutcome] = []
        held: list[PutOutcome] = []

        def note(outcomes: list[PutOutcome], outcome: PutOutcome) -> None:
            outcomes.append(outcome)
            if flushed and held:
                callback(flushed[0] if held[0] else held[0])

        self._flush.when_durable(end_offset, partial(note, flushed))
        self.when_held(end_offset, partial(note, held))

    def when_in_group(self, end_offset: int, callback: Callable[[PutOutcome], None]) -> None:
        """As `when_held`, in a group, which counts the disk here as well. Hot."""
        if self._flush.answers_wait:
            # Its sync is one that somebody waits for.
            self._flush.when_durable(end_offset, _nobody_waits)
        self.when_held(end_offset, callback)

    def answer(self) -> None:
        """Answer those whose messages enough slaves have, for a while. Hot."""
        waiting, monotonic = self._by_end, self._clock.monotonic
        held, ends, left, answered = self._held(), 0.0, STRIDE, False
        while waiting and waiting[0][0] <= held:
            if not left:
                left, now = STRIDE, monotonic()
                ends = ends or now + ANSWER_S
                if now > ends:
                    self._left.set()
                    break
            left -= 1
            answered = True
            self._tell(heappop(waiting)[2], PutOutcome.DURABLE)
        if answered:
            self._drop_answered()
            self._on_answered()

    def refuse(self) -> None:
        """Answer all that wait: this broker acknowledges nothing any more."""
        waiting, self._by_end = self._by_end, []
        for _, _, sender in sorted(waiting):
            self._tell(sender, self._nobody)
        self._by_deadline.clear()
        self._on_answered()

    def _drop_answered(self) -> None:
        """Forget the answered senders in front, of either order: none outlives those before it."""
        line, waiting = self._by_deadline, self._by_end
        while line and line[0].callback is None:
            line.popleft()
        while waiting and waiting[0][2].callback is None:
            heappop(waiting)

    def _tell(self, sender: Sender, kept: PutOutcome) -> None:
        callback, sender.callback = sender.callback, None
        if callback is not None:
            callback(kept)

    async def run(self) -> None:
        """Time out senders, and answer those that one step left; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._go_on)
            while True:
                await self._expire()

    async def _go_on(self) -> None:
        while True:
            await self._left.wait()
            self._left = trio.Event()
            await trio.lowlevel.checkpoint()
            self.answer()

    async def _expire(self) -> None:
        """Answer those that have waited for too long; what they sent is in the log all the same."""
        line, monotonic = self._by_deadline, self._clock.monotonic
        self._drop_answered()
        if not line:
            self._waited = trio.Event()
            await self._waited.wait()
            return
        await trio.sleep(max(0.0, line[0].deadline - monotonic()))
        now, late = monotonic(), 0
        while line and line[0].deadline <= now:
            sender = line.popleft()
            late += sender.callback is not None
            self._tell(sender, PutOutcome.SLAVE_LATE)
            if late % STRIDE == STRIDE - 1 and monotonic() > now + ANSWER_S:
                break
        self._drop_answered()
        if late:
            self._late += late
            if now - self._told_at >= TELL_S:
                log.warning("replication.timed_out", messages=self._late)
                self._told_at, self._late = now, 0
            self._on_answered()
            await trio.lowlevel.checkpoint()


def _nobody_waits(outcome: PutOutcome) -> None:
    """The end of this sync is learned in another way."""
