"""Which frames come too often, and the frame that says so when the engine cannot any more."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from aerobee.remoting.rate_limit import RateLimit

if TYPE_CHECKING:
    from aerobee.remoting.http2.events import ErrorCode
    from aerobee.remoting.http2.limits import Http2Limits

_GO_AWAY: Final = struct.Struct(">xHBBIII")
"""Length, type, flags, stream; then the last stream that was served and the code."""


class Floods:
    """The frames of one connection that a peer may send too often, each kind with its limit."""

    __slots__ = ("_limits", "_rates", "reason")

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._rates: dict[str, RateLimit] = {}
        self.reason = ""
        """The kind of frame that came too often; empty: none so far."""

    def count(self, kind: str, now_ms: float) -> bool:
        """Count a frame. `kind` is the field of the limits. False once, with the first too many."""
        rate = self._rates.get(kind)
        if rate is None:
            per_s: int = getattr(self._limits, kind)
            rate = self._rates[kind] = RateLimit(per_s, per_s)
        if rate.take(now_ms) or self.reason:
            return True
        self.reason = f"{kind.removesuffix('_per_s')}: more than {rate.burst} a second"
        return False


def go_away(last_stream: int, code: ErrorCode) -> bytes:
    """A whole GOAWAY frame. Source: RFC 9113 §6.8."""
    return _GO_AWAY.pack(8, 7, 0, 0, last_stream, code)
