"""The check of a master's frames by a slave: only records that belong where they come may be
appended.

Pure: frames in, whole records and the ends of segments out. Frames that come together are taken as
one, and a record is parsed once: its header goes on to dispatch. A frame may cut a record anywhere;
what is not whole waits here, in front of the log. Source: store format §8 (DefaultHAClient), §5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aerobee.store.errors import FrameIllegal, FrameMisplaced, ReplicaBytesWrong
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.faults import BLANK, END, MORE
from aerobee.store.format.record import BLANK_BYTES, NOT_QUEUED
from aerobee.store.format.walk import Walk, fault_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.store.format.faults import Stop
    from aerobee.store.format.ha import Frame
    from aerobee.store.format.record import RecordHeader


STEP_RECORDS: Final = 256
"""Records that are checked in one step: one or two milliseconds."""


class Begin(NamedTuple):
    """An empty log begins at this physical offset, which is the begin of a segment."""

    physical_offset: int


class Records(NamedTuple):
    """Whole records, side by side, that belong to the end of the log."""

    physical_offset: int
    data: bytes | memoryview
    store_timestamp: int
    """The latest of them, in ms."""
    headers: list[RecordHeader]
    """A header for each record."""


class QueueBegin(NamedTuple):
    """The next record is the first of its queue: what this queue had belongs to a topic that the
    master has deleted.
    """

    topic: str
    queue_id: int


class Filler(NamedTuple):
    """Bytes behind the last record of a segment, the blank first; they do not count yet."""

    physical_offset: int
    data: bytes | memoryview


class SegmentEnd(NamedTuple):
    """All bytes of a segment are there; `size` is that of its blank."""

    size: int


class EpochsBegin(NamedTuple):
    """Epochs, of which the next bytes are the first of the last one; those before it have none."""

    epochs: list[Epoch]


Step: TypeAlias = Begin | QueueBegin | Records | Filler | SegmentEnd | EpochsBegin


class Arriving:
    """Checks what arrives over one connection.

    Invariant: everything before `end` was checked; the bytes up to `expected` wait to be, in one
    segment.
    """

    __slots__ = ("_needed", "_pending", "_segment_bytes", "_unfilled", "empty", "end", "expected")

    def __init__(self, end: int, segment_bytes: int, *, empty: bool) -> None:
        self.end = self.expected = end
        """The end of the log, and where the next frame begins."""
        self.empty = empty
        """The log has no segment yet: it may begin with any."""
        self._segment_bytes = segment_bytes
        self._pending: list[bytes | memoryview] = []
        self._needed = 0
        """So many pending bytes it takes to go on."""
        self._unfilled = 0
        """Bytes that the segment lacks whose blank has come."""

    def take(self, frames: Iterable[Frame | Epoch]) -> Iterator[Step]:
        """The steps for frames that came together; the iterator must be exhausted.

        Steps before the first wrong byte have been given when this raises. Raises: FrameMisplaced,
        ReplicaBytesWrong, and the errors of `frames`.
        """
        wrong: FrameIllegal | FrameMisplaced | None = None
        begun: list[Epoch] = []
        try:
            for frame in frames:
                if isinstance(frame, Epoch):
                    yield from self._until_epoch(frame)
                    begun.append(frame)
                    continue
                if begun:
                    yield EpochsBegin(begun)
                    begun = []
                yield from self._take_one(frame)
        except (FrameIllegal, FrameMisplaced) as refused:
            wrong = refused
        if begun:
            yield EpochsBegin(begun)
        yield from self._records()
        if wrong is not None:
            raise wrong

    def _take_one(self, frame: Frame) -> Iterator[Step]:
        if self.empty:
            if not frame.data:
                return
            yield self._begin(frame)
        self._check_place(frame)
        data = frame.data
        self.expected += len(data)
        if self._unfilled:
            yield from self._fill(data)
            return
        self._pending.append(data)
        if not self.expected % self._segment_bytes:
            yield from self._records()

    def _until_epoch(self, epoch: Epoch) -> Iterator[Step]:
        """Everything in front of an epoch comes first: its bytes are another master's."""
        yield from self._records()
        if self.expected != self.end:
            raise FrameMisplaced(
                f"epoch {epoch.epoch} goes on at {self.expected}, where the record or the blank"
                f" that begins at {self.end} has not ended"
            )

    def _begin(self, frame: Frame) -> Begin:
        if frame.physical_offset % self._segment_bytes:
            raise FrameMisplaced(
                f"the first bytes are for offset {frame.physical_offset}, where no segment of"
                f" {self._segment_bytes} bytes begins: mappedFileSizeCommitLog is another one"
                " there, or this log must be copied"
            )
        self.empty = False
        self.end = self.expected = frame.physical_offset
        return Begin(frame.physical_offset)

    def _check_place(self, frame: Frame) -> None:
        if frame.physical_offset != self.expected:
            raise FrameMisplaced(
                f"the master sends offset {frame.physical_offset}, this log goes on at"
                f" {self.expected}"
            )
        left = self._segment_bytes - self.expected % self._segment_bytes
        if len(frame.data) > left:
            raise FrameMisplaced(
                f"{len(frame.data)} bytes at {self.expected} go beyond the end of a segment of"
                f" {self._segment_bytes} bytes: mappedFileSizeCommitLog is another one there"
            )

    def _records(self) -> Iterator[Step]:
        """The steps of the pending bytes, once there are enough. Hot."""
        base, until = self.end, self.expected
        if self._unfilled or until - base <= 0 or until - base < self._needed:
            return
        data = b"".join(self._pending)
        segment_end = self._segment_end
        walk = Walk(data, base, base, until, segment_end=segment_end, crc=True)
        view = memoryview(data)
        for at, run in walk.runs(STEP_RECORDS):
            yield from self._run(view, base, at, run)
        yield from self._stopped(walk.stop, data[self.end - base :], segment_end)

    def _run(self, data: memoryview, base: int, at: int, run: list[RecordHeader]) -> Iterator[Step]:
        """Records side by side; those that begin a queue begin a step. Hot."""
        last_end = self._segment_end - BLANK_BYTES
        first, latest = 0, 0
        for number, header in enumerate(run):
            if not header.queue_offset and not header.sys_flag & NOT_QUEUED:
                if number > first:
                    yield self._whole(data, base, at, run[first:number], latest)
                    first, latest = number, 0
                yield QueueBegin(header.topic, header.queue_id)
            stored = header.store_timestamp
            if stored > latest:
                latest = stored
            at += header.size
            if at > last_end:
                begin = at - header.size
                if number > first:
                    yield self._whole(data, base, begin, run[first:number], latest)
                raise ReplicaBytesWrong(f"the record at {begin} leaves no room for a blank")
        yield self._whole(data, base, at, run[first:] if first else run, latest)

    def _whole(
        self, data: memoryview, base: int, end: int, headers: list[RecordHeader], latest: int
    ) -> Records:
        begin, self.end = self.end, end
        return Records(begin, data[begin - base : end - base], latest, headers)

    def _stopped(self, stop: Stop, rest: bytes, segment_end: int) -> Iterator[Step]:
        """Go on where no whole record is: the blank, part of a record, or wrong bytes."""
        self._pending, self._needed = [], 0
        if stop.kind == END:
            return
        if stop.kind == MORE:
            self._pending, self._needed = [rest], stop.size
            return
        fault = fault_at(rest, 0, self.end, segment_end)
        if fault.kind != BLANK:
            raise ReplicaBytesWrong(f"no record at {self.end}: {fault.detail}")
        self._unfilled = segment_end - self.end
        yield from self._fill(rest)

    def _fill(self, data: bytes | memoryview) -> Iterator[Step]:
        """Pass the bytes behind a blank on, whatever they are: the logs stay equal."""
        segment_end = self._segment_end
        yield Filler(segment_end - self._unfilled, data)
        self._unfilled -= len(data)
        if not self._unfilled:
            size, self.end = segment_end - self.end, segment_end
            yield SegmentEnd(size)

    @property
    def _segment_end(self) -> int:
        """The end of the segment that the next record belongs to."""
        return self.end - self.end % self._segment_bytes + self._segment_bytes
