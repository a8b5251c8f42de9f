"""Plain counters of the reactor; read on scrape, never locked."""

from __future__ import annotations

__all__ = ["RemotingStats"]


class RemotingStats:
    """Counters over all connections of a process. Bytes are those on the wire, frames included."""

    __slots__ = (
        "accept_failures",
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_opened",
        "connections_refused",
        "frames_rejected",
        "requests",
        "requests_failed",
        "requests_refused",
        "requests_too_fast",
        "rounds",
        "unsent_bytes",
    )

    def __init__(self) -> None:
        self.accept_failures = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_closed = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.frames_rejected = 0
        self.requests = 0
        self.requests_failed = 0
        self.requests_refused = 0
        self.requests_too_fast = 0
        self.rounds = 0
        self.unsent_bytes = 0

    @property
    def connections(self) -> int:
        """Connections open now."""
        return self.connections_opened - self.connections_closed
