"""A feature: one folder that builds itself and declares what it adds to the broker.

A feature is given the few things that it needs, makes its parts, and declares here which requests
they answer, which tasks run, which tables are saved, and what is done at the start and at the stop.
The broker is the sum of its features (`broker/broker.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import trio

    from aerobee.broker.core.puts import Hook
    from aerobee.broker.saved.save import Periodic, SavedTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Route
    from aerobee.store.results import Recovery


class Service(Protocol):
    """One task that runs until cancelled, and signals when it has started."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> object: ...


class HeldRequests(Protocol):
    """Requests held by long polling."""

    @property
    def waking(self) -> bool:
        """Whether some woken requests are still to be answered."""
        ...

    @property
    def at_once(self) -> int:
        """How many run again at the end of a round; then others get their turn."""
        ...

    def wake(self, most: int = ..., /) -> int:
        """Run up to `most` woken requests again; returns how many may have put messages."""
        ...

    def closed(self, connection: Caller) -> None:
        """Drop the requests of a closed connection."""
        ...

    def release_all(self) -> None:
        """Wake all of them: the broker stops."""
        ...


class Feature:
    """One feature, with nothing to add. Its attributes are read once, when the broker is built."""

    routes: Sequence[Route] = ()
    """The requests that it answers."""
    put_hooks: Sequence[Hook] = ()
    """Hooks that may redirect a message before it is stored."""
    saved: Sequence[SavedTable] = ()
    """Tables that are saved on request."""
    periodic: Sequence[Periodic] = ()
    """Tables that are saved periodically."""
    held: HeldRequests | None = None
    services: Sequence[Service] = ()
    """Background tasks, in the order in which they start."""
    master_services: Sequence[Service] = ()
    """Services of a master: they put, or keep what they put, and rest in a slave."""
    slave_services: Sequence[Service] = ()
    """Services of a slave."""

    def load(self) -> None:
        """Read its tables; the store is locked and not recovered yet.

        Raises: TableDamaged, StoreForeign, OSError.
        """

    def recovered(self, recovery: Recovery) -> None:
        """Make its tables agree with the log, which is the truth. Raises: OSError."""

    def copy_ended(self) -> Generator[None, None, None]:
        """As `recovered`, of a slave that is to be the master: its log ends where it now does.

        Others run at its yields: the lease of a master has to be renewed meanwhile.
        """
        yield from ()

    def be_master(self) -> None:
        """Serve clients as the master, which was a slave until now."""

    def copy_begins(self) -> None:
        """Forget what only a master may know: this one has become a slave while it runs."""

    def scan(self) -> Iterator[None]:
        """Expire old entries; called every few seconds, others run at its yields."""
        yield from ()

    def settings_changed(self) -> Iterator[None]:
        """Derive values again from settings that changed while the broker runs.

        Others run at its yields.
        """
        yield from ()

    def topic_deleted(self, topic: str) -> None:
        """Forget what was kept for a topic: one made anew under its name is another one."""

    def group_deleted(self, group: str) -> None:
        """Forget what was kept for a consumer group."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget a closed connection."""

    async def leave(self) -> None:
        """Tell others that the broker stops; it still serves."""

    def settle(self) -> None:
        """Put what the next start has to know: the last puts before a clean stop, of a master."""

    async def close(self) -> None:
        """Finish the work of a master: nothing is put any more, the tables are saved next."""
