"""The part of a request's origin that the gate, the pools and the handlers may use."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Protocol

from aerobee.remoting.server.peer import Asker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.route_table import OpenRequest
    from aerobee.remoting.server.run import Run
    from aerobee.remoting.server.shared import SharedState
    from aerobee.remoting.stats import RemotingStats
    from aerobee.remoting.wire.command import Command


class CallerContext(Protocol):
    """The time of callers, and what they share: a selector's, or that of our own requests."""

    turn_ends: float
    run: Run | None
    """Requests that wait to be served together."""

    @property
    def now(self) -> float:
        """When the current turn began; seconds of `monotonic`."""

    @property
    def shared(self) -> SharedState:
        """The state that all connections share."""

    @property
    def stats(self) -> RemotingStats:
        """Counts of requests and their times."""

    def serve_run(self) -> None:
        """Serve the requests that wait to be served together."""


class Caller(Asker, Hashable, Protocol):
    """Where a request comes from: whose requests the gate, the pools and the handlers serve,
    whatever protocol it speaks. A connection of remoting is one; so is a call of another protocol.
    """

    accounts: frozenset[str]
    """Whose requests the gate has seen of it."""
    held: int
    """Requests held by long polling: their peer waits for us and is not idle."""
    current: OpenRequest | None
    """The request that goes on in the next turn, or when it is resumed."""
    on_close: list[Callable[[Any, str], None]]
    """Called once, with the caller and the reason."""

    @property
    def id(self) -> int:
        """The number of its connection."""

    @property
    def paused(self) -> bool:
        """Whether it gets nothing that can be left out, because too much is unsent."""

    @property
    def local_address(self) -> str:
        """Ours, at which it has connected."""

    @property
    def host(self) -> bytes:
        """Its address as records have it."""

    @property
    def context(self) -> CallerContext:
        """The state that it shares with others of its selector."""

    @property
    def postponed(self) -> bool:
        """Whether a request of it waits until it is resumed."""

    def welcome(self) -> None:
        """Let it stay: it has sent what needs no account, and is no newcomer any more."""

    def admit(self) -> None:
        """Count what it sends with that of others who have shown an account."""

    def begin(self, request: OpenRequest) -> None:
        """Go on with the steps of a request."""

    def end(self) -> None:
        """Release the request whose steps have ended."""

    def postpone(self, request: OpenRequest | None = None, *, to_sweep: bool = False) -> None:
        """Serve this request again, or go on with the current one: when the reactor resumes such
        requests, or `to_sweep`, in the sweep of each second.
        """

    def failed(self, command: Command, error: Exception) -> None:
        """Answer a held request that raised an error when it ran again."""

    def write(self) -> None:
        """Send what is queued."""

    def close(self, reason: str) -> None:
        """Close now."""
