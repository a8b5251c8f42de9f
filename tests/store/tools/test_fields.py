import pytest

from aerobee.store.format import properties
from aerobee.store.format.record import HEAD, encode
from aerobee.store.tools.fields import FieldCheck
from aerobee.store.tools.findings import Findings
from tests.kit.records import header_of
from tests.kit.store_model import draft

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
SYSTEM = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


def looked_at(*records: bytes) -> Findings:
    """What was found in records that follow each other; their numbers are their places."""
    findings = Findings()
    check = FieldCheck(findings)
    for number, data in enumerate(records):
        check.look(memoryview(data), 0, number, header_of(data, 0, 0))
    return findings


def judged(*records: bytes) -> set[int]:
    """The numbers of those that are damaged, for records that follow each other."""
    findings = looked_at(*records)
    assert not findings.notes
    return {one.physical_offset or 0 for one in findings.damage}


def doubted(*records: bytes) -> set[int]:
    """The numbers of those that look odd and may have been sent so."""
    findings = looked_at(*records)
    assert not findings.damage
    return {one.physical_offset or 0 for one in findings.notes}


def record(stored: int = NOW_MS, **named: str) -> bytes:
    encoded = properties.encode(SYSTEM | named).encode()
    message = draft("T", 0, b"body", encoded)
    message.born_timestamp = stored
    return encode(message, 0, 0, stored)


def with_field(name: str, value: bytes) -> bytes:
    data = bytearray(record())
    at = HEAD.offset[name]
    data[at : at + len(value)] = value
    return bytes(data)


def test_what_brokers_write_is_sound() -> None:
    plain = [record(NOW_MS + n, UNIQ_KEY=f"{n}", KEYS="a b", WAIT="false") for n in range(5)]
    assert not judged(*plain)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("born_host", b"\x7f\0\0\1\0\1\0\0"),
        ("store_host", b"\x7f\0\0\1\x80\0\0\0"),
        ("prepared_transaction_offset", (7).to_bytes(8, "big")),
    ],
)
def test_a_field_of_the_broker_that_cannot_be_is_damaged(name: str, value: bytes) -> None:
    assert judged(record(), with_field(name, value)) == {1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reconsume_times", b"\xff\xff\xff\xff"),
        ("born_timestamp", b"\x80" + bytes(7)),
        ("sys_flag", b"\0\1\0\0"),
    ],
)
def test_a_field_of_a_client_that_no_library_sends_is_doubted(name: str, value: bytes) -> None:
    assert doubted(record(), with_field(name, value)) == {1}


def test_a_store_time_hours_away_from_its_neighbours_is_found() -> None:
    late, early = record(NOW_MS + 5 * HOUR_MS), record(NOW_MS - 5 * HOUR_MS)
    assert judged(record(), late, record(NOW_MS + 1), record(NOW_MS + 2)) == {1}
    assert judged(record(), record(), early, record(NOW_MS + 1)) == {2}


def test_a_clock_that_was_set_is_no_damage() -> None:
    """An hour ahead, five hours back for good, and a little to and fro."""
    assert not judged(record(), record(NOW_MS + HOUR_MS), record(NOW_MS + 1), record(NOW_MS + 2))
    back = [record(NOW_MS - 5 * HOUR_MS + n) for n in range(3)]
    assert not judged(record(), record(NOW_MS + 1), *back)


def test_a_property_one_bit_away_from_what_brokers_write_is_doubted() -> None:
    sound = record()
    for place in range(len(sound) - len(properties.encode(SYSTEM)), len(sound)):
        data = bytearray(sound)
        data[place] ^= 4
        assert 1 in doubted(sound, bytes(data), sound), place


def test_properties_of_users_may_be_anything() -> None:
    assert not judged(record(), record(a="1"), record(a="0"), record(TRACE_OM_X="\x7f"))
