"""Notices from a thread when the loop has not turned for a while, and logs where it stands.

The ticker of the loop writes when it last turned, and counts the stalls; the thread only reads
that, a few times in a second. A stall in which the thread cannot run either is logged when it is
over: the interpreter lock was held, or the whole process stood still.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.threads import start

if TYPE_CHECKING:
    from types import FrameType

    from aerobee.broker.counters.server_stats import LoopStats
    from aerobee.broker.process.loop_ticker import MonotonicClock

LOOK_S: Final = 0.25
FRAMES_MAX: Final = 24
"""The innermost frames that a line shows."""

log = structlog.stdlib.get_logger(__name__)


class StallWatch:
    """The thread, for the loop of the thread that makes this."""

    def __init__(self, stats: LoopStats, clock: MonotonicClock) -> None:
        self.stats = stats
        self.clock = clock
        self.thread_id = threading.get_ident()
        self._told = 0.0
        self._ended = stats.stalls

    def start(self) -> None:
        """Watch until the process ends."""
        start(threading.Thread(target=self._run, name="stall-watch", daemon=True))

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Log a stall that lasts, once, and one that has ended."""
        stats = self.stats
        last_turn, ended = stats.last_turn, stats.stalls
        if ended != self._ended:
            self._ended = ended
            log.warning("loop.stall_ended", elapsed_ms=round(stats.last_stall_s * 1_000))
        still_s = self.clock.monotonic() - last_turn
        if stats.stall_s < still_s and stats.turning and last_turn != self._told:
            self._told = last_turn
            frame = sys._current_frames().get(self.thread_id)
            log.warning("loop.stalled", elapsed_ms=round(still_s * 1_000), stack=stack_of(frame))


def stack_of(frame: FrameType | None) -> str:
    """The innermost calls of a thread, one a line, the innermost last."""
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MAX:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return "\n".join(reversed(lines))
