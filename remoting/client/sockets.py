"""The socket of a blocking connection: opened, encrypted where that is wanted, polled."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING

from aerobee.remoting.client.calls import host_and_port, reason_of
from aerobee.remoting.client.tls_socket import TlsSocket
from aerobee.remoting.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.client.link import Link


def open_socket(
    address: str, timeout_s: float, link: Link, stall_s: float
) -> socket.socket | TlsSocket:
    """Connect to `host:port`, with TLS if the link says so, or by its shortcut.

    The timeout applies to each address of a host name; `stall_s` is how long a TLS peer may read
    nothing. Raises: ConnectFailed, which names the address.
    """
    host, port = host_and_port(address)
    try:
        inside = None if link.shortcut is None else link.shortcut(address)
        sock = inside or socket.create_connection((host, port), timeout_s)
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


def poll_of(sock: socket.socket | TlsSocket) -> Callable[[float], object] | None:
    """A function that waits so many ms for something to read.

    None where the system has no poll, and with TLS: a readable socket may have no decrypted data.
    """
    if not hasattr(select, "poll") or not isinstance(sock, socket.socket):
        return None
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return waiting.poll
