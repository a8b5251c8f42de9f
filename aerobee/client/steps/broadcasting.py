"""The offsets of a group whose members get every message each: kept by the client itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.client.steps.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.message import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

__all__ = ["LocalOffsets", "OffsetStore"]


class OffsetStore(Protocol):
    """Where offsets outlive the process."""

    def load(self) -> dict[MessageQueue, int]:
        """What was saved last."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep these, and nothing else."""


class LocalOffsets(Offsets):
    """As `Offsets`, with what the group committed in a store of this machine."""

    def __init__(self, routes: Routes, group: str, store: OffsetStore) -> None:
        super().__init__(routes, group)
        self._store = store
        self._table: dict[MessageQueue, int] | None = None
        self._changed = False

    @property
    def table(self) -> dict[MessageQueue, int]:
        """All offsets, read when they are first asked for."""
        if self._table is None:
            self._table = self._store.load()
        return self._table

    def committed(self, queue: MessageQueue, *, zero: bool | None = None) -> Steps[int | None]:
        """The stored offset; None without one."""
        yield from ()
        return self.table.get(queue)

    def commit(self, queue: MessageQueue, offset: int, *, master_only: bool = False) -> Steps[None]:
        """Note the next message to consume, until `save`."""
        yield from ()
        self.table[queue] = offset
        self._changed = True

    def save(self) -> None:
        """Write what was committed since the last time."""
        if self._changed:
            self._changed = False
            self._store.save(self.table)
