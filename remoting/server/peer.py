"""The interface of a channel, a connection and a socket for the modules below `channel` and
`connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Hashable

    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command


class Wire(Protocol):
    """A non-blocking socket, or a stage above one with the same methods."""

    def fileno(self) -> int:
        """Its file descriptor."""

    def getsockname(self) -> Any:
        """Its local address."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read into the buffer; 0 at the end of the stream. Raises: BlockingIOError, OSError."""

    def send(self, data: bytes | memoryview, /) -> int:
        """As `sendmsg`, for one buffer."""

    def sendmsg(self, buffers: list[bytes | memoryview], /) -> int:
        """Send the first bytes of the buffers; returns how many. Raises: as `recv_into`."""

    def close(self) -> None:
        """Close it."""


class Peer(Protocol):
    """A channel as the budgets and the outbox see it."""

    address: str
    inbound: int
    """Received bytes that are not served; the inbound budget maintains this."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""

    @property
    def starved(self) -> bool:
        """Whether it is not read because the inbound budget is exhausted."""

    @property
    def paused(self) -> bool:
        """Whether it is not read because too much is unsent."""

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""

    @property
    def waits(self) -> bool:
        """Whether something that was read has to be served before more is read."""

    def starve(self, *, starved: bool) -> None:
        """Read no more until there is room for what it sends, or read on."""

    def write(self) -> None:
        """Send what is queued."""

    def close(self, reason: str) -> None:
        """Close now."""


class Newcomer(Peer, Protocol):
    """A channel as the boss sees it while it has shown nothing yet."""

    @property
    def host(self) -> bytes:
        """Its address as records have it."""

    @property
    def postponed(self) -> bool:
        """Whether a request of it waits until it is resumed."""


class Asker(Protocol):
    """Where a request comes from, as the pools see it."""

    working: int
    """Requests of it that a pool works on; the handlers maintain this and `queued`."""

    @property
    def lane(self) -> Hashable:
        """The connection that it is a part of, or itself: with whom it takes turns."""

    @property
    def queued(self) -> deque[Any]:
        """Requests queued until the peer reads, each with its pool."""

    @property
    def address(self) -> str:
        """Of the peer, with its port."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""

    @property
    def backed_up(self) -> bool:
        """Whether its peer would not read another answer now."""

    def answer(self, command: Command, answer: Answer, *, held: bool = False) -> None:
        """Queue an answer. `held`: the request has waited for a message."""

    def unanswered(self, command: Command) -> None:
        """Count a request that was served without an answer, if it was one-way."""
