"""The directory of the broker's tables: gives each its file and a `SavedTable`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.broker.saved.json_file import JsonFile, NotedFile, PrivateFile
from aerobee.broker.saved.save import LargeTable, SavedTable, Table
from aerobee.store.recovery.start_check import SAVED_TABLES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk


class ChangeCounter(Protocol):
    """Counts its changes."""

    @property
    def changes(self) -> int: ...


class ChangingTable(ChangeCounter, Table, Protocol):
    """A table that changes too often to be saved each time."""


class LargeChangingTable(ChangeCounter, LargeTable, Protocol):
    """A table that changes so often, and is encoded in pieces."""


class Tables:
    """The files below `config/` of a data directory."""

    def __init__(self, folder: Path, disk: Disk, clock: Clock) -> None:
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._changing: list[SavedTable] = []

    async def catch_up(self) -> None:
        """Save what changed in them, without waiting for their time. Raises: OSError.

        A kill must not bring back what was deleted: there may be another one of its name.
        """
        for saved in self._changing:
            saved.notice()
            await saved.catch_up()

    def asked(self, table: Table | LargeTable, name: str) -> SavedTable:
        """A table that is saved on request."""
        return SavedTable(table, self._file(name))

    def private(self, table: Table | LargeTable, name: str) -> SavedTable:
        """A table of secrets or rights, saved on request."""
        return SavedTable(table, PrivateFile(self._folder / name, self._disk, self._clock))

    def changing(
        self,
        table: ChangingTable | LargeChangingTable,
        name: str,
        *,
        relies_on: Callable[[], Awaitable[None]] | None = None,
    ) -> SavedTable:
        """A table that is saved periodically, if it has changed; `relies_on` as for SavedTable."""
        saved = SavedTable(
            table, self._file(name), changes=lambda: table.changes, relies_on=relies_on
        )
        self._changing.append(saved)
        return saved

    def _file(self, name: str) -> JsonFile:
        kind = NotedFile if name in SAVED_TABLES else JsonFile
        return kind(self._folder / name, self._disk, self._clock)
