"""How far each slave is: read from the connections, for answers and for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.replication.transfer import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.core.core import Core
    from aerobee.store.replication.log_out import Follower


SHADOW: Final = "shadow"
UNREADABLE: Final = "unreadable"
"""The log cannot be read here, where the slave goes on."""


class SlaveFigures(NamedTuple):
    """One connection of a slave."""

    host: str
    peer: str
    """Host and port."""
    standing: str
    """As its transfer says, `shadow` or `unreadable`."""
    acknowledged: int
    """The end of what it has; 0 while it does not follow."""
    next_offset: int
    lag_bytes: int
    lag_s: float
    """How long ago it had everything."""
    in_sync: bool


class SlavesView:
    """The slaves of this broker."""

    def __init__(self, core: Core, now: Callable[[], float]) -> None:
        """`now` is the clock of the loop, in seconds."""
        self._log_out = core.store.log_out
        self._gap_bytes = core.config.replication.ha_max_gap_not_in_sync_bytes
        self.now = now

    @property
    def end(self) -> int:
        """The end of the log, as slaves get it."""
        return self._log_out.span().max_offset

    def figures(self) -> Iterator[SlaveFigures]:
        """Each connection; one that does not follow is never in sync."""
        end, now = self.end, self.now()
        for follower in self._log_out.followers:
            yield self._of(follower, end, now)

    def of_hosts(self) -> dict[str, SlaveFigures]:
        """Each slave once, by its address: of several connections the one that is furthest.

        Shadows are no slaves: what they have counts for nothing.
        """
        best: dict[str, SlaveFigures] = {}
        for slave in self.figures():
            if slave.standing == SHADOW:
                continue
            other = best.get(slave.host)
            if other is None or slave.acknowledged > other.acknowledged:
                best[slave.host] = slave
        return best

    def _of(self, follower: Follower, end: int, now: float) -> SlaveFigures:
        transfer = follower.transfer
        follows = transfer.standing is Standing.FOLLOWS and not transfer.shadow
        acknowledged = transfer.acknowledged if follows else 0
        standing = UNREADABLE if follower.unreadable else str(transfer.standing)
        return SlaveFigures(
            follower.host,
            follower.peer,
            SHADOW if transfer.shadow else standing,
            acknowledged,
            max(0, transfer.next_offset),
            end - acknowledged,
            follower.lag.seconds(acknowledged, end, now),
            follows and not follower.unreadable and end - acknowledged < self._gap_bytes,
        )
