"""The boss: accept, and hand each socket to the next selector."""

from __future__ import annotations

import errno
import socket
from itertools import cycle
from typing import TYPE_CHECKING, NoReturn

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remoting.server.selector import Selector
    from remoting.server.worker import Worker
    from remoting.stats import RemotingStats

__all__ = ["ACCEPT_PAUSE_S", "bind", "listen", "listen_on", "run"]

ACCEPT_PAUSE_S = 0.1
"""How long accepting rests when the system has no descriptor or buffer to give."""
ACCEPTS_PER_WAKE = 64
OVERLOADED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
GONE = {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.EINTR}
"""The peer left between its SYN and our accept."""

log = structlog.stdlib.get_logger("aerobee.remoting")


def bind(host: str, port: int, *, send_bytes: int = 0, receive_bytes: int = 0) -> socket.socket:
    """A socket with its address, IPv4 or IPv6, that refuses connections until `listen_on`.

    `send_bytes` and `receive_bytes` size the socket buffers of every connection it takes; 0 leaves
    that to the system.
    Raises: OSError naming the address when it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def listen_on(sock: socket.socket, backlog: int) -> None:
    """From now on peers can connect. Raises: OSError when another process was quicker."""
    try:
        sock.listen(backlog)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that takes connections at once. Raises: as `bind` and `listen_on`."""
    sock = bind(host, port)
    try:
        listen_on(sock, backlog)
    except OSError:
        sock.close()
        raise
    return sock


async def run(
    listener: socket.socket,
    name: str,
    worker: Worker,
    selectors: Sequence[Selector],
    stats: RemotingStats,
) -> NoReturn:
    """Accept until cancelled; the listener is closed on the way out."""
    turns = cycle(selectors)
    with listener:
        while True:
            await trio.lowlevel.wait_readable(listener)
            if not _accept_ready(listener, name, worker, turns, stats):
                await trio.sleep(ACCEPT_PAUSE_S)


def _accept_ready(
    listener: socket.socket,
    name: str,
    worker: Worker,
    selectors: Iterator[Selector],
    stats: RemotingStats,
) -> bool:
    """Accept what waits; False when the system is out of something."""
    for _ in range(ACCEPTS_PER_WAKE):
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in GONE:
                continue
            if error.errno not in OVERLOADED:
                raise
            stats.accept_failures += 1
            log.warning("connection.refused", listener=name, reason=error.strerror)
            return False
        _adopt(sock, address, name, worker, next(selectors))
    return True


def _adopt(
    sock: socket.socket, address: tuple[str, int], name: str, worker: Worker, selector: Selector
) -> None:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.adopt(sock, address, name, worker)
    except OSError:
        # The peer is already gone; its socket says so on every call.
        sock.close()
