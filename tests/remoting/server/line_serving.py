"""A second protocol for the reactor: lines. It shows what a protocol needs of a channel.

text          → the same line
answer N      → N times `x`, and the end of the line; made as fast as the peer reads it
wait          → nothing, until the test tells
I am NAME     → `hello`; the peer counts as one that has shown an account
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

from aerobee.remoting.server import channel as channel_module
from aerobee.remoting.server.channel import Channel

if TYPE_CHECKING:
    from aerobee.remoting.server.channel import NewSocket, Serving
    from aerobee.remoting.server.left_bytes import Piece

if not str(channel_module.__file__).endswith(".py"):
    pytest.skip("compiled: no interpreted class inherits from Channel", allow_module_level=True)

PART: Final = 1_000
"""What is made at a time of a long answer."""


class LineChannel(Channel):
    """Invariant: `left` has whole lines; those behind a long answer wait for its end."""

    __slots__ = ("begun", "left", "told", "waiting", "wanted")

    def __init__(self, new: NewSocket, serving: Serving[Any]) -> None:
        super().__init__(new, serving)
        self.left: deque[bytes] = deque()
        self.begun = b""
        """A line that has not come whole."""
        self.wanted = 0
        """What is left to be made of a long answer."""
        self.waiting = 0
        self.told: list[str] = []

    @property
    def has_left(self) -> bool:
        return bool(self.left)

    @property
    def unserved_bytes(self) -> int:
        return super().unserved_bytes + len(self.begun) + sum(map(len, self.left))

    def crowded(self) -> None:
        self.told.append("crowded")

    def drained(self) -> None:
        self.told.append("drained")
        self.go_on()

    def ended(self) -> None:
        self.told.append("ended")
        self.left.clear()
        self.begun = b""

    def go_on(self) -> None:
        """Make what the peer may read, then serve the lines behind it, while the turn lasts."""
        while self.wanted and not self.stalled:
            size = min(self.wanted, PART)
            self.wanted -= size
            self.put(b"x" * size if self.wanted else b"x" * size + b"\n")
            self.write()
        while self.left and not self.wanted and self.state.free:
            if monotonic() > self.context.turn_ends:
                break
            self.line(self.left.popleft())

    def line(self, line: bytes) -> None:
        """Serve one line."""
        self.context.stats.requests += 1
        if line.startswith(b"I am "):
            self.accounts |= {line[5:].decode()}
            self.admit()
            self.put(b"hello\n")
        elif line == b"wait":
            self.held += 1
            self.waiting += 1
        elif line.startswith(b"answer "):
            self.wanted = int(line[7:])
            self.go_on()
        else:
            self.put(line + b"\n")

    def tell(self) -> None:
        """End the wait."""
        self.held -= self.waiting
        self.put(b"waited\n" * self.waiting)
        self.waiting = 0


class LineServing:
    """Serves lines."""

    def channel(self, new: NewSocket) -> LineChannel:
        return LineChannel(new, self)

    def take(self, channel: LineChannel, data: memoryview, since: float, until: float) -> None:
        before = bool(channel.left)
        *lines, channel.begun = (channel.begun + bytes(data)).split(b"\n")
        if lines:
            channel.context.shared.heard(channel)
        channel.left.extend(lines)
        self._serve(channel, renewed=bool(lines) and not before)

    def go_on(self, channel: LineChannel) -> None:
        self._serve(channel, renewed=False)

    def piece(
        self, channel: LineChannel, data: memoryview, since: float, until: float
    ) -> Piece | None:
        return None

    def _serve(self, channel: LineChannel, *, renewed: bool) -> None:
        channel.go_on()
        if not channel.closed:
            channel.note_left(renewed=renewed)
            channel.settle()
