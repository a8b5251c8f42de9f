"""The boss: accepts connections and assigns each socket to the next selector.

Beyond the limit on connections, and where only the descriptors reserved for the store are left, a
peer takes the place of a connection that has shown nothing yet (`newcomers`), or of one of an
address that has more than half of all places. Where there is none, it is accepted and closed at
once: it sees that, and others do not wait behind it.
"""

from __future__ import annotations

import errno
import math
import socket
from collections import defaultdict
from itertools import cycle
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import structlog
import trio

from aerobee.remoting.server.addresses import packed_host, source_of
from aerobee.remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aerobee.remoting.server.channel import Channel, Serving
    from aerobee.remoting.server.peer import Newcomer
    from aerobee.remoting.server.selector import Selector
    from aerobee.remoting.server.shared import SharedState

ACCEPT_PAUSE_S = 0.1
"""How long accepting pauses when the system is out of descriptors or buffers."""
ACCEPTS_PER_WAKE = 64
ACCEPT_S = 0.002
"""How long a burst of connections may occupy the loop."""
RESERVED_DESCRIPTORS = 1_024
"""Descriptors for files that the store opens later, and for probes; at most a quarter of all."""
OVERLOADED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
GONE = {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.EINTR}
"""The peer disconnected between its SYN and our accept."""

log = structlog.stdlib.get_logger(__name__)


class ConnectionLimits:
    """The limits on connections. `descriptors` is how many the process may have open, None: any."""

    def __init__(
        self,
        shared: SharedState,
        max_connections: int = 0,
        descriptors: int | None = None,
        connections: Callable[[], Iterable[Channel]] = tuple,
    ) -> None:
        """`connections` returns all that are open."""
        self.stats = shared.stats
        self.addresses = shared.addresses
        self.newcomers = shared.newcomers
        self._connections = connections
        self.max_connections = max_connections
        self.first_reserved = (
            math.inf if descriptors is None else descriptors - reserve(descriptors)
        )
        self._lines: defaultdict[str, LogLimit] = defaultdict(lambda: LogLimit(1))

    @property
    def places(self) -> float:
        """How many connections may be open; infinite where the system has no limit."""
        return self.max_connections or self.first_reserved

    def closed_for(self, sock: socket.socket, address: tuple[Any, ...]) -> str | None:
        """Why this connection must be refused; None if it may stay, perhaps in the place of another
        that this closes.
        """
        host = packed_host(address)
        most = self.addresses.max_connections
        if most and self.addresses.full(host):
            reason = f"maxConnectionsOfAddress is {most}"
            return self._displaced(self.newcomers.first_to_go(source_of(host)), reason)
        if self.max_connections and self.stats.connections >= self.max_connections:
            reason = f"maxConnections is {self.max_connections}"
        # The system assigns the lowest free number, so all below it are in use.
        elif sock.fileno() >= self.first_reserved:
            reason = "the descriptors that are left are for the store"
        else:
            return None
        return self._displaced(self.newcomers.first_to_go() or self._beyond_share(host), reason)

    def _beyond_share(self, host: bytes) -> Newcomer | None:
        """Of another address that has more than half of the places, the most silent connection."""
        opened = self.addresses.open
        source = max(opened, key=opened.__getitem__, default=None)
        if source is None or source == source_of(host) or 2 * opened[source] <= self.places:
            return None
        theirs = (
            connection for connection in self._connections() if source_of(connection.host) == source
        )
        return min(theirs, key=lambda connection: connection.last_active, default=None)

    def _displaced(self, connection: Newcomer | None, reason: str) -> str | None:
        """Close this connection for another one; the reason again where there is none."""
        if connection is None:
            return reason
        connection.close(f"its place went to another: {reason}")
        self.stats.connections_displaced += 1
        left_out = self._lines[f"displaced: {reason}"].admit(monotonic())
        if left_out is not None:
            log.warning(
                "connection.displaced",
                address=connection.address,
                reason=reason,
                left_out=left_out,
            )
        return None

    def lowered(self, sock: socket.socket) -> socket.socket:
        """Give a connection the number of the one that it displaced: those in reserve stay free.

        Raises: OSError when the number is taken already.
        """
        if sock.fileno() < self.first_reserved:
            return sock
        lower = sock.dup()
        sock.close()
        return lower

    def close_late(self, now: float) -> Iterator[None]:
        """Close the connections of which no request was let pass in time; others may run in
        between.
        """
        for connection in self.newcomers.late(now):
            connection.close("no request of it was let pass within firstRequestTimeout")
            self.stats.connections_late += 1
            left_out = self._lines["late"].admit(now)
            if left_out is not None:
                log.warning("connection.late", address=connection.address, left_out=left_out)
            yield

    def refused(self, listener: str, reason: str, address: str | None = None) -> None:
        """Log a refusal, each reason at a limited rate."""
        left_out = self._lines[reason].admit(monotonic())
        if left_out is not None:
            log.warning(
                "connection.refused",
                listener=listener,
                reason=reason,
                address=address,
                left_out=left_out,
            )


def reserve(descriptors: int) -> int:
    """How many descriptors are kept from connections."""
    return min(RESERVED_DESCRIPTORS, descriptors // 4)


def bind(host: str, port: int, *, send_bytes: int = 0, receive_bytes: int = 0) -> socket.socket:
    """Bind a socket, IPv4 or IPv6, that refuses connections until `listen_on`.

    `send_bytes` and `receive_bytes` size the socket buffers of every accepted connection; 0 leaves
    that to the system.
    Raises: OSError naming the address when it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` takes clients of IPv4 as well, whatever the system's default is (bindv6only).
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def listen_on(sock: socket.socket, queue_length: int) -> None:
    """Start to listen. Raises: OSError when another process was quicker."""
    try:
        sock.listen(queue_length)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error


def listen(host: str, port: int, queue_length: int) -> socket.socket:
    """A listening socket. Raises: as `bind` and `listen_on`."""
    sock = bind(host, port)
    try:
        listen_on(sock, queue_length)
    except OSError:
        sock.close()
        raise
    return sock


async def run(
    listener: socket.socket,
    name: str,
    serving: Serving[Any],
    selectors: Sequence[Selector],
    limits: ConnectionLimits,
) -> NoReturn:
    """Accept until cancelled; closes the listener at the end."""
    turns = cycle(selectors)
    with listener:
        while True:
            await trio.lowlevel.wait_readable(listener)
            if not accept_ready(listener, name, serving, turns, limits):
                await trio.sleep(ACCEPT_PAUSE_S)


def accept_ready(
    listener: socket.socket,
    name: str,
    serving: Serving[Any],
    selectors: Iterator[Selector],
    limits: ConnectionLimits,
) -> bool:
    """Accept pending connections, for a while; False when the system is out of a resource."""
    ends = monotonic() + ACCEPT_S
    for _ in range(ACCEPTS_PER_WAKE):
        if monotonic() > ends:
            return True
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in GONE:
                continue
            if error.errno not in OVERLOADED:
                raise
            limits.stats.accept_failures += 1
            limits.refused(name, error.strerror or str(error))
            return False
        reason = limits.closed_for(sock, address)
        if reason is not None:
            sock.close()
            limits.stats.connections_refused += 1
            limits.refused(name, reason, address[0])
            continue
        try:
            sock = limits.lowered(sock)
        except OSError as error:
            sock.close()
            limits.stats.accept_failures += 1
            limits.refused(name, error.strerror or str(error))
            return False
        adopt(sock, address, name, serving, next(selectors))
    return True


def adopt(
    sock: socket.socket,
    address: tuple[Any, ...],
    name: str,
    serving: Serving[Any],
    selector: Selector,
) -> None:
    """Assign an accepted socket to a selector."""
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.adopt(sock, address, name, serving)
    except OSError:
        # The peer is already gone: every call on its socket fails.
        sock.close()
