"""The look at many records at once agrees with the look at each."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.format import record
from aerobee.store.format.faults import (
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_SIZE,
    BLANK,
    END,
    MORE,
    WRONG_OFFSET,
    ZEROS,
    Stop,
)
from aerobee.store.format.record_arrays import crc_faults, records_in, visible
from aerobee.store.format.walk import Walk, fault_at

BASE, SEGMENT_END = 1_000, 1_001_000
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
NOON = 1_700_000_000_000
TOPICS = ["a", "orders", "%RETRY%" + "g" * 140, "grüße"]

drafts = st.builds(
    record.MessageDraft,
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 7),
    body=st.binary(max_size=60),
    properties=st.sampled_from([b"", b"TAGS\x01a\x02", b"KEYS\x01k\x02TAGS\x01b"]),
    born_host=st.sampled_from([HOST, HOST_V6]),
    store_host=st.sampled_from([HOST, HOST_V6]),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12]),
)


def run_of(made: list[record.MessageDraft], base: int) -> tuple[bytes, list[int]]:
    """The records one behind the other, and where each begins."""
    data, starts = b"", []
    for number, draft in enumerate(made):
        starts.append(len(data))
        data += record.encode(draft, number, base + len(data), NOON + number)
    return data, starts


def slowly(data: bytes, base: int, at: int = 0) -> list[int]:
    """What `parse` finds, record by record."""
    return [begin - base for begin, _ in Walk(data, base, base + at, base + len(data))]


@given(st.lists(drafts, max_size=12))
def test_all_records_are_found_with_their_fields(made: list[record.MessageDraft]) -> None:
    data, starts = run_of(made, BASE)
    walked = records_in(data, BASE, SEGMENT_END)
    assert walked.heads.starts.tolist() == starts
    assert walked.names == [draft.topic.encode() for draft in made]
    assert walked.stop == Stop(END, BASE + len(data))
    heads = walked.heads
    read = [record.read(data, at) for at in starts]
    assert heads.stored.tolist() == [one.store_timestamp for one in read]
    assert [data[a:b] for a, b in zip(heads.topics, heads.topic_ends, strict=True)] == walked.names
    assert visible(heads).tolist() == [not one.sys_flag & 4 for one in read]
    assert crc_faults(data, heads) == []


@settings(max_examples=300)
@given(st.lists(drafts, min_size=1, max_size=8), st.data())
def test_whatever_the_bytes_the_quick_look_finds_what_the_slow_one_finds(
    made: list[record.MessageDraft], pick: st.DataObject
) -> None:
    data, starts = run_of(made, BASE)
    damaged = bytearray(data)
    for _ in range(pick.draw(st.integers(1, 4))):
        start = pick.draw(st.sampled_from(starts))
        at = pick.draw(st.integers(start, min(start + 100, len(data) - 1)))
        damaged[at] = pick.draw(st.integers(0, 255))
    found = records_in(bytes(damaged), BASE, SEGMENT_END)
    assert found.heads.starts.tolist() == slowly(bytes(damaged), BASE)
    if found.stop.kind not in ("", MORE):
        at = found.stop.physical_offset
        fault = fault_at(bytes(damaged), at - BASE, at, SEGMENT_END)
        assert fault.kind == found.stop.kind


@given(st.lists(drafts, min_size=1, max_size=6), st.integers(0, 400))
def test_a_cut_asks_for_more_and_says_how_much(made: list[record.MessageDraft], cut: int) -> None:
    data, starts = run_of(made, BASE)
    cut = min(cut, len(data))
    walked = records_in(data[:cut], BASE, SEGMENT_END)
    ends = [*starts[1:], len(data)]
    assert walked.heads.starts.tolist() == [
        at for at, end in zip(starts, ends, strict=True) if end <= cut
    ]
    if cut < len(data) and cut not in starts:
        assert walked.stop.kind == MORE
        at = walked.stop.physical_offset - BASE
        assert cut - at < walked.stop.size
        more = records_in(data[: at + walked.stop.size], BASE, SEGMENT_END, at)
        assert more.names or more.stop.size > walked.stop.size


def test_random_bytes_are_an_answer_and_no_exception() -> None:
    chance = np.random.default_rng(7)
    for size in range(200):
        data = chance.bytes(size)
        walked = records_in(data, BASE, SEGMENT_END)
        assert walked.heads.starts.tolist() == []


def faulty(field: str, value: int, width: int) -> str:
    draft = record.MessageDraft("orders", 0, b"hello", b"", HOST, HOST)
    data = bytearray(record.encode(draft, 0, BASE, NOON))
    at = record.HEAD.offset[field]
    data[at : at + width] = value.to_bytes(width, "big", signed=True)
    kind: str = records_in(bytes(data) + bytes(200), BASE, SEGMENT_END).stop.kind
    return kind


def test_each_fault_has_its_name() -> None:
    assert faulty("magic", 1, 4) == BAD_MAGIC
    assert faulty("size", 90, 4) == BAD_SIZE
    assert faulty("size", 2_000_000, 4) == BAD_SIZE
    assert faulty("size", -1, 4) == BAD_SIZE
    assert faulty("physical_offset", 0, 8) == WRONG_OFFSET
    assert faulty("body_length", 4, 4) == BAD_LENGTHS
    assert faulty("body_length", -1, 4) == BAD_LENGTHS
    assert faulty("size", 120, 4) == BAD_LENGTHS


def test_zeros_end_the_data_and_a_blank_the_segment() -> None:
    assert records_in(bytes(100), BASE, SEGMENT_END).stop.kind == ZEROS
    closed = record.blank(100) + bytes(92)
    assert records_in(closed, SEGMENT_END - 100, SEGMENT_END).stop.kind == BLANK
    assert records_in(record.blank(8), SEGMENT_END - 8, SEGMENT_END).stop.kind == BLANK
    assert records_in(closed, SEGMENT_END - 101, SEGMENT_END).stop.kind == BAD_SIZE


def test_a_body_that_is_not_the_one_of_its_crc() -> None:
    draft = record.MessageDraft("orders", 0, b"hello", b"", HOST, HOST)
    first = record.encode(draft, 0, BASE, NOON)
    second = record.encode(draft, 1, BASE + len(first), NOON).replace(b"hello", b"hallo")
    walked = records_in(first + second, BASE, SEGMENT_END)
    assert crc_faults(first + second, walked.heads) == [1]
