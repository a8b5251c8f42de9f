from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.errors import FrameMisplaced, ReplicaBytesWrong, ReplicationRefused
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha import Frame
from aerobee.store.format.record import BLANK_BYTES, blank, encode
from aerobee.store.replication.arriving import (
    Arriving,
    Begin,
    EpochsBegin,
    Filler,
    QueueBegin,
    Records,
    SegmentEnd,
)
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.replication.arriving import Step

SEGMENT = 1_024
BODIES = [b"", b"one", bytes(300), b"x" * 200, bytes(250), b"last", bytes(400), b"end"]


def segments(bodies: Iterable[bytes], start: int = 0) -> bytes:
    """A log from the begin of a segment on, with something behind its blanks."""
    log = b""
    for number, body in enumerate(bodies):
        record = encode(draft(body=body), number, start + len(log), 1_000 + number)
        left = SEGMENT - len(log) % SEGMENT
        if len(record) + BLANK_BYTES > left:
            log += blank(left) + b"\x5a" * (left - BLANK_BYTES)
            record = encode(draft(body=body), number, start + len(log), 1_000 + number)
        log += record
    return log


def frames(log: bytes, start: int, ends: Iterable[int]) -> list[Frame]:
    """The log in frames, cut at these places and at the ends of segments."""
    cuts = sorted({*ends, *range(0, len(log), SEGMENT), len(log)} - {0})
    return [
        Frame(start + begin, log[begin:end])
        for begin, end in zip([0, *cuts], cuts, strict=False)
        if begin < end <= len(log)
    ]


def test_epochs_without_a_byte_begin_in_one_step_with_the_one_behind_them() -> None:
    log = segments([b"one", b"two"])
    second = len(segments([b"one"]))
    empty = [Epoch(number, second) for number in range(2, 10)]
    first: list[Frame | Epoch] = [Epoch(1, 0), Frame(0, log[:second]), *empty]
    came = [*first, Frame(second, log[second:])]
    steps = list(Arriving(0, SEGMENT, empty=True).take(came))
    assert [step.epochs for step in steps if isinstance(step, EpochsBegin)] == [came[:1], empty]
    at = [type(step) for step in steps].index(EpochsBegin, 1)
    assert isinstance(steps[at + 1], Records | QueueBegin), "ahead of their first byte"
    last = list(Arriving(0, SEGMENT, empty=True).take(first))[-1]
    assert last == EpochsBegin(empty), "with the bytes in front of them, not with the next ones"


class Copy:
    """A log made of the steps, as a slave would."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.bytes = bytearray()
        self.counted = 0
        """All but the bytes behind a blank that is not complete."""

    def do(self, step: Step) -> None:
        match step:
            case Records(physical_offset, data, _, _):
                assert physical_offset - self.start == len(self.bytes) == self.counted
                self.bytes += data
                self.counted = len(self.bytes)
            case Filler(physical_offset, data):
                assert physical_offset - self.start == len(self.bytes)
                self.bytes += data
            case SegmentEnd(size):
                assert len(self.bytes) - self.counted == size
                self.counted = len(self.bytes)
                assert not self.counted % SEGMENT
            case Begin(physical_offset):
                self.start = physical_offset


LOG = segments(BODIES)


def run_of(count: int, first: int = 5) -> list[bytes]:
    """Records side by side, none the first of its queue."""
    records: list[bytes] = []
    for number in range(first, first + count):
        at = sum(map(len, records))
        records.append(encode(draft(body=b"x" * number), number, at, 1_000 + number))
    return records


RUN = run_of(3)


@given(st.sets(st.integers(1, len(LOG)), max_size=40))
def test_however_the_log_is_cut_its_copy_is_the_same(ends: set[int]) -> None:
    arriving, copy = Arriving(0, SEGMENT, empty=True), Copy()
    for frame in frames(LOG, 0, ends):
        for step in arriving.take([frame]):
            copy.do(step)
        assert arriving.end == copy.counted
        assert arriving.expected == frame.physical_offset + len(frame.data)
    assert copy.bytes == LOG
    assert arriving.end == len(LOG)


@given(st.sets(st.integers(1, len(LOG)), max_size=40), st.integers(1, 9))
def test_frames_that_come_together_make_the_same_copy(ends: set[int], together: int) -> None:
    arriving, copy = Arriving(0, SEGMENT, empty=True), Copy()
    all_frames = frames(LOG, 0, ends)
    for at in range(0, len(all_frames), together):
        for step in arriving.take(all_frames[at : at + together]):
            copy.do(step)
        assert arriving.end == copy.counted
    assert copy.bytes == LOG


def test_records_that_come_together_are_one_step_with_all_their_headers() -> None:
    log = b"".join(RUN)
    cuts = [Frame(at, log[at : at + 50]) for at in range(0, len(log), 50)]
    (step,) = Arriving(0, SEGMENT, empty=False).take(cuts)
    assert isinstance(step, Records)
    assert step.data == log
    assert [header.queue_offset for header in step.headers] == [5, 6, 7]


@pytest.mark.parametrize("place", [10, len(LOG) + 1])
def test_whatever_is_in_front_of_a_misplaced_frame_is_given_first(place: int) -> None:
    log = b"".join(RUN)
    steps = Arriving(0, SEGMENT, empty=False).take([Frame(0, log), Frame(place, b"x")])
    assert next(steps)[:2] == (0, log)
    with pytest.raises(FrameMisplaced, match=f"goes on at {len(log)}"):
        next(steps)


def test_byte_by_byte_it_is_the_same() -> None:
    arriving, copy = Arriving(0, SEGMENT, empty=False), Copy()
    for at, byte in enumerate(LOG):
        for step in arriving.take([Frame(at, bytes([byte]))]):
            copy.do(step)
    assert copy.bytes == LOG


def test_an_empty_log_begins_where_a_segment_begins_and_nowhere_else() -> None:
    start = 7 * SEGMENT
    log = segments(BODIES, start)
    arriving, copy = Arriving(0, SEGMENT, empty=True), Copy()
    assert list(arriving.take([Frame(start + 5, b"")])) == []
    for frame in frames(log, start, [100, 333]):
        for step in arriving.take([frame]):
            copy.do(step)
    assert (copy.start, bytes(copy.bytes)) == (start, log)
    with pytest.raises(FrameMisplaced, match="mappedFileSizeCommitLog"):
        list(Arriving(0, SEGMENT, empty=True).take([Frame(start + 500, log[500:600])]))


@pytest.mark.parametrize("frame", [Frame(10, b"x"), Frame(10, b""), Frame(1 << 40, b"")])
def test_a_frame_for_another_place_is_refused_even_without_bytes(frame: Frame) -> None:
    arriving = Arriving(0, SEGMENT, empty=False)
    with pytest.raises(FrameMisplaced, match="goes on at 0"):
        list(arriving.take([frame]))


def test_the_first_message_of_a_queue_is_told_before_it_comes() -> None:
    bodies = [(3, 0), (3, 1), (4, 0), (3, 0)]
    log, ends = b"", []
    for queue_id, queue_offset in bodies:
        log += encode(draft(queue_id=queue_id, body=b"x"), queue_offset, len(log), 1)
        ends.append(len(log))
    told = [
        (step.queue_id, arriving.end)
        for arriving in [Arriving(0, SEGMENT, empty=False)]
        for step in arriving.take([Frame(0, log)])
        if isinstance(step, QueueBegin)
    ]
    assert told == [(3, 0), (4, ends[1]), (3, ends[2])]


def test_bytes_beyond_the_end_of_a_segment_are_refused() -> None:
    with pytest.raises(FrameMisplaced, match="mappedFileSizeCommitLog"):
        list(Arriving(0, SEGMENT, empty=False).take([Frame(0, bytes(SEGMENT + 1))]))


def test_the_blank_of_longer_segments_is_refused_with_the_reason() -> None:
    record = encode(draft(body=b"one"), 7, 0, 1)
    data = record + blank(4_096 - len(record)) + bytes(100)
    steps = Arriving(0, SEGMENT, empty=False).take([Frame(0, data)])
    assert next(steps)[:3] == (0, record, 1)
    with pytest.raises(ReplicaBytesWrong, match="the blank says"):
        next(steps)


@settings(max_examples=60)
@given(st.integers(0, len(LOG) - 1), st.integers(1, 255), st.sets(st.integers(1, len(LOG))))
def test_a_changed_byte_is_never_followed_by_anything(
    place: int, change: int, ends: set[int]
) -> None:
    """Either it is in bytes that mean nothing, or nothing behind its record is taken."""
    wrong = bytearray(LOG)
    wrong[place] ^= change
    arriving, copy = Arriving(0, SEGMENT, empty=True), Copy()
    try:
        for frame in frames(bytes(wrong), 0, ends):
            for step in arriving.take([frame]):
                copy.do(step)
    except ReplicationRefused:
        assert copy.counted <= place
    assert copy.bytes == wrong[: len(copy.bytes)]
    assert copy.counted == arriving.end


@given(st.binary(max_size=600), st.integers(0, 3 * SEGMENT))
def test_no_bytes_raise_anything_but_a_refusal(data: bytes, offset: int) -> None:
    for empty in (True, False):
        arriving = Arriving(0, SEGMENT, empty=empty)
        try:
            for step in arriving.take([Frame(offset, data)]):
                assert step is not None
        except ReplicationRefused:
            pass


def test_many_records_of_one_frame_are_checked_in_steps() -> None:
    bodies = [b""] * 2_000
    size = 1 << 20
    log = b""
    for number, body in enumerate(bodies, 1):
        log += encode(draft(body=body), number, len(log), 1)
    steps = list(Arriving(0, size, empty=False).take([Frame(0, log)]))
    assert len(steps) == 8
    assert b"".join(step.data for step in steps if isinstance(step, Records)) == log
