"""Answers that peers have not read yet: one budget of bytes for all connections together.

Within the budget each connection may have as much unsent as its high-water mark. Beyond it the mark
is its share of the budget: a connection with more unsent is neither read nor served until its peer
has read its answers. At twice the budget, which answers to held requests can reach, the connection
with most unsent is closed.
"""

from __future__ import annotations

import fcntl
import termios
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    from aerobee.remoting.server.peer import Peer, Wire
    from aerobee.remoting.stats import RemotingStats

JOIN_BYTES: Final = 16 * 1024
"""Below this, joining several answers is cheaper than sending them as separate vectors."""
MAX_VECTORS: Final = 1024
"""IOV_MAX of Linux."""

CLOSES_AT: Final = 2
"""The multiple of the budget at which connections are closed."""

log = structlog.stdlib.get_logger(__name__)


class OutboundBudget:
    """Invariant: `stats.unsent_bytes` is the sum of `left`, the unsent bytes of each connection."""

    def __init__(self, limit_bytes: int, high_water_bytes: int, stats: RemotingStats) -> None:
        self.limit_bytes = limit_bytes
        self.high_water_bytes = high_water_bytes
        """The present mark at which a connection is no longer read."""
        self.left: dict[Peer, int] = {}
        self._stats = stats
        self._most_bytes = high_water_bytes
        self._lines = LogLimit(1)

    def note(self, connection: Peer, left: int, now: float) -> None:
        """Record a connection's unsent bytes; may close the connection with most, also this one."""
        before = self.left.get(connection, 0)
        if left:
            self.left[connection] = left
        else:
            self.left.pop(connection, None)
        stats = self._stats
        stats.unsent_bytes += left - before
        if stats.unsent_bytes <= self.limit_bytes:
            self.high_water_bytes = self._most_bytes
            return
        self.high_water_bytes = min(self._most_bytes, self.limit_bytes // len(self.left))
        while stats.unsent_bytes > CLOSES_AT * self.limit_bytes:
            most = max(self.left, key=self.left.__getitem__)
            left_out = self._lines.admit(now)
            if left_out is not None:
                log.warning(
                    "connection.unsent",
                    address=most.address,
                    unsent_bytes=self.left[most],
                    left_out=left_out,
                )
            most.close("it does not read, and there is no room for others")


class Uptake:
    """How much a peer reads while data waits for it: what its system acknowledges.

    The rate at which the kernel here takes bytes would say little. The kernel keeps up to 4 MiB for
    a peer, and takes more only when a third of that is free: a peer that reads 100 KB/s looks deaf
    then.
    """

    __slots__ = ("_at", "_before", "_read", "_since", "sent")

    def __init__(self) -> None:
        self.sent = 0
        """Bytes that the kernel has taken, or that have left the streams, by the connection's
        account."""
        self._read: int | None = None
        """Bytes that the peer has acknowledged, when it was judged last; more or less by a
        constant."""
        self._at = 0.0
        """When it was seen to have read something."""
        self._before = 0
        self._since = 0.0
        """When the present stretch began, and what had been read before it."""

    def judge(
        self, now: float, unacknowledged: int, stall_s: float, least_per_s: int
    ) -> str | None:
        """Why the peer is to be closed, if it reads nothing for `stall_s`, or on average over as
        long less than `least_per_s`. Called now and then, first when data begins to wait.
        """
        read = self.sent - unacknowledged
        if self._read is None:
            self._read = self._before = read
            self._at = self._since = now
        elif read > self._read:
            self._read, self._at = read, now
        if now - self._at >= stall_s:
            return "peer does not read"
        elapsed = now - self._since
        if elapsed >= stall_s:
            if self._read - self._before < least_per_s * elapsed:
                return "peer reads too slowly"
            self._since, self._before = now, self._read
        return None


def unacknowledged_bytes(sock: Wire) -> int:
    """How many bytes the kernel keeps for the peer; 0 where it does not say."""
    left = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, left)
    return left[0]


def send_queued(sock: Wire, out: list[bytes | memoryview], size: int) -> int:
    """Send the buffers of a queue, `size` bytes, once; returns how many bytes were taken.

    Raises: BlockingIOError, OSError.
    """
    if len(out) == 1:
        return sock.send(out[0])
    if size <= JOIN_BYTES:
        joined = b"".join(out)
        out[:] = [joined]
        return sock.send(joined)
    return sock.sendmsg(out[:MAX_VECTORS])


def drop_sent(out: list[bytes | memoryview], sent: int) -> None:
    """Remove the first `sent` bytes of a queue."""
    whole = 0
    for data in out:
        if len(data) > sent:
            out[whole] = memoryview(data)[sent:]
            break
        sent -= len(data)
        whole += 1
    del out[:whole]
