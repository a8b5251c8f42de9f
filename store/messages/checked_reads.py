"""Reads with verification, for records that may come from the disk.

A disk may return other bytes than were written. So each unit and each record is verified here, to
the last byte of the body: one that is damaged is left out of the answer, and the reader continues
behind it. Records that this run wrote and still has mapped are not verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import structlog

from aerobee.store.format.faults import NoRecord
from aerobee.store.format.record import FIXED_BYTES, RecordHeader, parse
from aerobee.store.format.unit import UNIT
from aerobee.store.format.walk import HEAD_BYTES_MAX, claimed_size, fault_at
from aerobee.store.messages.cold_reads import ByteRange
from aerobee.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.messages.cold_reads import ColdReads
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.results import GetResult
    from aerobee.store.stats import StoreStats

SMALL_BYTES: Final = 8 << 20
"""Of a record that claims to be longer, only the head is read first."""
LOG_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)


class Damage(NamedTuple):
    """A damaged record or unit; -1 and "" are unknown."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    reason: str


_Entry: TypeAlias = tuple[int, int, int]
"""Queue offset, physical offset and size of a record that is returned if it is sound."""


class CheckedReads:
    """Reads and verifies records that may come from the disk. For the loop."""

    def __init__(self, log: CommitLog, cold: ColdReads, clock: Clock, stats: StoreStats) -> None:
        self._log = log
        self._cold = cold
        self._clock = clock
        self._stats = stats
        self._logged_at = float("-inf")
        self._left_out = 0

    def collect(
        self,
        result: GetResult,
        queue: ConsumeQueue,
        units: bytes | bytearray,
        byte_limit: int,
        count_limit: int,
        accepts: Callable[[int], bool] | None,
    ) -> int:
        """Fill the answer from units in order until the batch is full; the last offset examined.

        Raises: NotInMemory, OSError.
        """
        entries: list[_Entry] = []
        damaged: list[Damage] = []
        runs: list[ByteRange] = []
        segment: MappedFile | None = None
        begin = end = limit = 0  # of the adjacent records at hand; where their segment ends
        total = physical = 0
        gone = False
        following = result.next_begin_offset
        for physical, size, tags_code in UNIT.iter_unpack(units):
            if entries and (total + size > byte_limit or len(entries) == count_limit):
                break
            following += 1
            if accepts is not None and not accepts(tags_code):
                continue
            if physical == end and FIXED_BYTES <= size <= SMALL_BYTES and end + size <= limit:
                end += size
            elif 0 <= physical < self._log.min_offset:
                gone = True
                continue
            elif (file := self._file_of(physical, size)) is None:
                reason = f"a unit of size {size}, where no record begins"
                location = (physical, queue.topic, queue.queue_id, following - 1)
                damaged.append(Damage(*location, reason))
                continue
            else:
                if segment is not None:
                    runs.append(ByteRange(segment, begin - segment.start, end - segment.start))
                segment, limit = file, file.max_offset
                begin, end = physical, physical + size
            entries.append((following - 1, physical, size))
            total += size
        if segment is not None:
            runs.append(ByteRange(segment, begin - segment.start, end - segment.start))
        records = self._cold.ranges(self._log.queue.open_files, runs)
        self._give(result, queue, entries, records, damaged)
        for record in damaged:
            self.report(record)
        result.next_begin_offset = following
        if result.count:
            result.status = GetStatus.FOUND
        elif gone:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
        return physical

    def _file_of(self, physical_offset: int, size: int) -> MappedFile | None:
        """The segment that a unit leads into; None where no record can be.

        Raises: NotInMemory, OSError.
        """
        file = self._log.queue.find(physical_offset)
        if file is None or size < FIXED_BYTES or physical_offset + size > file.max_offset:
            return None
        if size > SMALL_BYTES:
            at, end = physical_offset - file.start, physical_offset + size
            head = self._cold.log(self._log.queue.open_files, file, at, HEAD_BYTES_MAX)
            if claimed_size(head, 0, physical_offset, end) != size:
                return None
        return file

    def _give(
        self,
        result: GetResult,
        queue: ConsumeQueue,
        entries: list[_Entry],
        records: memoryview,
        damaged: list[Damage],
    ) -> None:
        """Add sound records to the answer, adjacent ones in one view; others to the damaged."""
        topic, queue_id = queue.topic, queue.queue_id
        begin = at = 0
        for queue_offset, physical, size in entries:
            header = parse(records, at, physical, True)
            at += size
            if (
                isinstance(header, RecordHeader)
                and header.size == size
                and header.queue_offset == queue_offset
                and header.queue_id == queue_id
                and header.topic == topic
            ):
                continue
            reason = _doubt(records[at - size : at], physical, header)
            damaged.append(Damage(physical, topic, queue_id, queue_offset, reason))
            if begin < at - size:
                result.views.append(records[begin : at - size])
            begin = at
            result.count -= 1
            result.size -= size
        if begin < at:
            result.views.append(records[begin:at])
        result.count += len(entries)
        result.size += at

    def sound(self, record: memoryview, physical_offset: int) -> bool:
        """Whether the body of a whole record matches its CRC."""
        damage = damage_of(record, physical_offset)
        if damage is not None:
            self.report(damage)
        return damage is None

    def report(self, damaged: Damage) -> None:
        """Count it, and log it unless that was just done."""
        self._stats.records_damaged += 1
        now = self._clock.monotonic()
        if now - self._logged_at < LOG_EVERY_S:
            self._left_out += 1
            return
        self._logged_at = now
        left_out, self._left_out = self._left_out, 0
        file = self._log.queue.find(damaged.physical_offset)
        path = "" if file is None else str(file.path)
        log.error("record.damaged", path=path, **damaged._asdict(), left_out=left_out)


def _doubt(record: memoryview, physical_offset: int, header: RecordHeader | NoRecord) -> str:
    """Why this is not the message of its queue offset; `header` is what `parse` says of it."""
    if isinstance(header, NoRecord):
        return fault_at(record, 0, physical_offset).detail
    if header.size != len(record):
        return f"size {header.size}, its unit says {len(record)}"
    return f"it is message {header.queue_offset} of {header.topic}-{header.queue_id}"


def damage_of(record: bytes | memoryview, physical_offset: int) -> Damage | None:
    """The damage to the body of a whole record; None: nothing."""
    if isinstance(parse(record, 0, physical_offset, crc=True), RecordHeader):
        return None
    reason = fault_at(record, 0, physical_offset).detail
    header = parse(record, 0, physical_offset)
    if isinstance(header, NoRecord):
        return Damage(physical_offset, "", -1, -1, reason)
    return Damage(physical_offset, header.topic, header.queue_id, header.queue_offset, reason)
