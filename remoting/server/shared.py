"""What the connections of one process share, whichever selector they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.server.arrivals import NO_SLOW_ROUND
from aerobee.remoting.server.inbound import InboundBudget
from aerobee.remoting.server.log_limit import LogLimit
from aerobee.remoting.server.long_requests import LongRequests
from aerobee.remoting.server.outbound import OutboundBudget
from aerobee.remoting.stats import RemotingStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.server.poller import Poller

__all__ = ["Limits", "SelectorContext", "Shared"]


class Limits(NamedTuple):
    """What one connection may cost, and all of them together. Bytes, seconds."""

    max_frame_bytes: int
    max_header_bytes: int
    high_water_bytes: int
    low_water_bytes: int
    idle_s: float
    stall_s: float
    inbound_bytes: int = 128 << 20
    """What all connections together may keep of unfinished frames."""
    outbound_bytes: int = 256 << 20
    """What all connections together may have unsent before each has but its share."""
    least_per_s: int = 0
    """Bytes that a peer must take in a second while something waits for it."""
    max_connections: int = 0
    """Connections at once; 0: any."""
    descriptors: int | None = None
    """How many the process may have open; None: any."""


class Shared:
    """Limits, counters and budgets of all connections, and who has something to send.

    Answers may become ready in any round, or after a flush of the store: all of them wait in
    `outbox`, and what finished a batch calls `flush`, so that each connection sees one send.
    """

    __slots__ = (
        "_numbers",
        "inbound",
        "limits",
        "long_requests",
        "outbound",
        "outbox",
        "postponed",
        "rejections",
        "slow_round",
        "stats",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stats = RemotingStats()
        self.outbox: list[Peer] = []
        self.postponed: list[Callable[[float], None]] = []
        """What `Reactor.resume` is to call, with the time of the loop's clock."""
        self.inbound = InboundBudget(limits.inbound_bytes)
        self.outbound = OutboundBudget(limits.outbound_bytes, limits.high_water_bytes, self.stats)
        self.long_requests = LongRequests()
        self.rejections = LogLimit()
        """Of `frame.rejected`, for all selectors: any peer can provoke that line."""
        self.slow_round = NO_SLOW_ROUND
        """The last one of any selector."""
        self._numbers = 0

    def next_number(self) -> int:
        """A number for the next connection, unique in this process."""
        self._numbers += 1
        return self._numbers

    def flush(self) -> None:
        """Write every connection that has something ready."""
        outbox = self.outbox
        if outbox:
            # A write may close a connection, whose callbacks may queue for others.
            for connection in outbox:
                connection.write()
            outbox.clear()


class SelectorContext:
    """What the connections of one selector share: its poller, its time, who goes on next."""

    __slots__ = ("now", "outbox", "poller", "shared", "stats", "turn_ends", "waiting")

    def __init__(self, shared: Shared, poller: Poller, now: float) -> None:
        self.shared = shared
        self.poller = poller
        self.outbox = shared.outbox
        self.stats = shared.stats
        self.now = now
        """When the turn of the connection that is served now began; seconds of `monotonic`."""
        self.turn_ends = 0.0
        self.waiting: dict[int, None] = {}
        """Descriptors of those who go on in the next round, whatever the poller says."""
