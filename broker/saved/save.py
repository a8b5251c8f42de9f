"""Saves the tables to their files: on request, offsets periodically, all of them at the stop.

A save requested while another one runs waits for the next, which includes its change; all waiting
requests share it. A failed save is logged and retried after a pause; until then waiting requests
fail at once, so that a full disk is not written to once per request. Source: semantics §3.1, §17.4;
store format §1.7.
"""

from __future__ import annotations

import math
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    runtime_checkable,
)

import structlog
import trio

from aerobee.remoting.server.turns import in_slices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from aerobee.broker.saved.json_file import JsonFile

RETRY_S: Final = 5.0
"""How long after a failed save the next attempt is made."""

log = structlog.stdlib.get_logger(__name__)


class Table(Protocol):
    """A table that can be saved: its snapshot does not change while it is encoded."""

    def document(self) -> Mapping[str, Any]: ...


@runtime_checkable
class LargeTable(Protocol):
    """A table that is encoded in pieces while others run."""

    def pieces(self) -> Iterator[bytes]: ...


class SavedTable:
    """One table and its file.

    Invariant: `written` ≤ `wanted`; equal means that every change so far is on disk. `unsaved` has
    each entry whose change was requested with its name and is not.
    """

    def __init__(
        self,
        table: Table | LargeTable,
        file: JsonFile,
        *,
        changes: Callable[[], int] | None = None,
        relies_on: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.table = table
        self.file = file
        self.changes = changes
        self.relies_on = relies_on
        """Waits until what a snapshot taken before refers to is on disk. Raises: OSError.

        The saved progress of copies must not reach the disk before the copies.
        """
        self.seen = changes() if changes else 0
        self.wanted = 0
        self.written = 0
        self.unsaved: dict[str, int] = {}
        """Entry → the number of the request that was the last to name it."""
        self.failing: OSError | None = None
        """Why the last attempt failed."""
        self.rest_until = -math.inf
        self.lock = trio.Lock()
        self.asked = trio.Event()

    def load(self, read: Callable[[Mapping[str, Any]], Sequence[str] | None]) -> None:
        """Pass the content of the file to `read`, which returns the names that it left out.

        Raises: TableDamaged, OSError.
        """
        left_out = self.file.load(read)
        if left_out:
            log.warning("table.names_left_out", path=str(self.file.path), names=left_out)

    @property
    def clean(self) -> bool:
        """Whether all requested saves are done."""
        return self.written == self.wanted

    def has(self, entry: str) -> bool:
        """Whether the file has all changes of an entry that were requested with its name."""
        return entry not in self.unsaved

    def request(self, entries: Iterable[str] = ()) -> None:
        """Request a save, of these entries among others; callable from anywhere in the loop, does
        not wait.
        """
        self.wanted += 1
        self.unsaved.update(dict.fromkeys(entries, self.wanted))
        self.asked.set()

    def notice(self) -> None:
        """Request a save if `changes` has increased, or if the table does not count.

        For tables that change too often to request each save.
        """
        seen = self.changes() if self.changes else self.seen + 1
        if seen != self.seen:
            self.seen = seen
            self.wanted += 1

    async def save(self) -> None:
        """Save the table as it is now and wait until that is durable. Raises: OSError."""
        self.wanted += 1
        await self.catch_up()

    async def catch_up(self, *, at_once: bool = False) -> None:
        """Wait until all changes so far are durable. Raises: OSError.

        For a while after a failure nothing is tried, unless `at_once`.
        """
        goal = self.wanted
        async with self.lock:
            if self.written >= goal:
                return
            if self.failing is not None and not at_once and trio.current_time() < self.rest_until:
                reason = self.failing.strerror or self.failing
                raise OSError(self.failing.errno, f"not tried again so soon after this: {reason}")
            # No await between these two: the snapshot has all requested changes.
            covered = self.wanted
            content = await self.content()
            try:
                # After the snapshot: what it refers to has been put by now.
                if self.relies_on is not None:
                    await self.relies_on()
                await self.file.write(content)
            except OSError as error:
                if self.failing is None:
                    log.error("table.save_failed", path=str(self.file.path), reason=str(error))
                self.failing = error
                self.rest_until = trio.current_time() + RETRY_S
                raise
            self.written = covered
            self.unsaved = {name: at for name, at in self.unsaved.items() if at > covered}
            if self.failing is not None:
                log.info("table.save_recovered", path=str(self.file.path))
            self.failing = None

    async def content(self) -> Mapping[str, Any] | list[bytes]:
        """The table's content: a snapshot, or the pieces of a text encoded meanwhile."""
        if isinstance(self.table, LargeTable):
            return await in_slices(self.table.pieces())
        return self.table.document()


class Periodic(NamedTuple):
    """A table that is saved periodically."""

    saved: SavedTable
    period_s: float


class Saver:
    """The service: serves requested saves, and saves `periodic` tables."""

    def __init__(self, tables: Sequence[SavedTable], *, periodic: Sequence[Periodic]) -> None:
        self.tables = tables
        self.periodic = periodic

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            for table in self.tables:
                nursery.start_soon(self.serve, table)
            for each in self.periodic:
                nursery.start_soon(self.tick, each)
            task_status.started()
        raise AssertionError("the tasks of this service never end by themselves")

    async def serve(self, table: SavedTable) -> NoReturn:
        """Save one table whenever requested, and retry while that fails."""
        while True:
            with trio.move_on_after(math.inf if table.clean else RETRY_S):
                await table.asked.wait()
            table.asked = trio.Event()
            await self.attempt(table)

    async def tick(self, each: Periodic) -> NoReturn:
        """Save one periodic table.

        The first time after one period: RocketMQ waits 10 s, but we promise that a kill never loses
        more than one period.
        """
        while True:
            await trio.sleep(each.period_s)
            each.saved.notice()
            await self.attempt(each.saved)

    async def attempt(self, table: SavedTable, *, at_once: bool = False) -> bool:
        """Save once; whether it succeeded. The failure has been logged."""
        try:
            await table.catch_up(at_once=at_once)
        except OSError:
            return False
        return True

    async def save_all(self) -> bool:
        """Save every table, even when others fail; whether all of it is durable."""
        done = True
        periodic = (each.saved for each in self.periodic)
        for table in {id(table): table for table in (*self.tables, *periodic)}.values():
            table.wanted += 1
            done = await self.attempt(table, at_once=True) and done
        return done
