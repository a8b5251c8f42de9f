"""RocketMQ's processor pools, in one event loop: a width, a bounded queue and limits on waiting.

A handler that answers at once never waits here. Async handlers are counted: `width` of them run,
the next ones queue, and with more than `capacity` requests read but not answered the pool refuses.
Connections take turns: each one's requests begin in their order, and one connection has at most
half of the width, so that what another asks need not wait for a thousand requests of the first.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import answer_around

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable

    from aerobee.remoting.rate_limit import Excess
    from aerobee.remoting.server.peer import Asker
    from aerobee.remoting.server.routes import Later
    from aerobee.remoting.wire.command import Command

AGE_CHECK_S = 0.010
"""A round younger than this needs no check of queue times: it is the shortest limit one may set."""
REMARKS = 1_024
SYSTEM_BUSY = int(ResponseCode.SYSTEM_BUSY)
KEPT_BYTES_MAX = 64 << 20
"""Bytes of bodies that a pool keeps for waiting requests; beyond it one with a body is refused."""
QUEUED_MAX = 1_024
"""Requests of one connection that wait until its peer has read its answers."""
OVERLOAD_REMARK = "[OVERLOAD]system busy, start flow control for a while"
REJECT_REMARK = "[REJECTREQUEST]system busy, start flow control for a while"


@lru_cache(maxsize=REMARKS)
def timeout_remark(waited_ms: int, queued: int) -> str:
    """The remark of a request that waited too long; monitors look for the bracketed word.

    Cached for the requests of one round: under overload even the cost of refusals matters.
    """
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms}ms, size of queue: {queued}"
    )


@lru_cache(maxsize=REMARKS)
def timeout_around(waited_ms: int, queued: int) -> tuple[bytes, bytes]:
    """The JSON header of a refusal with `timeout_remark`: before and behind the opaque."""
    return answer_around(SYSTEM_BUSY, timeout_remark(waited_ms, queued))


@lru_cache(maxsize=REMARKS)
def stall_remark(waited_ms: int, queued: int) -> str:
    """The remark of a request that waited while the disk blocked its pool."""
    return (
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms}ms, size of queue: {queued}"
    )


def too_fast(excess: Excess) -> Answer:
    """The refusal of a request beyond a rate of its client."""
    remark = f"{excess.key} is {excess.per_s:.0f} per second, and yours has used it up: wait"
    return Answer(SYSTEM_BUSY, remark=remark)


class Stall(NamedTuple):
    """A past period in which a pool could not work. Seconds of the loop's clock."""

    known: float
    """When it had lasted too long: requests before this time had begun to wait, later ones were
    refused at once."""
    end: float


NO_STALL = Stall(float("-inf"), float("-inf"))


class Waiting(NamedTuple):
    """An async request that has not begun: its coroutine runs nothing until it is awaited."""

    arrived: float
    connection: Asker
    command: Command
    work: Awaitable[Later]


class Line:
    """The requests of one connection in a pool."""

    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[Waiting] = deque()


class Pool:
    """One processor pool.

    Invariant: `depth` = requests read, not answered, and not held by long polling = running +
    queued + held with HELD + those whose effect has happened. `lines` has the connections with
    requests that run or wait, and `queued` is how many wait.
    """

    __slots__ = (
        "capacity",
        "depth",
        "kept_bytes",
        "lines",
        "max_wait_s",
        "most_of_one",
        "name",
        "queued",
        "refused",
        "running",
        "served",
        "stall",
        "timed_out",
        "width",
    )

    def __init__(self, name: str, *, width: int, capacity: int, max_wait_ms: int | None) -> None:
        self.name = name
        self.width = width
        self.capacity = capacity
        self.allow_wait(max_wait_ms)
        self.most_of_one = max(1, width // 2)
        """Requests of one connection that run at a time."""
        self.lines: dict[Hashable, Line] = {}
        """By the `lane` of each request, in the order of their turns."""
        self.queued = 0
        self.depth = 0
        self.kept_bytes = 0
        """Bytes of the bodies of running and waiting requests."""
        self.running = 0
        self.served = 0
        self.refused = 0
        self.timed_out = 0
        self.stall = NO_STALL
        """The last stall: it concerns only requests that came before its end."""

    def allow_wait(self, max_wait_ms: int | None) -> None:
        """A request that has waited longer is refused; None: none is."""
        self.max_wait_s = float("inf") if max_wait_ms is None else max_wait_ms / 1000

    @property
    def full(self) -> bool:
        """Whether the next request must be refused."""
        return self.depth >= self.capacity

    def caught(self, arrived: float) -> bool:
        """Whether a request that arrived then must be refused because of the stall.

        Without a limit on waiting, requests that had begun to wait are served however late.
        """
        known, end = self.stall
        return known <= arrived < end or (arrived < known and self.max_wait_s != float("inf"))

    def clear(self) -> None:
        """Drop what is queued: nothing will run it any more."""
        for line in self.lines.values():
            for waiting in line.waiting:
                waiting.work.close()  # type: ignore[attr-defined]  # handlers are coroutines
                waiting.command.pool = None
                self.depth -= 1
        self.lines.clear()
        self.queued = 0

    def enter(self, waiting: Waiting) -> bool:
        """Whether a request may run now: it counts as running. Else it waits."""
        lane = waiting.connection.lane
        line = self.lines.get(lane)
        if line is None:
            self.lines[lane] = line = Line()
        if self.running < self.width and not line.waiting and self._may_run(line):
            self.running += 1
            line.running += 1
            return True
        line.waiting.append(waiting)
        self.queued += 1
        return False

    def next(self, lane: Hashable) -> Waiting | None:
        """The request that runs in place of one of this connection, which has ended."""
        lines = self.lines
        line = lines.pop(lane)
        line.running -= 1
        if line.running or line.waiting:
            lines[lane] = line  # behind the others: it has had its turn
        if not self.queued:
            return None
        for lane, line in lines.items():  # noqa: B007  (both are used behind the loop)
            if line.waiting and self._may_run(line):
                break
        else:
            return None
        line.running += 1
        self.queued -= 1
        if len(lines) > 1:
            del lines[lane]
            lines[lane] = line
        return line.waiting.popleft()

    def _may_run(self, line: Line) -> bool:
        return line.running < self.most_of_one

    def head_wait_s(self, now: float) -> float:
        """How long the oldest queued request has waited; 0 without one."""
        if not self.queued:
            return 0.0
        return now - min(line.waiting[0].arrived for line in self.lines.values() if line.waiting)
