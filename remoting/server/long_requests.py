"""Permits for requests of many steps: a few run at a time, the others keep only their bytes.

A request in progress may hold many times the bytes of its body. A request that ends in its first
turn needs no permit. The others ask for one in each of their turns; permits are given in the order
of the first ask, so that every request gets one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

AT_ONCE: Final = 16
"""Long requests in progress at the same time."""
BODIES_BYTES: Final = 2 << 20
"""Bytes of their bodies together; a request with a larger body runs alone."""
SHORT_BYTES: Final = 64 << 10
"""A request with a body of at most this size begins without a permit."""


class LongRequests:
    """Invariant: `bytes` is the sum of `held`; only a connection in `held` takes a second turn."""

    __slots__ = ("bytes", "held", "waiting")

    def __init__(self) -> None:
        self.bytes = 0
        self.held: dict[Hashable, int] = {}
        self.waiting: dict[Hashable, None] = {}
        """Connections that asked for a permit and have none, oldest first."""

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
        """Return the permit: its request is over, is postponed, or waits for its peer to read."""
        if self.held:
            self.bytes -= self.held.pop(connection, 0)
        if self.waiting:
            self.waiting.pop(connection, None)
