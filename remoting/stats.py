"""Plain counters of the reactor; read on scrape, never locked."""

from __future__ import annotations

from typing import Final

from aerobee.remoting.latency import Latencies

TLS_FAILURES: Final = ("certificate", "closed", "crowded", "plain", "protocol", "timeout")
"""Why a connection got no further than its handshake."""


class RemotingStats:
    """Counters over all connections of a process. Bytes are those of frames, as they are
    before encryption.
    """

    __slots__ = (
        "accept_failures",
        "bytes_in",
        "bytes_out",
        "connections_closed",
        "connections_displaced",
        "connections_late",
        "connections_opened",
        "connections_refused",
        "frames_rejected",
        "http_connections",
        "latencies",
        "requests",
        "requests_failed",
        "requests_refused",
        "requests_too_fast",
        "rounds",
        "tls_connections",
        "tls_expires_s",
        "tls_failed",
        "tls_handshakes",
        "unsent_bytes",
    )

    def __init__(self) -> None:
        self.accept_failures = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_closed = 0
        self.connections_displaced = 0
        """Closed so that another peer has a place."""
        self.connections_late = 0
        """Closed because no request of them was let pass in time."""
        self.connections_opened = 0
        self.connections_refused = 0
        self.frames_rejected = 0
        self.http_connections = 0
        """Open ones of the port of metrics and probes, which are not in the others."""
        self.latencies = Latencies()
        self.requests = 0
        self.requests_failed = 0
        self.requests_refused = 0
        self.requests_too_fast = 0
        self.rounds = 0
        self.tls_connections = 0
        """Open ones."""
        self.tls_expires_s: float | None = None
        """When the certificate of the listeners ends, in seconds since 1970."""
        self.tls_failed = dict.fromkeys(TLS_FAILURES, 0)
        self.tls_handshakes = 0
        """The handshakes that were completed."""
        self.unsent_bytes = 0

    @property
    def connections(self) -> int:
        """Connections open now."""
        return self.connections_opened - self.connections_closed
