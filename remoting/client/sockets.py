"""The socket of a blocking connection: opened, encrypted where that is wanted, polled."""

from __future__ import annotations

import select
import socket
from time import monotonic
from typing import TYPE_CHECKING

from aerobee.remoting.client.calls import host_and_port, reason_of
from aerobee.remoting.client.tls_socket import TlsSocket
from aerobee.remoting.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.client.link import Link

MOMENT_S = 0.001
"""The least time for an address: a timeout of 0 would mean not to wait at all."""


def open_socket(
    address: str, timeout_s: float, link: Link, stall_s: float
) -> socket.socket | TlsSocket:
    """Connect to `host:port`, with TLS if the link says so, or by its shortcut.

    The timeout does not cover the query of a host name; `stall_s` is how long a TLS peer may read
    nothing. Raises: ConnectFailed, which names the address.
    """
    host, port = host_and_port(address)
    try:
        inside = None if link.shortcut is None else link.shortcut(address)
        sock = inside or connected(host, port, timeout_s)
    except TimeoutError as error:
        raise ConnectFailed(f"{address}: no connection within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"{address}: {reason_of(error)}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if link.tls is None or inside is not None:
            return sock
        wrapped = TlsSocket(sock, link.tls, link.server_hostname or host, stall_s)
        wrapped.shake_hands()
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise ConnectFailed(f"{address}: {reason_of(error)}") from error
        raise
    return wrapped


def connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to one of the addresses of a host, which are tried in turn.

    Each gets its share of the time left: one that is silent leaves the others theirs.
    Raises: OSError, that of the last address; ValueError for an impossible name.
    """
    known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    deadline = monotonic() + timeout_s
    failed: OSError | None = None
    for left in range(len(known), 0, -1):
        family, kind, protocol, _, address = known[-left]
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            # A system without IPv6, for example.
            failed = error
            continue
        try:
            sock.settimeout(max(MOMENT_S, (deadline - monotonic()) / left))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError("the host has no address")


def poll_of(sock: socket.socket | TlsSocket) -> Callable[[float], object] | None:
    """A function that waits so many ms for something to read.

    None where the system has no poll, and with TLS: a readable socket may have no decrypted data.
    """
    if not hasattr(select, "poll") or not isinstance(sock, socket.socket):
        return None
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return waiting.poll
