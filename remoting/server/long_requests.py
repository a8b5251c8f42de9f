"""Which of the requests that take many steps go on: a few, the others keep only what was sent.

A request in progress may hold many times the bytes of its body. One that is done within its first
turn needs no permit. The others have their turns as ever, and ask in each; permits are given in the
order in which they were asked for first, so that none waits for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["AT_ONCE", "BODIES_BYTES", "SHORT_BYTES", "LongRequests"]

AT_ONCE: Final = 16
"""Long requests that are worked at at the same time, in turns."""
BODIES_BYTES: Final = 2 << 20
"""Bytes of their bodies together; one that alone has more goes alone."""
SHORT_BYTES: Final = 64 << 10
"""With a body of at most so much a request begins without a permit."""


class LongRequests:
    """Law: `bytes` is the sum of `held`, and only who is in `held` takes a second turn."""

    __slots__ = ("bytes", "held", "waiting")

    def __init__(self) -> None:
        self.bytes = 0
        self.held: dict[Hashable, int] = {}
        self.waiting: dict[Hashable, None] = {}
        """Who has asked and has no permit, oldest first."""

    def take(self, connection: Hashable, size: int) -> bool:
        """Whether the request of a connection, with a body of `size` bytes, has a permit now."""
        held, waiting = self.held, self.waiting
        if connection in held:
            return True
        full = held and (len(held) >= AT_ONCE or self.bytes + size > BODIES_BYTES)
        if full or next(iter(waiting), connection) is not connection:
            waiting[connection] = None
            return False
        waiting.pop(connection, None)
        held[connection] = size
        self.bytes += size
        return True

    def leave(self, connection: Hashable) -> None:
        """Its request is over, or waits for the peer to take what it was sent."""
        self.bytes -= self.held.pop(connection, 0)
        self.waiting.pop(connection, None)
