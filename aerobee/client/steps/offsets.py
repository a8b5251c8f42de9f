"""Queries of offsets at brokers: bounds of a queue, by time, and committed offsets.

Source: remoting §3.7, client §10.3.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from aerobee.client.settings.client import ConsumeFrom, epoch_ms
from aerobee.client.steps.answers import expect, header_of
from aerobee.client.steps.asking import ask_broker
from aerobee.client.steps.pulling import NOTHING_THERE, pull_of_one
from aerobee.errors import OffsetNotFoundError
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.store.format.record import records
from aerobee.store.format.system_names import TOOLS_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Ask, Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

EXACT_TIME_SINCE = 479
"""V5_3_3, the first version that finds offsets by time exactly; older ones approximate."""


class Offsets:
    """The offset requests of one group. Every step raises TransportError and BrokerError."""

    def __init__(self, routes: Routes, group: str) -> None:
        self.routes = routes
        self.group = group

    def lowest(self, queue: MessageQueue) -> Steps[int]:
        """The offset of the oldest message."""
        header = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (yield from self._offset(queue, header))

    def end(self, queue: MessageQueue) -> Steps[int]:
        """The offset of the next message to be written."""
        header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (yield from self._offset(queue, header))

    def at_time(self, queue: MessageQueue, at: datetime) -> Steps[int]:
        """The offset of the first message stored at `at` or later; the end if there is none."""
        return (yield from self.at_ms(queue, epoch_ms(at)))

    def at_ms(self, queue: MessageQueue, ms: int) -> Steps[int]:
        """As `at_time`, in ms since the epoch."""
        header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=ms)
        ask, answer = yield from ask_broker(self.routes, queue, header)
        offset = read_offset(ask, answer, queue)
        if answer.version >= EXACT_TIME_SINCE:
            return offset
        return (yield from self.corrected(queue, offset, ms))

    def corrected(self, queue: MessageQueue, near: int, ms: int) -> Steps[int]:
        """The offset of the first message at `ms` or later, from a broker's approximation.

        That can be the last message before, or any of several stored in the same millisecond.
        """
        lowest = yield from self.lowest(queue)
        stored = yield from self.stored_ms(queue, near)
        if stored is not None and stored < ms:
            near += 1
        elif stored is not None:
            while near > lowest and ((yield from self.stored_ms(queue, near - 1)) or 0) >= ms:
                near -= 1
        # For an empty queue, 4.9 may return an offset before its begin.
        return max(near, lowest)

    def stored_ms(
        self, queue: MessageQueue, offset: int, group: str = TOOLS_GROUP
    ) -> Steps[int | None]:
        """The store time of the message at this offset; None if there is none."""
        ask, answer = yield from ask_broker(self.routes, queue, pull_of_one(group, queue, offset))
        if answer.code in NOTHING_THERE:
            return None
        expect(ask, answer, queue.broker_name)
        first = next(records([answer.body]))
        return first.store_timestamp if first.queue_offset == offset else None

    def resolve(self, queue: MessageQueue, position: object) -> Steps[int]:
        """The current offset of `position`. Raises: TypeError for anything else."""
        if isinstance(position, datetime):
            return (yield from self.at_time(queue, position))
        if position is ConsumeFrom.FIRST:
            return (yield from self.lowest(queue))
        if position is ConsumeFrom.LAST:
            return (yield from self.end(queue))
        # An offset in a text, or of numpy: the end in its place would skip all messages.
        raise TypeError(f"a position is an int, a ConsumeFrom or a datetime, not {position!r}")

    def committed(self, queue: MessageQueue, *, zero: bool | None = None) -> Steps[int | None]:
        """The group's committed offset; None without one.

        Brokers return 0 for "none" as long as a queue still has its first message; with `zero`
        False, brokers since 5.0 do not.
        """
        header = QueryConsumerOffset(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero,
        )
        try:
            offset = yield from self._offset(queue, header)
        except OffsetNotFoundError:
            return None
        return offset if offset >= 0 else None

    def commit(self, queue: MessageQueue, offset: int, *, master_only: bool = False) -> Steps[None]:
        """Commit the group's offset: that of the next message to consume."""
        header = UpdateConsumerOffset(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        ask, answer = yield from ask_broker(self.routes, queue, header, master_only=master_only)
        expect(ask, answer, queue.broker_name)

    def save(self) -> None:
        """Do nothing: brokers store committed offsets."""

    def start(self, queue: MessageQueue, start_from: ConsumeFrom | datetime) -> Steps[int]:
        """The offset at which the group begins: its committed offset, else `start_from`.

        A time is meant as it is. LAST is the begin of a queue so young that its broker has the
        first message in memory: what comes before the first member of a group is not lost.
        """
        as_asked = isinstance(start_from, datetime)
        stored = yield from self.committed(queue, zero=False if as_asked else None)
        if stored is not None:
            return stored
        return (yield from self.resolve(queue, start_from))

    def _offset(self, queue: MessageQueue, header: Header) -> Steps[int]:
        ask, answer = yield from ask_broker(self.routes, queue, header)
        return read_offset(ask, answer, queue)


def read_offset(ask: Ask, answer: Command, queue: MessageQueue) -> int:
    """The offset in a response. Raises: BrokerError, TransportError."""
    return header_of(ask, expect(ask, answer, queue.broker_name), OffsetResponse).offset


# ── Broadcasting ──


class OffsetStore(Protocol):
    """A persistent store of offsets."""

    def load(self) -> dict[MessageQueue, int]:
        """The offsets that were saved last."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> bool:
        """Replace the saved offsets; returns whether that worked."""


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
        """Write the committed offsets, if any has changed since they were written."""
        if self._changed:
            self._changed = not self._store.save(self.table)
