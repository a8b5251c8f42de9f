"""Words over the log: the quick look at many records agrees with the slow look at each."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.spark.segments import (
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_SIZE,
    BLANK,
    MORE,
    WRONG_OFFSET,
    ZEROS,
    Segment,
    Stop,
    candidates,
    crc_faults,
    fault_at,
    holes_between,
    records_in,
    splits_of,
    visible,
)
from aerobee.spark.store_choice import is_system, topic_filter, within_times
from aerobee.store.format import record
from tests.aerobee.spark.store_maker import HOST, HOST_V6, NOON

SEGMENT = Segment("/store/commitlog/00000000000000001000", 1_000, 1_000_000)
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
    starts = []
    while (size := record.check(data, at, base + at, crc=False)) > 0:
        starts.append(at)
        at += size
    return starts


@given(st.lists(drafts, max_size=12))
def test_all_records_are_found_with_their_fields(made: list[record.MessageDraft]) -> None:
    data, starts = run_of(made, SEGMENT.start)
    walked = records_in(data, SEGMENT.start, SEGMENT.end)
    assert walked.heads.starts.tolist() == starts
    assert walked.names == [draft.topic.encode() for draft in made]
    assert walked.stop == Stop("", len(data))
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
    data, starts = run_of(made, SEGMENT.start)
    damaged = bytearray(data)
    for _ in range(pick.draw(st.integers(1, 4))):
        start = pick.draw(st.sampled_from(starts))
        at = pick.draw(st.integers(start, min(start + 100, len(data) - 1)))
        damaged[at] = pick.draw(st.integers(0, 255))
    found = records_in(bytes(damaged), SEGMENT.start, SEGMENT.end)
    assert found.heads.starts.tolist() == slowly(bytes(damaged), SEGMENT.start)
    if found.stop.kind not in ("", MORE):
        fault = fault_at(
            bytes(damaged)[found.stop.at :], SEGMENT.start + found.stop.at, SEGMENT.end
        )
        assert fault.kind == found.stop.kind


@given(st.lists(drafts, min_size=1, max_size=6), st.integers(0, 400))
def test_a_cut_asks_for_more_and_says_how_much(made: list[record.MessageDraft], cut: int) -> None:
    data, starts = run_of(made, SEGMENT.start)
    cut = min(cut, len(data))
    walked = records_in(data[:cut], SEGMENT.start, SEGMENT.end)
    ends = [*starts[1:], len(data)]
    assert walked.heads.starts.tolist() == [
        at for at, end in zip(starts, ends, strict=True) if end <= cut
    ]
    if cut < len(data) and cut not in starts:
        assert walked.stop.kind == MORE
        assert cut - walked.stop.at < walked.stop.need
        more = records_in(
            data[: walked.stop.at + walked.stop.need], SEGMENT.start, SEGMENT.end, walked.stop.at
        )
        assert more.names or more.stop.need > walked.stop.need


def test_random_bytes_are_an_answer_and_no_exception() -> None:
    chance = np.random.default_rng(7)
    for size in range(200):
        data = chance.bytes(size)
        walked = records_in(data, SEGMENT.start, SEGMENT.end)
        assert walked.heads.starts.tolist() == []


def faulty(field: str, value: int, width: int) -> str:
    draft = record.MessageDraft("orders", 0, b"hello", b"", HOST, HOST)
    data = bytearray(record.encode(draft, 0, SEGMENT.start, NOON))
    at = record.HEAD.offset[field]
    data[at : at + width] = value.to_bytes(width, "big", signed=True)
    kind: str = records_in(bytes(data) + bytes(200), SEGMENT.start, SEGMENT.end).stop.kind
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
    assert records_in(bytes(100), SEGMENT.start, SEGMENT.end).stop.kind == ZEROS
    closed = record.blank(100) + bytes(92)
    assert records_in(closed, SEGMENT.end - 100, SEGMENT.end).stop.kind == BLANK
    assert records_in(record.blank(8), SEGMENT.end - 8, SEGMENT.end).stop.kind == BLANK
    assert records_in(closed, SEGMENT.end - 101, SEGMENT.end).stop.kind == BAD_SIZE


def test_a_body_that_is_not_the_one_of_its_crc() -> None:
    draft = record.MessageDraft("orders", 0, b"hello", b"", HOST, HOST)
    first = record.encode(draft, 0, SEGMENT.start, NOON)
    second = record.encode(draft, 1, SEGMENT.start + len(first), NOON).replace(b"hello", b"hallo")
    walked = records_in(first + second, SEGMENT.start, SEGMENT.end)
    assert crc_faults(first + second, walked.heads) == [1]


def test_candidates_name_their_own_place() -> None:
    draft = record.MessageDraft("orders", 0, b"", b"", HOST, HOST)
    base = SEGMENT.start
    inner = record.encode(draft, 0, 5, NOON)
    outer = record.encode(
        record.MessageDraft("orders", 0, inner, b"", HOST, HOST), 0, base + 3, NOON
    )
    data = b"xyz" + outer
    data += record.encode(draft, 1, base + len(data), NOON)
    assert list(candidates(data, base)) == [base + 3, base + 3 + len(outer)]
    assert list(candidates(data, base, 4)) == [base + 3 + len(outer)]


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 3_000))
def test_splits_cover_the_wanted_bytes_once(begin: int, end: int, limit: int, size: int) -> None:
    segment = Segment("x", 1_000, 3_000)
    limit = min(limit, segment.end)
    splits = splits_of(segment, begin, end, limit, size)
    low, high = max(begin, segment.start), min(end, limit)
    if low >= high:
        assert splits == []
        return
    assert (splits[0].begin, splits[-1].end) == (low, high)
    assert all(one.end == two.begin for one, two in pairwise(splits))
    assert all(split.end - split.begin <= size for split in splits)
    assert [split.first for split in splits] == [True] + [False] * (len(splits) - 1)
    assert [split.last for split in splits] == [False] * (len(splits) - 1) + [True]


def test_segments_of_another_time_are_left_out_and_doubtful_ones_are_not() -> None:
    hour = 3_600_000
    firsts = [0, 10 * hour, None, 30 * hour, 40 * hour]
    assert within_times(firsts, None, None) == [True] * 5
    assert within_times(firsts, 12 * hour, None) == [False, True, True, True, True]
    assert within_times(firsts, 35 * hour, None) == [False, True, False, True, True]
    assert within_times(firsts, None, 20 * hour) == [True, True, True, False, False]
    assert within_times(firsts, 10 * hour + 5, None)[0], "a clock may have stepped back"


def test_topics_are_chosen_by_name_or_by_kind() -> None:
    system = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "TBW102"]
    assert all(map(is_system, system))
    assert not any(map(is_system, ["orders", "%RETRY%g", "%DLQ%g"]))
    assert topic_filter((), exclude_system=True)("orders")
    assert not topic_filter((), exclude_system=True)("TBW102")
    assert topic_filter((), exclude_system=False)("TBW102")
    assert topic_filter(("TBW102",), exclude_system=True)("TBW102"), "it was named"
    assert not topic_filter(("TBW102",), exclude_system=True)("orders")


def test_a_missing_segment_is_seen() -> None:
    row = [Segment("a", 0, 10), Segment("b", 10, 10), Segment("c", 30, 10)]
    assert list(holes_between(row)) == [(row[1], row[2])]
