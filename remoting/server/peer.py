"""What the parts that stand below a connection may ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

__all__ = ["Peer"]


class Peer(Protocol):
    """A connection, as the budgets, the pools and the list of who has answers to send see it."""

    address: str
    inbound: int
    """Bytes that came and are not served; the inbound budget's, as is `starved`."""
    starved: bool
    paused: bool

    @property
    def waits(self) -> bool:
        """Whether something that was read is to be served first."""

    def watch(self) -> None:
        """Ask the poller for what may go on."""

    def answer(self, command: Command, answer: Answer) -> None:
        """Queue an answer."""

    def write(self) -> None:
        """Send what is queued."""

    def close(self, reason: str) -> None:
        """Close now."""
