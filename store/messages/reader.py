"""Reading a queue: units in, views of the log out; recent messages are not copied.

Records that this run did not write, or does not map any more, are verified first. Also the searches
in a queue: by time, by physical offset. All of it is plain calls of the loop; they raise
NotInMemory rather than wait for the disk: then `cold.complete` makes the call again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from aerobee.store.errors import NotInMemory, Unreadable
from aerobee.store.format.record import FIXED_BYTES, HEAD, read
from aerobee.store.format.unit import UNIT, UNIT_SIZE
from aerobee.store.messages.checked_reads import CheckedReads
from aerobee.store.messages.cold_reads import ColdReads
from aerobee.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.errors import Piece
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.record import Record
    from aerobee.store.format.tags import TagFilter
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.stats import StoreStats

_iter_units = UNIT.iter_unpack
_FOUND = GetStatus.FOUND

MAPPED_BYTES = 1 << 30
"""Records further from the end of the log are not read through the mapping: other programs use
memory too, and one page on disk would block everybody."""


SCAN_UNITS = 8_192
"""Units that one read examines, whatever was asked for: 3 ms of the loop, with a filter of tags."""
RUN_UNITS = 256
"""Units that are tried as one run of records."""
CHECKED_RECORDS = 2_048
"""Records that one read verifies and returns: about as long."""


_FIRST_TWO = Struct(">qiqq").unpack_from
"""A unit, and where the next one leads."""
_offset_at = Struct(">q").unpack_from
_size_and_offset = HEAD.pick("size", "physical_offset")


@lru_cache(RUN_UNITS)
def _sizes(count: int) -> Callable[[bytes | bytearray], tuple[int, ...]]:
    """Reads the sizes of so many units."""
    return Struct(">" + count * "8xi8x").unpack


class MessageReader:
    """getMessage and searches by time. Source: store format §7.1, §7.2 (DefaultMessageStore)."""

    __slots__ = (
        "_log",
        "_total_memory",
        "begun",
        "checked",
        "cold",
        "config",
        "mapped_bytes",
        "memory_bytes",
    )

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        disk: Disk,
        clock: Clock,
        stats: StoreStats,
    ) -> None:
        self._log = commit_log
        self._total_memory = disk.total_memory()
        self.cold = ColdReads(disk, stats, clock)
        self.checked = CheckedReads(commit_log, self.cold, clock, stats)
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Apply settings; they may change while running."""
        self.config = config
        ratio = config.access_message_in_memory_max_ratio_percent
        self.memory_bytes = self._total_memory * ratio // 100
        """How much of the log's end is probably in memory."""
        self.mapped_bytes = min(self.memory_bytes, MAPPED_BYTES)

    def is_hot(self, physical_offset: int) -> bool:
        """Whether a record is probably in memory: not far behind the end of the log."""
        return self._log.max_offset - physical_offset <= self.memory_bytes

    @property
    def _mapped_begin(self) -> int:
        """Bytes from this physical offset on are read through the mapping."""
        return max(self._log.mapped_from, self._log.max_offset - self.mapped_bytes)

    def _is_mapped(self, physical_offset: int) -> bool:
        """Whether that offset is read through the mapping."""
        return physical_offset >= self._mapped_begin

    def _log_bytes(self, file: MappedFile, position: int, size: int) -> memoryview:
        if self._is_mapped(file.start + position):
            return file.readable()[position : position + size]
        return self.cold.log(self._log.queue.open_files, file, position, size)

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

        The first message is always taken, whatever its size. Raises: NotInMemory, OSError.
        """
        low, high = queue.min_offset, queue.end_offset
        if not low <= queue_offset < high:
            return _outside(queue_offset, low, high)
        config = self.config
        accepts = None if matches is None or matches.codes is None else matches.matches
        byte_limit = config.max_transfer_bytes_on_message_in_memory
        count_limit = config.max_transfer_count_on_message_in_memory
        if accepts is None:
            wanted = max(1, min(count_limit if max_count is None else max_count, max_messages))
        else:
            wanted = max(config.max_filter_message_size_bytes // UNIT_SIZE, max_messages)
        wanted = min(wanted, SCAN_UNITS)
        data = queue.units(queue_offset, wanted, self.cold.units)
        if not data:
            following = queue.next_file_offset(queue_offset)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        first = int.from_bytes(data[:8])
        behind = self._log.max_offset - first
        if behind > self.memory_bytes:
            byte_limit = config.max_transfer_bytes_on_message_in_disk
            count_limit = config.max_transfer_count_on_message_in_disk
        if max_count is not None:
            count_limit = max_count
        count_limit = max(1, min(count_limit, max_messages))
        if accepts is None and wanted > count_limit:
            data = data[: count_limit * UNIT_SIZE]
        if max_bytes is not None:
            byte_limit = max_bytes
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
        limits = byte_limit, count_limit
        mapped = behind <= self.mapped_bytes and first >= self._log.mapped_from
        # Units that this run wrote lead to records that it wrote, in ascending order.
        if mapped and queue_offset * UNIT_SIZE >= queue.begun:
            if accepts is None and self._take_run(result, data, byte_limit):
                return result
            last = self._collect(result, data, *limits, accepts)
        else:
            limits = byte_limit, min(count_limit, CHECKED_RECORDS)
            last = self.checked.collect(result, queue, data, *limits, accepts)
        result.suggest_slave = not self.is_hot(last)
        return result

    def _take_run(self, result: GetResult, data: bytes | bytearray, byte_limit: int) -> bool:
        """Take all units as one view, if their records lie one behind the other. Hot.

        All of it is mapped. False without that, and when `_collect` would not take all of them.
        Records are in ascending order and do not overlap: if their sizes add up to the range that
        they are in, nothing else is in it. To see that takes less than `_collect` does: 7 % of a
        pull of 32 messages.
        """
        count = len(data) // UNIT_SIZE
        if not 1 < count <= RUN_UNITS:
            return False
        first, size, _, second = _FIRST_TWO(data)
        if second != first + size:
            return False
        sizes = _sizes(count)(data)
        size = sum(sizes)
        (last,) = _offset_at(data, len(data) - UNIT_SIZE)
        end = last + sizes[-1]
        if end - first != size or size > byte_limit:
            return False
        file = self._log.queue.find(first)
        if file is None or end > file.max_offset:
            return False
        begin = first - file.start
        result.views.append(file.readable()[begin : begin + size])
        result.status = _FOUND
        result.next_begin_offset += count
        result.size, result.count = size, count
        result.suggest_slave = not self.is_hot(last)
        return True

    def _collect(
        self,
        result: GetResult,
        data: bytes | bytearray,
        byte_limit: int,
        count_limit: int,
        accepts: Callable[[int], bool] | None,
    ) -> int:
        """Take units in order until the batch is full; adjacent records become one view. Hot.

        All of it is mapped, nothing is verified. Without `accepts` there are no more than
        `count_limit` units. Returns the last physical offset that was examined.
        """
        views = result.views
        append = views.append
        total = count = passed = skip_before = physical = 0
        pages = _NOTHING  # of the segment at hand; its first byte, its length
        start = limit = 0
        begin = end = -1  # within it, the run of adjacent records that is not in the views yet
        for physical, size, tags_code in _iter_units(data):
            if total + size > byte_limit and count:
                break
            if accepts is not None:
                if count == count_limit:
                    break
                if not accepts(tags_code):
                    passed += 1
                    continue
            position = physical - start
            stop = position + size
            if position != end:
                if end > 0:
                    append(pages[begin:end])
                if position < 0 or stop > limit:
                    end = -1
                    file = None if physical < skip_before else self._log.queue.find(physical)
                    if file is None or physical + size > file.max_offset:
                        skip_before = self._behind_gap(physical, skip_before, file)
                        passed += 1
                        continue
                    start, limit, pages = file.start, file.wrote, file.readable()
                    position = physical - start
                    stop = position + size
                begin = position
            end = stop
            total += size
            count += 1
        if end > 0:
            append(pages[begin:end])
        result.next_begin_offset += count + passed
        result.size, result.count = total, count
        if count:
            result.status = _FOUND
        elif skip_before:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
        return physical

    def _behind_gap(self, physical_offset: int, skip_before: int, file: MappedFile | None) -> int:
        """The end of the gap that this record is in, so that a gap is searched once."""
        gone = self._log.min_offset if file is None else file.end
        return max(gone, skip_before, physical_offset + 1)

    def tags_codes(self, queue: ConsumeQueue, queue_offset: int, max_count: int) -> list[int]:
        """Tags codes from `queue_offset` on, none beyond the end of the file they begin in.

        Raises: NotInMemory, OSError.
        """
        count = min(max_count, queue.end_offset - queue_offset)
        data = queue.units(queue_offset, count, self.cold.units) if count > 0 else b""
        return [tags_code for _, _, tags_code in _iter_units(data)]

    # ── Searches ──

    def store_time(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time of one message in ms; −1 when it cannot be read.

        Raises: NotInMemory, OSError.
        """
        unit = queue.unit(queue_offset, self.cold.units)
        return -1 if unit is None else self._log.store_time(unit.physical_offset, self._log_bytes)

    def log_time(self, physical_offset: int) -> int:
        """Store time of the record there in ms; −1 without one. Raises: NotInMemory, OSError."""
        return self._log.store_time(physical_offset, self._log_bytes)

    def reading_piece(
        self, physical_offset: int, size: int
    ) -> memoryview | Awaitable[memoryview | None] | None:
        """`size` bytes of one segment, as they lie; None when they are not all there. Or an
        awaitable for that when part of them is on disk. Raises: OSError.
        """
        return self.cold.reading(partial(self._piece, physical_offset, size))

    def _piece(self, physical_offset: int, size: int) -> memoryview | None:
        file = self._log.queue.find(physical_offset)
        if file is None or physical_offset + size > file.max_offset:
            return None
        return self._log_bytes(file, physical_offset - file.start, size)

    def record(self, physical_offset: int, size: int | None) -> memoryview | None:
        """The record that begins there; None for any other offset, and for one that is damaged.

        Raises: NotInMemory, OSError.
        """
        record = self._log.record(physical_offset, size, self._log_bytes)
        if record is None or self._is_mapped(physical_offset):
            return record
        return record if self.checked.sound(record, physical_offset) else None

    def records(self, places: Iterable[tuple[int, int]]) -> list[memoryview | None]:
        """The records of these physical offsets and sizes, each as `record` finds it, but for a
        mapped one, of which only size and offset are looked at. Hot.

        Raises: NotInMemory with all pieces, OSError.
        """
        records_read: list[memoryview | None] = []
        missing: list[Piece] = []
        start = begin = end = 0  # of the segment at hand; what is mapped and written of it
        pages = _NOTHING
        for physical, size in places:
            if size < FIXED_BYTES:
                records_read.append(None)
                continue
            if not begin <= physical <= end - size:
                file = self._log.queue.find(physical) if self._is_mapped(physical) else None
                if file is None or physical + size > file.max_offset:
                    try:
                        records_read.append(self.record(physical, size))
                    except NotInMemory as miss:
                        missing += miss.pieces
                    continue
                start, end, pages = file.start, file.max_offset, file.readable()
                begin = max(start, self._mapped_begin)
            at = physical - start
            named = _size_and_offset(pages, at) == (size, physical)
            records_read.append(pages[at : at + size] if named else None)
        if missing:
            raise NotInMemory(tuple(missing))
        return records_read

    def message(self, queues: ConsumeQueues, physical_offset: int) -> Record | None:
        """The message that begins there; None for bytes that only look like one.

        The body of a message may hold the bytes of a record. A message has a unit in its queue that
        leads to it. Raises: NotInMemory, OSError.
        """
        view = self.record(physical_offset, None)
        if view is None:
            return None
        record = read(view)
        queue = queues.find(record.topic, record.queue_id)
        unit = None if queue is None else queue.unit(record.queue_offset, self.cold.units)
        return record if unit is not None and unit.physical_offset == physical_offset else None

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
        """First queue offset stored at or after the time; with `upper` the last at or before it.

        The max offset, or the min offset, when there is none. Times that the disk cannot read pass
        nothing over: those that may be of either side are of the later. Raises: NotInMemory,
        OSError.
        """
        low, high = queue.min_offset, queue.end_offset
        at = self._first_later(queue, range(low, high), timestamp_ms + upper)
        return max(low, at - 1) if upper else at

    def _first_later(self, queue: ConsumeQueue, offsets: range, timestamp_ms: int) -> int:
        """The first offset with such a time or a later one; the end when there is none."""
        low, high = offsets.start, offsets.stop
        while low < high:
            at, time_ms = self._time_from(queue, range((low + high) // 2, high))
            low, high = (low, at) if time_ms >= timestamp_ms else (at + 1, high)
        return low

    def _time_from(self, queue: ConsumeQueue, offsets: range) -> tuple[int, float]:
        """The first of them, or one in growing steps behind it, whose time can be read, with this
        time. Without any, the first and no end of time.
        """
        step = 0
        while step < len(offsets):
            with suppress(Unreadable):
                return offsets[step], self.store_time(queue, offsets[step])
            step = 2 * step + 1
        return offsets.start, inf


_NOTHING = memoryview(b"")


def _outside(queue_offset: int, low: int, high: int) -> GetResult:
    """The result outside the queue: why, and where to continue."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
