"""Connections that have shown nothing yet: the first to go where places are scarce.

A connection is a newcomer until a request of it is let pass: with access control until the first
that an account has signed (or that needs no account), without it until the first whole request. It
is closed when that takes too long, whatever else it sends. Where all places are taken, the oldest
newcomer of the address that has most of them gives its place to the next peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.remoting.server.addresses import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.remoting.server.peer import Newcomer


class Newcomers:
    """Invariant: `by_address` has each open newcomer once, oldest first, and no empty addresses."""

    __slots__ = ("by_address", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        """How long a connection may be a newcomer."""
        self.by_address: dict[bytes, dict[Newcomer, float]] = {}
        """Client address → its newcomers, and since when they are open."""

    def add(self, connection: Newcomer, now: float) -> None:
        """Note a connection that has just been opened."""
        self.by_address.setdefault(source_of(connection.host), {})[connection] = now

    def remove(self, connection: Newcomer) -> None:
        """Forget a connection that has shown a frame, or is closed."""
        source = source_of(connection.host)
        others = self.by_address.get(source)
        if others is not None and others.pop(connection, None) is not None and not others:
            del self.by_address[source]

    def first_to_go(self, source: bytes | None = None) -> Newcomer | None:
        """The oldest one of the address that has most; or of this address."""
        if source is not None:
            return next(iter(self.by_address.get(source, ())), None)
        most = max(self.by_address.values(), key=len, default=None)
        return None if most is None else next(iter(most))

    def late(self, now: float) -> Iterator[Newcomer]:
        """Connections that have had their time; not those whose requests wait for us."""
        opened_before = now - self.timeout_s
        for newcomers in list(self.by_address.values()):
            for connection, since in list(newcomers.items()):
                if since >= opened_before:
                    break
                if not (connection.closed or connection.waits or connection.postponed):
                    yield connection
