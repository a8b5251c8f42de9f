"""Bytes that were read and not split into frames yet: what waits in an overloaded broker.

Under overload a socket holds more than its turn can serve. Left there, the rest would fill the
kernel's buffers on both sides, megabytes for each connection, and whatever is served would be
seconds old, though nobody could tell: when it came is known only of bytes that were read. So the
selector reads all of it, notes when, and serves it in turns; what waits too long is refused from
these bytes, at a fraction of the cost of serving it (`refusals`).
"""

from __future__ import annotations

import fcntl
import termios
from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aerobee.remoting.wire.frame import HEAD

if TYPE_CHECKING:
    from aerobee.remoting.server.peer import Wire


LATE_S: Final = 0.020
"""Data that has waited longer, with more behind it in its socket, is left: in a broker
without overload every socket has its turn earlier."""
LEFT_BYTES_MAX: Final = 1 << 20
"""The most that is left of one connection."""
JOINED_BYTES: Final = 64 * 1024
"""A longer part of a frame is not copied to its rest: the decoder collects it."""


class Piece:
    """The bytes of one read, and when they came: evenly from `since` to `until`, seconds of the
    loop's clock.

    Frames before `at` are served or refused.
    """

    __slots__ = ("at", "data", "since", "until")

    def __init__(self, data: bytes, since: float, until: float) -> None:
        self.data = data
        self.at = 0
        self.since = since
        self.until = until

    def came(self, at: int) -> float:
        """When the byte at this place came."""
        return self.since + (self.until - self.since) * at / len(self.data)

    def before(self, when: float) -> int:
        """The place up to which bytes came before `when`."""
        if when >= self.until:
            return len(self.data)
        if when <= self.since:
            return 0
        return int(len(self.data) * (when - self.since) / (self.until - self.since))

    def drop(self) -> None:
        """Drop the bytes before `at`."""
        self.since = self.came(self.at)
        self.data = self.data[self.at :]
        self.at = 0

    def lacks_the_rest(self) -> bool:
        """Whether less than a frame is left."""
        left = len(self.data) - self.at
        return left < 8 or left < 4 + HEAD.unpack_from(self.data, self.at)[0]


class LeftBytes:
    """The pieces of one connection, in order.

    Invariants: `size` is what they hold unserved; of a piece, that is at least a half.
    """

    __slots__ = ("ended", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.size = 0
        self.ended = False
        """The peer sends nothing more; the next read after these pieces finds out what it was."""

    def add(self, piece: Piece) -> None:
        """Put a piece behind the others."""
        self.pieces.append(piece)
        self.size += len(piece.data)

    def first(self, resumed: float) -> Piece | None:
        """The first piece with anything left, joined with the next where a frame lies in both.

        No byte of it came before `resumed`. None: nothing is left.
        """
        pieces = self.pieces
        while pieces:
            piece = pieces[0]
            left = len(piece.data) - piece.at
            if left and (len(pieces) == 1 or left > JOINED_BYTES or not piece.lacks_the_rest()):
                piece.since = max(piece.since, resumed)
                piece.until = max(piece.until, resumed)
                return piece
            pieces.popleft()
            if left:
                pieces[0].data = piece.data[piece.at :] + pieces[0].data
        return None

    def done(self, piece: Piece, to: int) -> None:
        """Frames before `to` in the first piece are served or refused."""
        self.size -= to - piece.at
        piece.at = to
        if 2 * to > len(piece.data) > to:
            piece.drop()


def unread_bytes(sock: Wire) -> int:
    """How many bytes the kernel still holds for us; 0 where it does not say."""
    left = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, left)
    return left[0]
