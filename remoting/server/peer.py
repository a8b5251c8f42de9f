"""What the modules below `connection` may ask of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

__all__ = ["Peer"]


class Peer(Protocol):
    """A connection as the budgets, the pools and the outbox see it."""

    address: str
    inbound: int
    """Received bytes that are not served; the inbound budget maintains this and `starved`."""
    starved: bool
    paused: bool

    @property
    def waits(self) -> bool:
        """Whether something that was read has to be served before more is read."""

    def watch(self) -> None:
        """Update the poller's interest."""

    def answer(self, command: Command, answer: Answer) -> None:
        """Queue an answer."""

    def write(self) -> None:
        """Send what is queued."""

    def close(self, reason: str) -> None:
        """Close now."""
