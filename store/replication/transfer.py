"""The frames that a master sends to one slave, and its trust in the slave's reports.

Pure: reports and the ends of the log in, decisions out. Source: store format §8
(DefaultHAConnection).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Standing(StrEnum):
    """How the log of a slave stands to the master's."""

    SILENT = "silent"
    """The slave has not reported yet."""
    FOLLOWS = "follows"
    """The slave gets the log from its own end on."""
    AHEAD = "ahead"
    """The slave has bytes that the master never had, or has lost: nothing may follow them."""
    DELETED = "deleted"
    """The slave asks for bytes that the master has deleted, or that no log can have."""


class LogSpan(NamedTuple):
    """The ends of the master's log at one moment."""

    begin: int
    """The first byte that still exists."""
    end: int
    """The offset behind the last byte that may be sent."""
    max_offset: int
    """The end of the log; bytes behind `end` are not on disk yet and have to be."""
    segment_bytes: int
    known: int
    """The offset behind the last byte that a slave can have of this log: the end at the start, or
    of the bytes sent since.
    """


class LogPiece(NamedTuple):
    """Bytes of one segment."""

    physical_offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset behind the last of them."""
        return self.physical_offset + self.size


class Transfer:
    """The transfer of the log to one slave, over one connection.

    Invariant: `acknowledged` ≤ `next_offset` ≤ the end of the log while it follows; a slave that
    does not is sent nothing and counts for nothing, as long as the connection lasts.
    """

    __slots__ = ("acknowledged", "next_offset", "shadow", "standing", "whole")

    def __init__(self) -> None:
        self.shadow = False
        """Whether it has reported a negative offset, or has said so: it gets the log, and never
        counts."""
        self.whole = False
        """Whether an empty slave starts with the first byte that exists."""
        self.standing = Standing.SILENT
        self.next_offset = 0
        """The next byte to be sent; of a slave that does not follow, the byte that it has asked
        for.
        """
        self.acknowledged = -1
        """The end of what the slave has; −1 while it does not follow."""

    def reported(self, max_offset: int, log: LogSpan) -> bool:
        """Take a report; whether it says something new. The first one says where to start.

        Unless it wants the whole log, an empty slave starts with the last segment, as in Java: it
        begins its log there.
        """
        if self.standing is Standing.SILENT:
            self._start(max_offset, log)
            return True
        if self.standing is not Standing.FOLLOWS:
            return False
        if max_offset < 0 and not self.shadow:
            self.shadow, self.acknowledged = True, -1
            return True
        if self.shadow:
            return False
        # Bytes that were not sent cannot have been received, whatever a slave says.
        if not self.acknowledged < max_offset <= self.next_offset:
            return False
        self.acknowledged = max_offset
        return True

    def _start(self, max_offset: int, log: LogSpan) -> None:
        self.next_offset = max_offset
        if max_offset > log.known:
            # Even when this log has grown past it since: its bytes are others.
            self.standing = Standing.AHEAD
        elif max_offset == 0:
            into = (log.max_offset - log.begin) % log.segment_bytes
            self.next_offset = log.begin if self.whole else log.max_offset - into
            self.standing, self.acknowledged = Standing.FOLLOWS, 0
        elif max_offset < log.begin:
            self.standing = Standing.DELETED
        else:
            self.standing, self.acknowledged = Standing.FOLLOWS, max_offset
        if self.shadow:
            self.acknowledged = -1

    def refuse(self) -> None:
        """Send this slave nothing: it is known to have other bytes than the master."""
        self.standing, self.acknowledged = Standing.AHEAD, -1

    def piece(self, log: LogSpan, most: int) -> LogPiece | None:
        """The bytes to be sent now, never across the end of a segment; None: nothing. Hot."""
        at = self.next_offset
        if self.standing is not Standing.FOLLOWS or at >= log.end:
            return None
        if at < log.begin:
            self.standing, self.acknowledged = Standing.DELETED, -1
            return None
        left = log.segment_bytes - (at - log.begin) % log.segment_bytes
        return LogPiece(at, min(left, log.end - at, most))

    def sent(self, piece: LogPiece) -> None:
        """A piece is on its way."""
        self.next_offset = piece.end


def held_by(count: int, acknowledged: dict[str, int]) -> int:
    """The end of what so many peers hold at least; −1 when there are fewer, and no peer counts
    twice.
    """
    ends = sorted(acknowledged.values(), reverse=True)
    return ends[count - 1] if 0 < count <= len(ends) else -1
