"""When bytes reached the kernel, derived from when a selector read them: no system call tells.

The waiting time of a request starts there, not at its read: while the loop is busy, requests wait
in socket buffers as they would in a pool's queue, and the limits on waiting count that time. The
rules:

1. A read that emptied its socket read everything: what the next read returns came after it.
2. The poller reports every socket that has data. A socket that it did not report in a round was
   empty when that round began, so data that the next round finds came since then. This does not
   hold where the poller reported as many as it may, or where it was not asked about a socket.
3. A poller that had to wait found all sockets empty: what it then reports has just come. But its
   task continues only when the loop is free: if a slow round of another selector ended a moment
   ago, the data may have come since that round began.
4. After a slow round every socket is polled before any answer is sent. On a socket that is empty
   then, data comes after that round: a client that awaits a response has not sent its next request
   yet, and must not be refused for the time that its own request took.
5. Data that did not fit into one receive came evenly over the time: the part that was read came in
   the first part of it.
6. While a connection was paused, its peer did not read its answers: that time is the peer's fault
   and does not count. Nor does the time in which an earlier request of it was postponed: that time
   is bounded, and refusing the requests that waited in order behind it would help nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple

JUST_NOW_S: Final = 0.020
"""The time between the end of a slow round and the first rounds of the other selectors."""


class SlowRound(NamedTuple):
    """When the round began and ended, in seconds of the loop's clock."""

    began: float
    ended: float


NO_SLOW_ROUND: Final = SlowRound(float("-inf"), float("-inf"))


class Reading:
    """Counts of the data of one socket."""

    __slots__ = ("resumed", "round", "until")

    def __init__(self, now: float) -> None:
        self.until = now
        """All that the peer sent before this time has been read."""
        self.round = -1
        """The last round whose poll does not tell whether this socket was empty."""
        self.resumed = 0.0
        """When it was last unpaused, or its postponed request resumed."""


class Arrivals:
    """Estimates arrival times of data, from the rounds of one selector.

    All times are seconds of the loop's clock and never go back.
    """

    __slots__ = ("_began", "_came_since", "_round")

    def __init__(self, now: float) -> None:
        self._began = now
        """Data of sockets that the poller did not report came after this time."""
        self._came_since = now
        self._round = 0

    def begin(self, now: float, *, all_named: bool, waited: bool, slow: SlowRound) -> None:
        """Start a round over the sockets that the poller has just reported.

        `all_named`: it had room to report more; `waited`: no socket was ready when it was asked;
        `slow`: the last slow round of any selector.
        """
        came_since = self._began
        self._round += 1
        if waited:
            held_up = self._began <= slow.began and now - slow.ended < JUST_NOW_S
            came_since = slow.began if held_up else now
            # All were empty, including those that the last round read.
            self._round += 1
        if all_named or waited:
            self._began = now
        self._came_since = came_since

    def read(self, reading: Reading, now: float, received: int, unread: int = 0) -> float:
        """The earliest time at which the data just read can have come; its last byte came at
        `reading.until`. Hot.

        `received` bytes were read by `now`, and `unread` more were left in the socket.
        """
        since = reading.until
        if since < self._came_since and reading.round < self._round - 1:
            since = self._came_since
        if since < reading.resumed:
            since = reading.resumed
        reading.round = self._round
        if unread:
            reading.until = since + (now - since) * received / (received + unread)
        else:
            reading.until = now
        return since

    def unasked(self, reading: Reading) -> None:
        """Note that the poller was not asked about this socket: earlier frames are served first."""
        reading.round = self._round
