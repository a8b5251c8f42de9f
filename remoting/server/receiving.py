"""What a selector does for a connection of which more was sent than a turn serves."""

from __future__ import annotations

import fcntl
import termios
from array import array
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from aerobee.remoting.server.read_ahead import Piece

if TYPE_CHECKING:
    from aerobee.remoting.server.arrivals import Arrivals
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.peer import Wire
    from aerobee.remoting.server.read_ahead import ReadAhead

AHEAD_S: Final = 0.020
"""Data that has waited longer, with more behind it in its socket, is read ahead: in a broker
without overload every socket has its turn earlier."""
AHEAD_BYTES: Final = 1 << 20
"""The most that is read ahead of one connection."""
BACKLOG_FRAME_BYTES: Final = 200
"""The memory that a waiting frame takes beside its bytes."""


def read_ahead(
    connection: Connection, ahead: ReadAhead, buffer: memoryview, arrivals: Arrivals
) -> None:
    """Read all that the socket has now, as far as there is room for it.

    What were left there would keep the peer from sending, and wait where nobody knows since when.
    """
    while _read_piece(connection, ahead, buffer, arrivals):
        pass


def _read_piece(
    connection: Connection, ahead: ReadAhead, buffer: memoryview, arrivals: Arrivals
) -> bool:
    """Read once; whether the socket may have more."""
    budget, context, reading = connection.budget, connection.context, connection.reading
    room = ahead.size < AHEAD_BYTES and budget.total < budget.limit_bytes // 2
    received = 0
    if room and not (ahead.ended or connection.starved):
        try:
            received = connection.sock.recv_into(buffer)
            ahead.ended = not received
        except BlockingIOError:
            pass
        except OSError:
            ahead.ended = True
    if not received:
        arrivals.unasked(reading)
        return False
    context.stats.bytes_in += received
    connection.last_active = now = context.now
    unread = unread_bytes(connection.sock) if received == len(buffer) else 0
    since = arrivals.read(reading, now, received, unread)
    ahead.add(Piece(bytes(buffer[:received]), since, reading.until))
    return unread > 0


def refuse_ahead(connection: Connection, ahead: ReadAhead) -> Piece | None:
    """Refuse what has waited too long; the first piece with something to serve.

    None: there is nothing, or the turn is over.
    """
    resumed, context = connection.reading.resumed, connection.context
    high_water = context.shared.limits.high_water_bytes
    while (piece := ahead.first(resumed)) is not None and not connection.decoder.pending_bytes:
        late = connection.worker.refuse_late(connection, piece)
        if late == piece.at:
            break
        ahead.done(piece, late)
        if connection.unsent > high_water:
            connection.write()
            if connection.paused or connection.closed:
                break
        if monotonic() > context.turn_ends:
            return None
    return piece


def unread_bytes(sock: Wire) -> int:
    """How many bytes the kernel still holds for us; 0 where it does not say."""
    left = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, left)
    return left[0]


def waiting_bytes(connection: Connection) -> int:
    """The approximate memory of what waits for its turn, and of the request in progress."""
    unfinished, ahead = connection.unfinished, connection.ahead
    size = len(unfinished.command.body) if unfinished is not None else 0
    if ahead is not None:
        size += ahead.size
    for _, header, body, _ in connection.backlog:
        size += BACKLOG_FRAME_BYTES + len(header) + len(body)
    return size
