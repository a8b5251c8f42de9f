"""The offsets of a broadcasting group, which the client stores locally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.client.steps.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes


class OffsetStore(Protocol):
    """A persistent store of offsets."""

    def load(self) -> dict[MessageQueue, int]:
        """The offsets that were saved last."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the saved offsets."""


class LocalOffsets(Offsets):
    """As `Offsets`, but committed offsets are in a local store."""

    def __init__(self, routes: Routes, group: str, store: OffsetStore) -> None:
        super().__init__(routes, group)
        self._store = store
        self._table: dict[MessageQueue, int] | None = None
        self._changed = False

    @property
    def table(self) -> dict[MessageQueue, int]:
        """All offsets, read from the store on first use."""
        if self._table is None:
            self._table = self._store.load()
        return self._table

    def committed(self, queue: MessageQueue, *, zero: bool | None = None) -> Steps[int | None]:
        """The committed offset; None without one."""
        yield from ()
        return self.table.get(queue)

    def commit(self, queue: MessageQueue, offset: int, *, master_only: bool = False) -> Steps[None]:
        """Keep the offset of the next message to consume in memory, until `save`."""
        yield from ()
        self.table[queue] = offset
        self._changed = True

    def save(self) -> None:
        """Write the committed offsets, if any has changed."""
        if self._changed:
            self._changed = False
            self._store.save(self.table)
