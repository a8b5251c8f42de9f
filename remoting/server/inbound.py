"""Frames that have begun and not ended: one budget of bytes for all connections together.

Within the budget everybody is read. Beyond it, of the connections with half a frame only the one
that holds most is read: it is nearest to giving back. The others stall until the sum is below the
budget again, and one that leads for too long is closed. Whole frames are nobody's debt: peers whose
requests fit into one receive notice nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    from remoting.server.connection import Connection

__all__ = ["LEAD_S", "InboundBudget"]

LEAD_S: Final = 10.0
"""How long one connection may be the only one that is read before its frame must have ended."""

log = structlog.stdlib.get_logger("aerobee.remoting")


class InboundBudget:
    """Law: `total` is the sum of `held`; whoever is in `held` is starved while another leads."""

    __slots__ = ("_led_since", "_lines", "held", "leader", "limit_bytes", "total")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.total = 0
        self.held: dict[Connection, int] = {}
        self.leader: Connection | None = None
        self._led_since = 0.0
        self._lines = LogLimit(1)

    def note(self, connection: Connection, pending: int, now: float) -> None:
        """A connection keeps `pending` bytes of an unfinished frame now."""
        before = connection.inbound
        connection.inbound = pending
        self.total += pending - before
        if pending:
            self.held[connection] = pending
        else:
            self.held.pop(connection, None)
            if connection.starved:
                self._starve(connection, starved=False)
        if self.leader is None and self.total <= self.limit_bytes:
            return
        if connection is self.leader and pending < before:
            self.leader = None
        self._choose(now)

    def forget(self, connection: Connection, now: float) -> None:
        """A connection has closed."""
        if self.held.pop(connection, 0):
            self.total -= connection.inbound
            if connection is self.leader:
                self.leader = None
            self._choose(now)

    def sweep(self, now: float) -> None:
        """Close who leads for too long."""
        if self.leader is not None and now - self._led_since > LEAD_S:
            self.leader.close("its frame did not end in time, and there is no room for others")

    def _choose(self, now: float) -> None:
        if self.total <= self.limit_bytes:
            self.leader = None
        elif self.leader is None:
            self._led_since = now
            self.leader = max(self.held, key=self.held.__getitem__)
            if self._lines.admit(now) is not None:
                connections = len(self.held)
                log.warning("connection.starved", held_bytes=self.total, connections=connections)
        for connection in self.held:
            starved = self.leader is not None and connection is not self.leader
            if connection.starved is not starved:
                self._starve(connection, starved=starved)

    @staticmethod
    def _starve(connection: Connection, *, starved: bool) -> None:
        connection.starved = starved
        connection.watch()
