"""Reading a queue through a filter on the properties of its records.

The result of a plain read is filtered record by record; records that pass stay, as views. One read
has limits on records, bytes and time, whatever the filter does; then it returns what it has and
where to continue. Source: semantics §1.2, §14.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.store.format.faults import NoRecord
from aerobee.store.format.record import FIXED_BYTES, named_offset, parse
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.clock import Clock
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.message_store import MessageStore

PropertyFilter: TypeAlias = "Callable[[bytes], bool]"
"""Whether a record with these encoded properties passes. Never raises."""

SCAN_BYTES: Final = 4 << 20
"""Bytes of records that one read examines, reading them from disk if needed."""
SCAN_S: Final = 0.005
"""How long one read examines records: the loop is blocked meanwhile."""
STRIDE: Final = 8
"""Records between two checks of the clock."""


class SelectiveReader:
    """`get` of the store, with an additional filter. For the loop."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        wanted: PropertyFilter,
        *,
        max_bytes: int | None = None,
        max_count: int | None = None,
        scan: int = 0,
    ) -> GetResult:
        """Messages of a queue from `queue_offset` on that pass; with `scan` of so many at most.

        Raises: NotInMemory, OSError.
        """
        store = self._store
        config = store.config
        scan = scan or self.scan(max_messages)
        got = store.get(topic, queue_id, queue_offset, scan, max_bytes=SCAN_BYTES, max_count=scan)
        if got.status is not GetStatus.FOUND:
            return got
        if store.reader.is_hot(named_offset(got.views[0])):
            byte_limit = config.max_transfer_bytes_on_message_in_memory
            count_limit = config.max_transfer_count_on_message_in_memory
        else:
            byte_limit = config.max_transfer_bytes_on_message_in_disk
            count_limit = config.max_transfer_count_on_message_in_disk
        if max_bytes is not None:
            byte_limit = max_bytes
        if max_count is not None:
            count_limit = max_count
        result = self._select(got, wanted, byte_limit, max(1, min(count_limit, max_messages)))
        store.stats.messages_got -= got.count - result.count
        store.stats.bytes_got -= got.size - result.size
        return result

    def scan(self, max_messages: int) -> int:
        """The records that a read of so many messages examines."""
        return max(self._store.config.max_filter_message_size_bytes // UNIT_SIZE, max_messages)

    def _select(
        self, got: GetResult, wanted: PropertyFilter, byte_limit: int, count_limit: int
    ) -> GetResult:
        """Filter the records, up to the limits; adjacent ones share a view. Hot."""
        result = GetResult(
            GetStatus.NO_MATCHED_MESSAGE,
            got.next_begin_offset,
            got.min_offset,
            got.max_offset,
            suggest_slave=got.suggest_slave,
        )
        until = self._clock.monotonic() + SCAN_S
        run: memoryview | None = None
        begin = end = 0  # of the run: wanted records side by side, not yet in the views
        scanned = count = total = 0
        for view, at, header in _records(got.views):
            size = header.size
            full = count == count_limit or (count and total + size > byte_limit)
            if full or (scanned % STRIDE == STRIDE - 1 and self._clock.monotonic() > until):
                result.next_begin_offset = header.queue_offset
                break
            scanned += 1
            if not wanted(header.properties):
                continue
            if view is not run or at != end:
                if run is not None:
                    result.views.append(run[begin:end])
                run, begin = view, at
            end = at + size
            count += 1
            total += size
        if run is not None:
            result.views.append(run[begin:end])
            result.status = GetStatus.FOUND
        result.count, result.size = count, total
        return result


def _records(views: list[memoryview]) -> Iterator[tuple[memoryview, int, RecordHeader]]:
    """View, position in it and header of each record; the rest of a view behind damage is
    skipped.
    """
    for view in views:
        at = 0
        while at <= len(view) - FIXED_BYTES:
            header = parse(view, at, named_offset(view, at))
            if isinstance(header, NoRecord):
                break
            yield view, at, header
            at += header.size
