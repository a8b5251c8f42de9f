"""Received bytes that are not served yet: one budget for all connections together, and with
access control another one for those of them that have not shown an account.

They are incomplete frames, and complete ones that wait for their connection's turn or for its peer
to read its answers. Within the budget every connection is read. Beyond it, of the connections that
hold such bytes only the one with the most (the leader) is read: it is nearest to completing its
frame. The others wait until the sum is below the budget again. A leader that sends nothing, or
whose frame does not end in time, shows that the budget is held and not used: then it is closed, and
after it the connections whose bytes are oldest, until half of the budget is free. Where the others
hold much more than the budget, the one with most of them is closed at once. Connections whose
requests fit into one receive are not affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    from aerobee.remoting.server.peer import Peer

LEAD_S: Final = 10.0
"""How long the leader may be the only connection that is read before its frame must have ended."""
IDLE_SWEEPS: Final = 2
"""Sweeps in a row, a second apart, that may find nothing new from the leader. The loop has turned
between them, so the peer has sent nothing."""
CLOSES_BEYOND_BYTES: Final = 64 << 20
"""The most that all but the leader may hold beyond the budget before connections are closed at
once.
"""

log = structlog.stdlib.get_logger(__name__)


class InboundBudget:
    """Invariant: `total` is the sum of `held`; of those, all but the leader are starved.

    `held` is ordered by age: a connection that begins a new frame moves to the end.
    """

    __slots__ = (
        "_idle_sweeps",
        "_led_since",
        "_lines",
        "_seen",
        "held",
        "leader",
        "limit_bytes",
        "total",
    )

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.total = 0
        self.held: dict[Peer, int] = {}
        self.leader: Peer | None = None
        self._led_since = 0.0
        self._seen = 0
        """The bytes that the leader held at the last sweep."""
        self._idle_sweeps = 0
        self._lines = LogLimit(1)

    @property
    def scarce(self) -> bool:
        """Whether connections should be read in small amounts."""
        return self.total > self.limit_bytes

    def note(self, connection: Peer, pending: int, now: float, *, renewed: bool) -> None:
        """Record a connection's `pending` unserved bytes; may close the one with most.

        `renewed`: none of them are those it had before.
        """
        before = connection.inbound
        connection.inbound = pending
        self.total += pending - before
        if renewed:
            self.held.pop(connection, None)
        if pending:
            self.held[connection] = pending
        else:
            self.held.pop(connection, None)
            if connection.starved:
                connection.starve(starved=False)
        if self.leader is None and self.total <= self.limit_bytes:
            return
        if connection is self.leader and (renewed or pending < before):
            self.leader = None
        self._choose(now)
        while self._beside_leader() > self.limit_bytes + CLOSES_BEYOND_BYTES:
            others = (peer for peer in self.held if peer is not self.leader)
            self._close(max(others, key=self.held.__getitem__))

    def forget(self, connection: Peer, now: float) -> None:
        """Remove a closed connection."""
        if self.held.pop(connection, 0):
            self.total -= connection.inbound
            connection.inbound = 0
            if connection is self.leader:
                self.leader = None
            self._choose(now)

    def release(self, connection: Peer, now: float) -> None:
        """Remove an open connection, which another budget counts from its next bytes on."""
        self.forget(connection, now)
        if connection.starved:
            connection.starve(starved=False)

    def sweep(self, now: float) -> None:
        """Check that the leader makes progress; if not, free part of the budget."""
        leader = self.leader
        if leader is None:
            return
        # A connection that waits for its turn, not for its peer, is not at fault.
        idle = leader.inbound == self._seen and (leader.paused or not leader.waits)
        self._idle_sweeps = self._idle_sweeps + 1 if idle else 0
        self._seen = leader.inbound
        if self._idle_sweeps >= IDLE_SWEEPS or now - self._led_since > LEAD_S:
            self._close(leader)
            self._make_room()

    def _beside_leader(self) -> int:
        """The bytes that all but the leader hold: the leader's frame alone may be longer than the
        budget.
        """
        return self.total - (self.held.get(self.leader, 0) if self.leader is not None else 0)

    def _make_room(self) -> None:
        for connection in list(self.held):
            if self.total <= self.limit_bytes // 2:
                return
            if connection.paused or not connection.waits:
                self._close(connection)

    @staticmethod
    def _close(connection: Peer) -> None:
        connection.close("its frame did not end in time, and there is no room for others")

    def _choose(self, now: float) -> None:
        if self.total <= self.limit_bytes:
            self.leader = None
        elif self.leader is None:
            self._led_since, self._idle_sweeps = now, 0
            self.leader = max(self.held, key=self.held.__getitem__)
            self._seen = self.held[self.leader]
            if self._lines.admit(now) is not None:
                connections = len(self.held)
                log.warning("connection.starved", held_bytes=self.total, connections=connections)
        for connection in self.held:
            starved = self.leader is not None and connection is not self.leader
            if connection.starved is not starved:
                connection.starve(starved=starved)
