from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.errors import FrameIllegal, ReplicationRefused
from aerobee.store.format.ha import (
    FRAME_DATA_BYTES_MAX,
    FRAME_HEAD_BYTES,
    REPORT_BYTES,
    Frame,
    FrameReader,
    ReportReader,
    encode_frame,
    encode_frames,
    encode_report,
)

RECORD = bytes.fromhex("000000e0daa320a73610a686") + bytes(212)
JAVA_MASTER = (
    "0000000000000000 00000000",  # Two heartbeats of an empty master, 5 s apart,
    "0000000000000000 00000000",
    "0000000000000000 000000e0 000000e0daa320a73610a686",  # the first message of 224 bytes,
    "00000000000000e0 00000000",  # and the heartbeat that names what comes next.
)
"""What a Java master of 5.4.0 sent to a slave that had reported 0; the message is cut here."""

OFFSETS = st.integers(0, (1 << 63) - 1 - FRAME_DATA_BYTES_MAX)
FRAMES = st.lists(st.builds(Frame, OFFSETS, st.binary(max_size=300)), max_size=8)


def recorded() -> bytes:
    heads = [bytes.fromhex(line) for line in JAVA_MASTER]
    heads[2] += RECORD[12:]
    return b"".join(heads)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def test_what_a_java_master_sent_is_read_as_its_frames() -> None:
    frames = [Frame(0, b""), Frame(0, b""), Frame(0, RECORD), Frame(0xE0, b"")]
    assert list(FrameReader().feed(recorded())) == frames
    assert b"".join(encode_frame(*frame) for frame in frames) == recorded()


def test_the_reports_of_a_java_slave_are_read_and_written() -> None:
    assert encode_report(0).hex() == "0000000000000000"
    assert encode_report(0x0C98).hex() == "0000000000000c98"
    assert ReportReader().feed(bytes.fromhex("00000000000000e0 0000000000000c98")) == 0x0C98


@given(FRAMES, st.lists(st.integers(0, 4_000), max_size=12))
def test_frames_are_the_same_however_they_are_cut(frames: list[Frame], places: list[int]) -> None:
    reader = FrameReader()
    pieces = cut(b"".join(encode_frame(*frame) for frame in frames), places)
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


@given(OFFSETS, st.binary(max_size=300), st.integers(1, 100))
def test_many_bytes_are_frames_side_by_side(offset: int, data: bytes, most: int) -> None:
    reader = FrameReader()
    frames = list(reader.feed(encode_frames(offset, memoryview(data), most)))
    assert b"".join(frame.data for frame in frames) == data
    assert [frame.physical_offset - offset for frame in frames] == [*range(0, len(data), most)]
    assert all(len(frame.data) == most for frame in frames[:-1])
    assert (reader.frames, reader.data_bytes) == (len(frames), len(data))


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=8),
    st.lists(st.integers(0, 64), max_size=6),
)
def test_the_last_whole_report_is_the_same_however_they_are_cut(
    reports: list[int], places: list[int]
) -> None:
    reader = ReportReader()
    read = [reader.feed(piece) for piece in cut(b"".join(map(encode_report, reports)), places)]
    told = [report for report in read if report is not None]
    assert told[-1:] == reports[-1:]
    assert set(told) <= set(reports)


@pytest.mark.parametrize(
    ("physical_offset", "size"),
    [
        (0, -1),
        (0, -(1 << 31)),
        (0, (1 << 31) - 1),
        (0, FRAME_DATA_BYTES_MAX + 1),
        (-1, 0),
        (-(1 << 63), 10),
        ((1 << 63) - 1, 1),
    ],
)
def test_numbers_that_no_frame_has_are_refused_before_its_bytes_are_waited_for(
    physical_offset: int, size: int
) -> None:
    frames = FrameReader().feed(
        encode_frame(7, b"whole") + struct.pack(">qi", physical_offset, size)
    )
    assert next(frames) == Frame(7, b"whole")
    with pytest.raises(FrameIllegal, match=str(physical_offset)):
        next(frames)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_no_bytes_raise_anything_but_a_refusal(data: bytes, places: list[int]) -> None:
    reader, reports = FrameReader(), ReportReader()
    try:
        for piece in cut(data, places):
            reports.feed(piece)
            for frame in reader.feed(piece):
                assert frame.physical_offset >= 0
    except ReplicationRefused:
        pass


def test_the_longest_frame_fits_into_what_a_java_slave_reads() -> None:
    data = encode_frame(1, bytes(FRAME_DATA_BYTES_MAX))
    assert len(data) == 4 << 20
    [frame] = FrameReader().feed(data)
    assert len(frame.data) == FRAME_DATA_BYTES_MAX
    assert (FRAME_HEAD_BYTES, REPORT_BYTES) == (12, 8)
