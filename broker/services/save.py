"""Writes the tables to their files: when asked, consumer offsets every few seconds, all at stop.

A save that is asked for while another one runs waits for the next, which holds its change; all who
wait share it. A save that fails is logged, and tried again by the next round.
Source: semantics §3.1, §17.4; store format §1.7.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.json_file import JsonFile

__all__ = ["FIRST_SAVE_S", "SavedTable", "Saver", "Table"]

FIRST_SAVE_S: Final = 10.0
"""How long after the start consumer offsets are saved first."""
RETRY_S: Final = 5.0
"""How long after a failed save the next attempt is made."""

log = structlog.stdlib.get_logger("aerobee.broker")


class Table(Protocol):
    """What can be written: a snapshot that nothing changes while it is encoded."""

    def document(self) -> Mapping[str, Any]: ...


class SavedTable:
    """One table and its file.

    Law: `written` ≤ `wanted`; equal means that every change so far is on disk.
    """

    def __init__(
        self, table: Table, file: JsonFile, *, changes: Callable[[], int] | None = None
    ) -> None:
        self.table = table
        self.file = file
        self.changes = changes
        self.seen = changes() if changes else 0
        self.wanted = 0
        self.written = 0
        self.failing = False
        self.lock = trio.Lock()
        self.asked = trio.Event()

    @property
    def clean(self) -> bool:
        """Whether everything that was asked for is on disk."""
        return self.written == self.wanted

    def request(self) -> None:
        """Ask for a save soon; callable from anywhere in the loop, waits for nothing."""
        self.wanted += 1
        self.asked.set()

    def notice(self) -> None:
        """Ask for a save if `changes` moved, or if no one counts them.

        For tables that change too often to ask each time.
        """
        seen = self.changes() if self.changes else self.seen + 1
        if seen != self.seen:
            self.seen = seen
            self.wanted += 1

    async def save(self) -> None:
        """Write the table as it is now and wait until that is durable. Raises: OSError."""
        self.wanted += 1
        await self.catch_up()

    async def catch_up(self) -> None:
        """Wait until everything asked for so far is durable. Raises: OSError."""
        goal = self.wanted
        async with self.lock:
            if self.written >= goal:
                return
            # No await between these two: the snapshot holds everything asked for up to here.
            covered = self.wanted
            document = self.table.document()
            try:
                await self.file.write(document)
            except OSError as error:
                if not self.failing:
                    log.error("table.save_failed", path=str(self.file.path), reason=str(error))
                self.failing = True
                raise
            self.written = covered
            if self.failing:
                log.info("table.save_recovered", path=str(self.file.path))
            self.failing = False


class Saver:
    """The service: serves requests as they come, and saves `periodic` tables by the clock."""

    def __init__(
        self, tables: Sequence[SavedTable], *, periodic: SavedTable, period_s: float
    ) -> None:
        self.tables = tables
        self.periodic = periodic
        self.period_s = period_s

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            for table in self.tables:
                nursery.start_soon(self.serve, table)
            nursery.start_soon(self.tick)
            task_status.started()
        raise AssertionError("the tasks of this service never end by themselves")

    async def serve(self, table: SavedTable) -> NoReturn:
        """Save one table whenever it is asked for, and again while that fails."""
        while True:
            with trio.move_on_after(math.inf if table.clean else RETRY_S):
                await table.asked.wait()
            table.asked = trio.Event()
            await self.attempt(table)

    async def tick(self) -> NoReturn:
        """Save the periodic table by the clock."""
        await trio.sleep(FIRST_SAVE_S)
        while True:
            self.periodic.notice()
            await self.attempt(self.periodic)
            await trio.sleep(self.period_s)

    async def attempt(self, table: SavedTable) -> bool:
        """Save once; whether it worked. The failure has been logged where it happened."""
        try:
            await table.catch_up()
        except OSError:
            return False
        return True

    async def save_all(self) -> bool:
        """Save every table, whatever happened to the others; whether all of it is durable."""
        done = True
        for table in {id(table): table for table in (*self.tables, self.periodic)}.values():
            table.wanted += 1
            done = await self.attempt(table) and done
        return done
