"""Walking the log: where it ends, why, and where it goes on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.format import record
from aerobee.store.format.faults import (
    BAD_LENGTHS,
    BAD_SIZE,
    BLANK,
    CRC,
    END,
    MORE,
    ZEROS,
    NoRecord,
    Stop,
)
from aerobee.store.format.walk import (
    Walk,
    candidates,
    claimed_size,
    fault_at,
    resumes_at,
    stop_at,
)
from tests.kit.records import changed

BASE, SEGMENT_END = 1_000, 1_001_000
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
NOON = 1_700_000_000_000


def draft(**fields: Any) -> record.MessageDraft:
    message = record.MessageDraft("orders", 0, b"hello", b"", HOST, HOST)
    return changed(message, **fields)


def log_of(count: int, **fields: Any) -> tuple[bytes, list[int]]:
    """So many records from BASE on, and their physical offsets."""
    data, offsets = b"", []
    for number in range(count):
        offsets.append(BASE + len(data))
        data += record.encode(draft(**fields), number, offsets[-1], NOON + number)
    return data, offsets


def walked(data: bytes, begin: int = BASE, until: int | None = None, **how: Any) -> Any:
    walk = Walk(data, BASE, begin, BASE + len(data) if until is None else until, **how)
    return [at for at, _ in walk], walk.stop


def test_a_walk_gives_the_records_that_begin_before_its_bound() -> None:
    data, offsets = log_of(4)
    assert walked(data) == (offsets, Stop(END, BASE + len(data)))
    assert walked(data, offsets[1]) == (offsets[1:], Stop(END, BASE + len(data)))
    assert walked(data, until=offsets[2]) == (offsets[:2], Stop(END, offsets[2]))
    assert walked(data, until=offsets[2] + 1) == (offsets[:3], Stop(END, offsets[3]))
    assert walked(data, BASE + len(data)) == ([], Stop(END, BASE + len(data)))


def mixed_log() -> bytes:
    """Ordinary records, and one of each other kind between them."""
    odd: list[dict[str, Any]] = [
        {},
        {"body": b"", "properties": b"TAGS\x01a\x02"},
        {"topic": "t" * 128},
        {},
        {"born_host": bytes(range(20))},
        {"store_host": bytes(range(20))},
        {"topic": "t" * 127, "body": bytes(300)},
        {"properties": b"KEYS\x01" + b"k" * 300},
        {},
    ]
    data = b""
    for number, fields in enumerate(odd):
        data += record.encode(draft(**fields), number, BASE + len(data), NOON + number)
    return data


MIXED = mixed_log()


@given(
    st.one_of(st.none(), st.tuples(st.integers(0, len(MIXED) - 1), st.integers(1, 255))),
    st.integers(0, len(MIXED)),
    st.integers(0, len(MIXED)),
    st.integers(1, 5),
    st.booleans(),
)
def test_runs_are_the_records_of_the_walk_whatever_the_bytes(
    change: tuple[int, int] | None, end: int, until: int, most: int, crc: bool
) -> None:
    data = bytearray(MIXED)
    if change is not None:
        data[change[0]] ^= change[1]
    for size in (end, len(data)):
        args = bytes(data[:size]), BASE, BASE, BASE + min(until, size)
        walk = Walk(*args, segment_end=SEGMENT_END, crc=crc)
        runs = Walk(*args, segment_end=SEGMENT_END, crc=crc)
        records, apart = list(walk), []
        for begin, run in runs.runs(most):
            assert 0 < len(run) <= most
            for header in run:
                apart.append((begin, header))
                begin += header.size
        assert (apart, runs.stop) == (records, walk.stop)


@given(st.integers(0, 400))
def test_a_buffer_that_ends_early_says_how_many_bytes_it_takes(cut: int) -> None:
    data, offsets = log_of(3)
    cut = min(cut, len(data) - 1)
    found, stop = walked(data[:cut], until=SEGMENT_END, segment_end=SEGMENT_END)
    assert found == [at for at, end in zip(offsets, [*offsets[1:], BASE + len(data)], strict=True)
                     if end <= BASE + cut]  # fmt: skip
    assert stop.kind == MORE
    begin = stop.physical_offset - BASE
    assert len(data[:cut]) - begin < stop.size
    more, further = walked(
        data[: begin + stop.size], stop.physical_offset, SEGMENT_END, segment_end=SEGMENT_END
    )
    assert more or further.size > stop.size


def test_where_a_walk_goes_on() -> None:
    data, offsets = log_of(2)
    end = BASE + len(data)
    closed = data + record.blank(100) + bytes(92)
    stop = walked(closed)[1]
    assert stop == Stop(BLANK, end)
    assert resumes_at(stop, end + 8, end + 100) == end + 100
    wrong = bytearray(data)
    wrong[offsets[1] - BASE + 3] -= 1
    stop = walked(bytes(wrong))[1]
    size = end - 1 - offsets[1]
    assert stop == Stop(BAD_LENGTHS, offsets[1], size)
    assert resumes_at(stop, end, end + 100) == offsets[1] + size
    stop = walked(data + bytes(500), until=SEGMENT_END)[1]
    assert stop == Stop(ZEROS, end)
    assert resumes_at(stop, end + 500, SEGMENT_END) == end + 500, "nothing tells where else"


def test_the_crc_is_asked_for() -> None:
    data, offsets = log_of(2)
    torn = data[:-1].replace(b"hello", b"hallo", 1) + data[-1:]
    assert walked(torn)[0] == offsets
    assert walked(torn, crc=True) == ([], Stop(CRC, BASE))


def test_every_fault_has_words() -> None:
    data = record.encode(draft(), 0, BASE, 0)

    def words(data: bytes, physical_offset: int = BASE) -> str:
        return fault_at(data, 0, physical_offset).detail

    assert words(data) == "a whole record"
    assert words(data, 300) == "names physical offset 1000"
    assert words(data[:-1]).startswith("size")
    assert words(data[:84] + b"\xff\xff\xff\xff" + data[88:]) == "body length or topic"
    assert words(data.replace(b"hello", b"hallo")) == "body CRC"
    assert words(bytes(500)) == "size 0 and magic 0"
    assert words(bytes(5)) == "5 bytes left, a segment ends with a blank"
    assert words(record.blank(9) + b"\0") == "the segment ends"
    assert words(record.blank(9)) == "the blank says 9 bytes, 8 are left"


@settings(max_examples=300)
@given(st.data())
def test_parse_and_report_name_the_same_kind(pick: st.DataObject) -> None:
    data = bytearray(log_of(2)[0])
    for _ in range(pick.draw(st.integers(1, 4))):
        data[pick.draw(st.integers(0, 120))] = pick.draw(st.integers(0, 255))
    found = record.parse(data, 0, BASE, crc=True)
    fault = fault_at(bytes(data), 0, BASE)
    if isinstance(found, NoRecord):
        # The report looks at all lengths before it looks at a body, and at what a blank says.
        later = {(BLANK, BAD_SIZE), (CRC, BAD_LENGTHS)}
        assert found.kind == fault.kind or (found.kind, fault.kind) in later
    else:
        assert fault.kind == END


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 250))
def test_any_bytes_have_a_reason(data: bytes, at: int) -> None:
    for start in (b"", b"\x00\x00\x00\x60\xda\xa3\x20\xa7", b"\x00\x00\x00\x60\xda\xa3\x20\xab"):
        whole = start + data
        place = min(at, len(whole))
        assert fault_at(whole, place, BASE).detail
        assert stop_at(whole, place, BASE, SEGMENT_END).physical_offset == BASE


@pytest.mark.parametrize("size", [2_000_000, -1, 90])
def test_a_wrong_size_makes_nobody_read_more(size: int) -> None:
    data = bytearray(log_of(1, body=bytes(200))[0])
    data[:4] = size.to_bytes(4, "big", signed=True)
    assert claimed_size(data, 0, BASE, SEGMENT_END) == 0
    data[:4] = (900_000).to_bytes(4, "big")
    assert claimed_size(data, 0, BASE, SEGMENT_END) == 0, "its body is no longer than it was"


def test_candidates_name_their_own_physical_offset() -> None:
    base = BASE
    inner = record.encode(draft(body=b""), 0, 5, NOON)
    outer = record.encode(draft(body=inner), 0, base + 3, NOON)
    data = b"xyz" + outer
    data += record.encode(draft(body=b""), 1, base + len(data), NOON)
    assert list(candidates(data, base)) == [base + 3, base + 3 + len(outer)]
    assert list(candidates(data, base, 4)) == [base + 3 + len(outer)]


def test_a_large_record_is_asked_for_once_its_head_says_that_it_can_be_one() -> None:
    data = record.encode(draft(body=bytes(70_000)), 0, BASE, NOON)
    assert claimed_size(data[:90], 0, BASE, SEGMENT_END) == 0, "nothing can be told"
    assert claimed_size(data[:91], 0, BASE, SEGMENT_END) == 112, "with hosts of IPv6 at most"
    assert claimed_size(data[:112], 0, BASE, SEGMENT_END) == len(data)
    assert claimed_size(b"\xff" * 7 + data, 7, BASE, SEGMENT_END) == len(data)
    assert claimed_size(b"\xff" * 60 + data[:90], 60, BASE, SEGMENT_END) == 0
    assert claimed_size(data, 0, BASE + 1, SEGMENT_END) == 0, "it names another place"
    assert claimed_size(data, 0, BASE, BASE + len(data)) == len(data)
    assert claimed_size(data, 0, BASE, BASE + len(data) - 1) == 0, "the segment ends before it"


def test_a_small_record_is_believed_by_its_size_alone() -> None:
    small = record.encode(draft(body=bytes(200)), 0, BASE, NOON)
    for size, needed in ((64 << 10, 64 << 10), ((64 << 10) + 1, 0)):
        claimed = size.to_bytes(4, "big") + small[4:]
        assert claimed_size(claimed, 0, BASE + 1, SEGMENT_END) == needed
