"""The requests to dispatch: a record, or a run of records that were appended at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aerobee.store.format.record import TRANSACTION_MASK
from aerobee.store.format.unit import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.store.queues.consume_queue import ConsumeQueue

RUN_LEAST: Final = 4
"""Of fewer messages no run is made: by themselves they take as long."""

_pack = UNIT.pack


class Run(NamedTuple):
    """Messages that were appended at once, side by side in the log and in one queue."""

    units: bytes
    """Their units."""
    properties: Sequence[bytes]
    """The properties of each; empty if none has any."""


class DispatchRequest(msgspec.Struct, gc=False):
    """The facts about a record, or a run of them, that dispatch and its followers need.

    A run has neither a tags code nor properties of its own, and the size of all of it.
    """

    queue: ConsumeQueue
    physical_offset: int
    size: int
    tags_code: int
    queue_offset: int
    store_timestamp: int
    sys_flag: int
    properties: bytes
    run: Run | None = None
    """The messages side by side that the record stands for; None: it is one."""

    def each(self) -> Iterator[DispatchRequest]:
        """One request for each message of a run."""
        assert self.run is not None
        units, properties = self.run
        for number, (physical, size, code) in enumerate(UNIT.iter_unpack(units)):
            yield DispatchRequest(
                self.queue,
                physical,
                size,
                code,
                self.queue_offset + number,
                self.store_timestamp,
                self.sys_flag,
                properties[number] if properties else b"",
            )

    def first(self, number: int) -> DispatchRequest:
        """The messages of a run before this one."""
        assert self.run is not None
        rest = UNIT.read(self.run.units, number * UNIT_SIZE).physical_offset
        run = Run(self.run.units[: number * UNIT_SIZE], self.run.properties[:number])
        return self._part(self.physical_offset, rest, self.queue_offset, run)

    def rest(self, number: int) -> DispatchRequest:
        """The messages of a run from this one on."""
        assert self.run is not None
        units = self.run.units[number * UNIT_SIZE :]
        physical = UNIT.read(units, 0).physical_offset
        end = self.physical_offset + self.size
        run = Run(units, self.run.properties[number:])
        return self._part(physical, end, self.queue_offset + number, run)

    def _part(self, begin: int, end: int, queue_offset: int, run: Run) -> DispatchRequest:
        return DispatchRequest(
            self.queue,
            begin,
            end - begin,
            self.tags_code,
            queue_offset,
            self.store_timestamp,
            self.sys_flag,
            self.properties,
            run,
        )


def in_runs(requests: list[DispatchRequest]) -> list[DispatchRequest]:
    """Messages side by side in the log; of those that a batch was, one request for all. Hot."""
    together: list[DispatchRequest] = []
    done, first, queue, offset = 0, 0, None, 0
    for number, request in enumerate(requests):
        if (
            request.queue is not queue
            or request.queue_offset != offset
            or request.store_timestamp != requests[first].store_timestamp
            or request.sys_flag != requests[first].sys_flag
        ):
            if number - first >= RUN_LEAST:
                together += (*requests[done:first], _run_of(requests[first:number]))
                done = number
            first, queue, offset = number, request.queue, request.queue_offset
            if request.sys_flag & TRANSACTION_MASK:
                queue = None
        offset += 1
    if len(requests) - first >= RUN_LEAST:
        return [*together, *requests[done:first], _run_of(requests[first:])]
    return together + requests[done:] if done else requests


def _run_of(messages: list[DispatchRequest]) -> DispatchRequest:
    first, last = messages[0], messages[-1]
    units = b"".join([_pack(each.physical_offset, each.size, each.tags_code) for each in messages])
    return DispatchRequest(
        first.queue,
        first.physical_offset,
        last.physical_offset + last.size - first.physical_offset,
        0,
        first.queue_offset,
        first.store_timestamp,
        first.sys_flag,
        b"",
        Run(units, [each.properties for each in messages]),
    )
