"""Reading a queue: units say where, views of the log come out; nothing is copied.

Also the searches over a queue: by time, by place. All of it is plain calls of the loop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from store.format.unit import UNIT, UNIT_SIZE
from store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.config import StoreConfig
    from store.files.commit_log import CommitLog
    from store.files.consume_queue import ConsumeQueue
    from store.format.tags import TagFilter

__all__ = ["QueueReader"]

_iter_units = UNIT.iter_unpack
_FOUND = GetStatus.FOUND


class QueueReader:
    """getMessage and searches by time. Source: store format §7.1, §7.2 (DefaultMessageStore)."""

    __slots__ = ("_log", "config", "memory_bytes")

    def __init__(self, config: StoreConfig, commit_log: CommitLog, total_memory: int) -> None:
        self._log = commit_log
        self.config = config
        self.memory_bytes = total_memory

    def is_hot(self, physical_offset: int) -> bool:
        """Whether a record is believed to be in memory: not far behind the end of the log."""
        near = self.memory_bytes * self.config.access_message_in_memory_max_ratio_percent // 100
        return self._log.max_offset - physical_offset <= near

    def get(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_messages: int,
        matches: TagFilter | None,
        max_bytes: int | None,
        max_count: int | None,
    ) -> GetResult:
        """Messages from `queue_offset` on, up to the limits of one pull. Hot.

        The first message is always taken, whatever its size. Raises: OSError.
        """
        low, high = queue.min_offset, queue.end_offset
        if not low <= queue_offset < high:
            return _outside(queue_offset, low, high)
        config = self.config
        filtered = matches is not None and matches.codes is not None
        scan = max(config.max_filter_message_size_bytes // UNIT_SIZE, max_messages)
        data = queue.units(queue_offset, scan if filtered else max(1, max_messages))
        if not data:
            following = queue.next_file_offset(queue_offset)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
        if self.is_hot(int.from_bytes(data[:8])):
            byte_limit = config.max_transfer_bytes_on_message_in_memory
            count_limit = config.max_transfer_count_on_message_in_memory
        else:
            byte_limit = config.max_transfer_bytes_on_message_in_disk
            count_limit = config.max_transfer_count_on_message_in_disk
        self._collect(
            result,
            data,
            byte_limit if max_bytes is None else max_bytes,
            min(count_limit if max_count is None else max_count, max_messages),
            matches.matches if filtered and matches is not None else None,
        )
        return result

    def _collect(
        self,
        result: GetResult,
        data: bytes | bytearray,
        byte_limit: int,
        count_limit: int,
        accepts: Callable[[int], bool] | None,
    ) -> None:
        """Take units in order until the batch is full; adjacent records become one view."""
        find = self._log.queue.find
        views = result.views
        total = count = examined = 0
        begin = end = -1  # of the run of adjacent records not yet in `views`
        start = limit = 0  # of the segment at hand: its first byte, and one past its last written
        pages = _NOTHING
        skip_before = 0
        physical = 0
        for physical, size, tags_code in _iter_units(data):
            if count and (count >= count_limit or total + size > byte_limit):
                break
            examined += 1
            if physical < skip_before or (accepts is not None and not accepts(tags_code)):
                continue
            if physical != end or end + size > limit:
                if not start <= physical < limit or physical + size > limit:
                    file = find(physical)
                    if file is None or physical + size > file.max_offset:
                        # The rest of that segment is gone too, without asking for each.
                        skip_before = file.end if file else max(self._log.min_offset, physical + 1)
                        continue
                    if end > begin:
                        views.append(pages[begin - start : end - start])
                    pages, start, limit = file.readable(), file.start, file.max_offset
                elif end > begin:
                    views.append(pages[begin - start : end - start])
                begin = end = physical
            end += size
            total += size
            count += 1
        if end > begin:
            views.append(pages[begin - start : end - start])
        result.next_begin_offset += examined
        result.size, result.count = total, count
        result.suggest_slave = not self.is_hot(physical)
        if count:
            result.status = _FOUND
        elif skip_before:
            result.status = GetStatus.MESSAGE_WAS_REMOVING

    # ── Searches ──

    def store_time(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time of one message in ms; −1 when it cannot be read. Raises: OSError."""
        unit = queue.unit(queue_offset)
        return -1 if unit is None else self._log.store_time(unit[0])

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
        """First queue offset stored at or after the time; with `upper` the last at or before it.

        The max offset, or the min offset, when there is none. Raises: OSError.
        """
        low, high = queue.min_offset, queue.end_offset

        def time_of(queue_offset: int) -> int:
            return self.store_time(queue, queue_offset)

        offsets = range(low, high)
        if upper:
            later = low + bisect_right(offsets, timestamp_ms, key=time_of)
            return max(low, later - 1)
        return low + bisect_left(offsets, timestamp_ms, key=time_of)


_NOTHING = memoryview(b"")


def _outside(queue_offset: int, low: int, high: int) -> GetResult:
    """Nothing to read there: why, and where to go on."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
