"""Which sockets are ready: one epoll object, or a task per socket where there is no epoll.

Both have the same small interface; `make_poller` chooses one.
"""

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
        _note(self.unwatched, sock.fileno(), not read)

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


class TaskPoller:
    """The portable form: a pair of tasks per socket, which run while their direction is wanted."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.waited = False
        self.unwatched: set[int] = set()
        self._scopes: dict[tuple[int, int], trio.CancelScope] = {}
        self._ready: dict[int, int] = {}
        self._some = trio.Event()
        self._served: dict[tuple[int, int], trio.Event] = {}

    def add(self, sock: Wire) -> None:
        self._watch(sock, READ)

    def interest(self, sock: Wire, *, read: bool, write: bool) -> None:
        _note(self.unwatched, sock.fileno(), not read)
        for bit, wanted in ((READ, read), (WRITE, write)):
            watched = (sock.fileno(), bit) in self._scopes
            if wanted and not watched:
                self._watch(sock, bit)
            elif watched and not wanted:
                self._unwatch(sock.fileno(), bit)

    def remove(self, sock: Wire) -> None:
        for bit in (READ, WRITE):
            if (sock.fileno(), bit) in self._scopes:
                self._unwatch(sock.fileno(), bit)
        self._ready.pop(sock.fileno(), None)
        self.unwatched.discard(sock.fileno())

    async def ready(self, *, wait: bool = True) -> list[tuple[int, int]]:
        await trio.lowlevel.checkpoint()
        for event in self._served.values():
            event.set()
        self._served.clear()
        self.waited = wait and not self._ready
        if self.waited:
            self._some = trio.Event()
            await self._some.wait()
        events, self._ready = list(self._ready.items()), {}
        return events

    def holding(self) -> Collection[int]:
        look = select.poll()
        for fd, bit in self._scopes:
            if bit == READ:
                look.register(fd, select.POLLIN)
        return {fd for fd, _ in look.poll(0)}

    def close(self) -> None:
        for scope in self._scopes.values():
            scope.cancel()
        self._scopes.clear()

    def _watch(self, sock: Wire, bit: int) -> None:
        scope = self._scopes[sock.fileno(), bit] = trio.CancelScope()
        self._nursery.start_soon(self._wait, sock, sock.fileno(), bit, scope)

    def _unwatch(self, fd: int, bit: int) -> None:
        self._scopes.pop((fd, bit)).cancel()

    async def _wait(self, sock: Wire, fd: int, bit: int, scope: trio.CancelScope) -> None:
        wait = trio.lowlevel.wait_readable if bit == READ else trio.lowlevel.wait_writable
        with scope:
            while True:
                try:
                    await wait(sock)
                except (trio.ClosedResourceError, ValueError):
                    return
                self._ready[fd] = self._ready.get(fd, 0) | bit
                self._some.set()
                # Level-triggered: polled again only once this readiness has been served.
                served = self._served[fd, bit] = trio.Event()
                await served.wait()


def _note(those: set[int], fd: int, belongs: bool) -> None:
    if belongs:
        those.add(fd)
    else:
        those.discard(fd)


def make_poller(nursery: trio.Nursery, *, portable: bool = False) -> Poller:
    """Epoll where the system has it; `portable` forces the other form (tests run both)."""
    if portable or not hasattr(select, "epoll"):
        return TaskPoller(nursery)
    return EpollPoller()
