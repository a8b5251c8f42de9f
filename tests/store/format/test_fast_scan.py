"""The fast scan and the reference decoder see the same log."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.store.format.fast_scan import NEVER, fast_scan, queue_key
from aerobee.store.format.faults import NoRecord
from aerobee.store.format.record import (
    BORN_HOST_IPV6,
    HOST_FLAGS,
    MAGIC_V1,
    STORE_HOST_IPV6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    MessageDraft,
    RecordHeader,
    encode,
    parse,
)
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT

BASE = 5_000
IPV4 = bytes((10, 0, 0, 7, 0, 0, 0, 80))
IPV6 = bytes(range(16)) + bytes((0, 0, 0, 80))
TOPICS = ("A", "Topic-B", "%RETRY%" + "g" * 120, "%RETRY%" + "g" * 121)
"""The last one needs a V2 record."""
FAMILIES = {
    0: (IPV4, IPV4),
    BORN_HOST_IPV6: (IPV6, IPV4),
    STORE_HOST_IPV6: (IPV4, IPV6),
    HOST_FLAGS: (IPV6, IPV6),
}


@dataclass
class Queue:
    end_offset: int = 0
    max_physical_offset: int = -1
    tail: bytearray = field(default_factory=bytearray)


def lines_of(offsets: dict[tuple[str, int], int] | None = None) -> dict[tuple[bytes, int], Queue]:
    known = offsets or {(topic, queue_id): 0 for topic in TOPICS for queue_id in range(3)}
    return {queue_key(*key): Queue(offset) for key, offset in known.items()}


def record(
    position: int,
    queue_offset: int,
    topic: str = "A",
    queue_id: int = 0,
    body: bytes = b"hello",
    properties: bytes = b"TAGS\x01x\x02",
    sys_flag: int = 0,
    stored: int = 1_000,
    family: int = 0,
) -> bytes:
    born, store = FAMILIES[family]
    draft = MessageDraft(topic, queue_id, body, properties, born, store, sys_flag=sys_flag)
    return encode(draft, queue_offset, position, stored)


def log_of(*records: dict[str, object]) -> bytes:
    data = b""
    for number, fields in enumerate(records):
        data += record(BASE + len(data), **({"queue_offset": number} | fields))  # type: ignore[arg-type]  # fields of `record`
    return data


def parsed(
    data: bytes, family: int = 0, before: int = NEVER, crc: bool = True
) -> list[RecordHeader]:
    """What a scan over queues that all begin at 0 should pass, said by the reference decoder."""
    found: list[RecordHeader] = []
    counts: dict[tuple[str, int], int] = {}
    at = 0
    while True:
        header = parse(data, at, BASE + at, crc)
        if isinstance(header, NoRecord):
            return found
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        key = topic, queue_id
        ordinary = (
            topic in TOPICS[:3]
            and 0 <= queue_id < 3
            and header.sys_flag & HOST_FLAGS == family
            and not header.sys_flag & TRANSACTION_PREPARED
            and header.store_timestamp < before
            and counts.get(key, 0) == queue_offset
        )
        if not ordinary:
            return found
        counts[key] = queue_offset + 1
        found.append(header)
        at += header.size


def check_scan(data: bytes, family: int = 0, before: int = NEVER, crc: bool = True) -> int:
    """The fast scan passes exactly those records and gives their queues exactly those units."""
    expected = parsed(data, family, before, crc)
    lines = lines_of()
    scanned = fast_scan(data, 0, BASE, lines, family=family, before=before, crc=crc)
    assert scanned.records == len(expected)
    assert scanned.end == sum(header.size for header in expected)
    assert scanned.last == (scanned.end - expected[-1].size if expected else -1)
    units: dict[tuple[bytes, int], bytes] = {}
    at = BASE
    for header in expected:
        key = queue_key(header.topic, header.queue_id)
        unit = UNIT.pack(at, header.size, tags_code_of(header.properties))
        units[key] = units.get(key, b"") + unit
        at += header.size
    for key, line in lines.items():
        assert bytes(line.tail) == units.get(key, b"")
        assert line.end_offset == len(line.tail) // UNIT.size
        if line.tail:
            physical, size, _ = UNIT.unpack_from(line.tail, len(line.tail) - UNIT.size)
            assert line.max_physical_offset == physical + size
    return scanned.records


fields = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(TOPICS),
        "queue_id": st.integers(0, 3),
        "body": st.binary(max_size=40),
        "properties": st.sampled_from(
            (b"", b"TAGS\x01a\x02", b"K\x01v\x02TAGS\x01b", b"XTAGS\x01c\x02", b"TAGS\x01\x02")
        ),
        "sys_flag": st.sampled_from((0, 1, TRANSACTION_PREPARED, TRANSACTION_COMMIT)),
        "stored": st.integers(998, 1_002),
        "family": st.sampled_from((0, 0, 0, HOST_FLAGS, BORN_HOST_IPV6)),
    },
)


def numbered(records: list[dict[str, object]], skip: int) -> bytes:
    """Records whose queue offsets ascend by one; those of record `skip` are one too high."""
    counts: dict[tuple[object, object], int] = {}
    for number, one in enumerate(records):
        key = one.get("topic", "A"), one.get("queue_id", 0)
        one["queue_offset"] = counts.get(key, 0) + (number == skip)
        counts[key] = counts.get(key, 0) + 1
    return log_of(*records)


@given(
    records=st.lists(fields, max_size=12),
    skip=st.integers(-1, 30),
    family=st.sampled_from(sorted(FAMILIES)),
    before=st.sampled_from((NEVER, NEVER, 1_000, 1_002)),
    crc=st.booleans(),
)
def test_a_scan_passes_what_parse_finds_ordinary(
    records: list[dict[str, object]], skip: int, family: int, before: int, crc: bool
) -> None:
    check_scan(numbered(records, skip), family, before, crc)


WHOLE = log_of(
    {"properties": b"TAGS\x01a\x02KEYS\x01k\x02"},
    {"topic": "Topic-B", "queue_offset": 0, "body": b""},
    {"queue_offset": 1, "body": b"x" * 30, "properties": b""},
)


@given(at=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255), crc=st.booleans())
@example(at=84, value=0x80, crc=True)
def test_a_damaged_byte_is_seen_as_parse_sees_it(at: int, value: int, crc: bool) -> None:
    check_scan(WHOLE[:at] + bytes((value,)) + WHOLE[at + 1 :], crc=crc)


@given(seed=st.integers(0, 1 << 32), places=st.integers(1, 12), crc=st.booleans())
def test_wild_lengths_are_seen_as_parse_sees_them(seed: int, places: int, crc: bool) -> None:
    random = Random(seed)
    data = bytearray(WHOLE)
    for _ in range(places):
        at = random.choice((0, 2, 3, 84, 86, 87, 88, 93, 94, 95, 96, random.randrange(len(data))))
        data[at] = random.choice((0, 1, 2, 127, 128, 255, random.randrange(256)))
    check_scan(bytes(data), crc=crc)


@pytest.mark.parametrize("end", range(len(WHOLE) + 1))
def test_a_scan_never_reads_beyond_its_bytes(end: int) -> None:
    check_scan(WHOLE[:end])


def test_everything_ordinary_is_passed() -> None:
    assert check_scan(WHOLE) == 3


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_hosts_of_each_family_are_passed(family: int) -> None:
    assert check_scan(log_of({"family": family}, {"family": family}), family) == 2


def test_a_queue_that_is_not_known_ends_the_scan() -> None:
    scanned = fast_scan(WHOLE, 0, BASE, lines_of({("A", 0): 0}), family=0, before=NEVER, crc=True)
    assert scanned.records == 1


def test_a_topic_that_is_too_long_for_its_version_ends_the_scan() -> None:
    """Java reads its length as a negative number."""
    topic = TOPICS[-1]
    long = record(BASE, 0, topic)
    at = long.index(topic.encode()) - 2
    size, magic = (len(long) - 1).to_bytes(4, "big"), MAGIC_V1.to_bytes(4, "big")
    assert check_scan(size + magic + long[8:at] + long[at + 1 :]) == 0


def test_a_scan_can_begin_in_the_middle() -> None:
    lines = lines_of({("A", 0): 1, ("Topic-B", 0): 0})
    first = int.from_bytes(WHOLE[:4])
    scanned = fast_scan(WHOLE, first, BASE, lines, family=0, before=NEVER, crc=True)
    assert scanned.records == 2
    assert scanned.end == len(WHOLE)


@pytest.mark.parametrize(("extra", "passed"), [(0, 1), (1, 0)])
def test_properties_are_as_long_as_the_length_field_can_say(extra: int, passed: int) -> None:
    data = bytearray(log_of({"properties": b"k\x01" + b"v" * (32_767 - 2)}))
    at = len(data) - 32_767 - 2
    data += b"v" * extra
    data[:4] = len(data).to_bytes(4)
    data[at : at + 2] = (32_767 + extra).to_bytes(2)
    assert check_scan(bytes(data)) == passed


def test_a_body_of_negative_length_is_no_record() -> None:
    data = bytearray(log_of({"body": b""}))
    # The topic would begin within the head, at the store host, and all lengths add up.
    data[68:72] = b"\x01A" + (len(data) - 72).to_bytes(2)
    data[84:88] = (-20).to_bytes(4, signed=True)
    assert check_scan(bytes(data), crc=False) == 0


def test_a_scan_stops_where_the_caller_wants_to_look() -> None:
    data = log_of({"stored": 998}, {"stored": 1_000}, {"stored": 999})
    assert check_scan(data, before=1_000) == 1
