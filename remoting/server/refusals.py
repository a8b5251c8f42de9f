"""Refusing many requests at once: the late ones at the beginning of what was read.

Under overload most requests end here, and each refusal takes time from one that could be served.
So nothing is made for a request that its refusal does not need: no frame, no command, no answer of
its own. Anything but an ordinary request that waited too long is left to the worker.
"""

from __future__ import annotations

from itertools import groupby, repeat
from typing import TYPE_CHECKING, Final

from aerobee.remoting.latency import SUCCESS_RESULT
from aerobee.remoting.server.pools import AGE_CHECK_S, timeout_around
from aerobee.remoting.wire.codes import Encoding, ResponseCode
from aerobee.remoting.wire.command import request_line
from aerobee.remoting.wire.frame import HEAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.read_ahead import Piece
    from aerobee.remoting.server.route_table import Resolved

__all__ = ["refuse_late"]

JSON: Final = int(Encoding.JSON)
SYSTEM_BUSY: Final = int(ResponseCode.SYSTEM_BUSY)
MANY: Final = 1_000
"""Refused at most in one call: about half a millisecond."""


def refuse_late(connection: Connection, piece: Piece, routes: Mapping[int, Resolved]) -> int:
    """Refuse the first requests of a piece that have one code and waited too long for their pool;
    returns the place behind them.

    All are told the time that the last of them waited. Hot.
    """
    data, at, now = piece.data, piece.at, connection.context.now
    view, end, unpack = memoryview(data), len(data), HEAD.unpack_from
    opaques: list[int] = []
    late_to, code, last = end, None, at
    route = None
    while at < late_to and end - at >= 8 and len(opaques) < MANY:
        length, mark = unpack(data, at)
        stop = at + 4 + length
        # The mark of a header that is not JSON is larger than any length.
        if stop > end or mark > length - 4:
            break
        try:
            line = request_line(view[at + 8 : at + 8 + mark])
        except (ValueError, RecursionError):
            break
        if line.code != code:
            if code is not None:
                break
            code, route = line.code, routes.get(line.code)
            late_to = 0 if route is None else _late_to(piece, route, now)
            if at >= late_to:
                break
        if line.flag:
            break
        opaques.append(line.opaque)
        last, at = at, stop
    if route is not None and opaques:
        _answer(connection, route, opaques, piece.came(last))
    return at


def _late_to(piece: Piece, route: Resolved, now: float) -> int:
    """The place before which requests have waited too long, and for no other reason."""
    pool = route.pool
    if pool.full or piece.came(piece.at) < pool.stall.end:
        return 0
    return piece.before(now - max(pool.max_wait_s, AGE_CHECK_S))


def _answer(connection: Connection, route: Resolved, opaques: list[int], arrived: float) -> None:
    """Tell them all; they count as having come at `arrived`."""
    pool, context, count = route.pool, connection.context, len(opaques)
    waited_ms = round((context.now - arrived) * 1000)
    before, after = timeout_around(waited_ms, len(pool.queue))
    answers: list[bytes] = []
    for digits, texts in groupby([b"%d" % opaque for opaque in opaques], len):
        length = len(before) + digits + len(after)
        start = HEAD.pack(4 + length, length) + before
        answers += (start, (after + start).join(texts), after)
    connection.encoding = JSON
    connection.put(b"".join(answers))
    stats = context.stats
    stats.requests += count
    stats.requests_refused += count
    pool.timed_out += count
    kind = (int(route.header.code), SYSTEM_BUSY, False, SUCCESS_RESULT)
    stats.latencies.ended[kind].extend(repeat(arrived, count))
