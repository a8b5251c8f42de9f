"""Which sockets are ready, said by one epoll object."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Collection

    from aerobee.remoting.server.peer import Wire

READ = 1
WRITE = 4
MAX_EVENTS = 512
"""Ready sockets per round; the rest are reported in the next."""


class Poller(Protocol):
    """Sockets in, ready ones out."""

    waited: bool
    """Whether nothing was ready when `ready` was called last: what it returned had just come."""

    @property
    def unwatched(self) -> set[int]:
        """File descriptors of the sockets that are not watched for reading."""

    def add(self, sock: Wire) -> None:
        """Watch for reading."""

    def interest(self, sock: Wire, *, read: bool, write: bool) -> None:
        """Change what `sock` is watched for."""

    def remove(self, sock: Wire) -> None:
        """Stop watching; called before the socket is closed."""

    async def ready(self, *, wait: bool = True) -> list[tuple[int, int]]:
        """Wait for readiness: (file descriptor, READ | WRITE bits). Always a checkpoint of trio.

        Without `wait`: what is ready now, which may be nothing.
        """

    def holding(self) -> Collection[int]:
        """The sockets watched for reading that have data now."""

    def close(self) -> None:
        """Release the resources of the poller."""


class EpollPoller:
    """One epoll object, itself watched by trio only while nothing is ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._count = 0
        self.waited = False
        self.unwatched: set[int] = set()

    def add(self, sock: Wire) -> None:
        self._epoll.register(sock.fileno(), READ)
        self._count += 1

    def interest(self, sock: Wire, *, read: bool, write: bool) -> None:
        self._epoll.modify(sock.fileno(), READ * read | WRITE * write)
        if read:
            self.unwatched.discard(sock.fileno())
        else:
            self.unwatched.add(sock.fileno())

    def remove(self, sock: Wire) -> None:
        self._epoll.unregister(sock.fileno())
        self._count -= 1
        self.unwatched.discard(sock.fileno())

    async def ready(self, *, wait: bool = True) -> list[tuple[int, int]]:
        self.waited = wait and not self._epoll.poll(0, 1)
        if not self.waited:
            await trio.lowlevel.checkpoint()
            return self._epoll.poll(0, MAX_EVENTS)
        # The wait is a checkpoint. A second one would cost a lone client a turn of the whole loop.
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            if events := self._epoll.poll(0, MAX_EVENTS):
                return events

    def holding(self) -> Collection[int]:
        ready = self._epoll.poll(0, max(1, self._count))
        return {fd for fd, bits in ready if bits & ~WRITE}

    def close(self) -> None:
        self._epoll.close()
