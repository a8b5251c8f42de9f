"""When bytes reached the kernel, worked out from when a selector read: no system call says it.

A request waits from there on, not from its read: while the loop is busy, requests wait in sockets
as they would in a pool's queue, and the limits on waiting count that time. What is known:

1. A read that emptied its socket had everything: what the next one brings came after it.
2. The poller names every socket that holds something. One that was not named in a round was empty
   when that round began, and what it holds in the next came since then. This does not follow where
   the poller named as many as it may, or where it was not asked about a socket.
3. A poller that had to wait found all sockets empty: what it then names has just come. But its task
   goes on only when the loop is free: if a slow round of another selector ended a moment ago, it
   may have come since that round began.
4. After a slow round every socket is polled before any answer leaves. One that is empty then
   brings later what came after that round: a client that awaits a response has not sent its next
   request yet, and is not to be refused for the time that its own request took.
5. What did not fit into one receive came evenly over the time: the part that was read came in the
   first part of it.
6. While a connection was paused, its peer did not read its answers: that time is the peer's fault
   and does not count. Nor does the time in which a request before it was postponed: it is bounded,
   and to refuse what waited in order behind it would help nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["JUST_NOW_S", "NO_SLOW_ROUND", "Arrivals", "Reading", "SlowRound"]

JUST_NOW_S: Final = 0.020
"""Between the end of a slow round and the first rounds of the other selectors."""


class SlowRound(NamedTuple):
    """When it began and ended, in seconds of the loop's clock."""

    began: float
    ended: float


NO_SLOW_ROUND: Final = SlowRound(float("-inf"), float("-inf"))


class Reading:
    """What is known of one socket."""

    __slots__ = ("resumed", "round", "until")

    def __init__(self, now: float) -> None:
        self.until = now
        """What the peer sent before this time has been read."""
        self.round = -1
        """The last round whose poll says nothing about this socket's being empty."""
        self.resumed = 0.0
        """When it was no longer paused, or what was postponed went on."""


class Arrivals:
    """The rounds of one selector, and what follows from them for the bytes that its sockets bring.

    All times are seconds of the loop's clock, and none is later than one given before it.
    """

    __slots__ = ("_began", "_came_since", "_round")

    def __init__(self, now: float) -> None:
        self._began = now
        """Since when all that the poller did not name may have come."""
        self._came_since = now
        self._round = 0

    def begin(self, now: float, *, all_named: bool, waited: bool, slow: SlowRound) -> None:
        """A round begins, over what the poller named just now.

        `all_named`: it could have named more; `waited`: nothing was there when it was asked;
        `slow`: the last slow round of any selector.
        """
        came_since = self._began
        self._round += 1
        if waited:
            held_up = self._began <= slow.began and now - slow.ended < JUST_NOW_S
            came_since = slow.began if held_up else now
            # All were empty, also those that the last round has read.
            self._round += 1
        if all_named or waited:
            self._began = now
        self._came_since = came_since

    def read(self, reading: Reading, now: float, received: int, unread: int = 0) -> float:
        """Since when what was read came; the last of it came at `reading.until`. Hot.

        `received` bytes were read by `now`, and `unread` more were left in the socket.
        """
        since = reading.until
        if since < self._came_since and reading.round != self._round - 1:
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
        """The poller was not asked what this socket holds: what was read before is served first."""
        reading.round = self._round
