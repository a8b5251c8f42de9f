"""What a feature is: one folder that builds itself and says what it adds to the broker.

A feature is given the few things that it needs, makes its parts, and says here which requests they
answer, what runs by itself, what is saved, and what is to be done at the start and at the stop.
The broker is the sum of its features (`broker/broker.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import trio

    from aerobee.broker.core.puts import Hook
    from aerobee.broker.saved.save import Periodic, SavedTable
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Route
    from aerobee.store.results import Recovery

__all__ = ["Feature", "Held", "Service"]


class Service(Protocol):
    """One task that runs until cancelled, and says when it has begun."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> object: ...


class Held(Protocol):
    """Requests that are held until there is something for them."""

    @property
    def waking(self) -> bool:
        """Whether some that were woken are still to be answered."""
        ...

    @property
    def at_once(self) -> int:
        """How many run again at the end of a round; then others get their turn."""
        ...

    def wake(self, most: int = ..., /) -> int:
        """Run those again that were woken, at most so many; how many may have put messages."""
        ...

    def closed(self, connection: Connection) -> None:
        """Forget those of a connection that is gone."""
        ...

    def release_all(self) -> None:
        """Wake all of them: the broker stops."""
        ...


class Feature:
    """One feature, with nothing to add. What it adds is read once, when the broker is built."""

    routes: Sequence[Route] = ()
    """The requests that it answers, and in which pool."""
    put_hooks: Sequence[Hook] = ()
    """What turns messages elsewhere before they are stored."""
    saved: Sequence[SavedTable] = ()
    """Tables that are saved when asked."""
    periodic: Sequence[Periodic] = ()
    """Tables that are saved by the clock."""
    held: Held | None = None
    services: Sequence[Service] = ()
    """What runs by itself, in the order in which it starts."""

    def load(self) -> None:
        """Read its tables; the store is locked and not recovered yet.

        Raises: TableDamaged, StoreForeign, OSError.
        """

    def recovered(self, recovery: Recovery) -> None:
        """Make its tables agree with the log, which is the truth. Raises: OSError."""

    def scan(self) -> Iterator[None]:
        """Forget what has become too old; every few seconds, others run at its yields."""
        yield from ()

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection that is gone."""

    async def leave(self) -> None:
        """Tell others that the broker stops; it serves still."""

    async def close(self) -> None:
        """Finish what it does by itself: nothing is put any more, the tables are saved next."""
