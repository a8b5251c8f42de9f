"""The record of a group changes only as it may, and what the decider has is checked."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.failover.record import (
    RECORD_BYTES_MAX,
    Record,
    RecordIllegal,
    decode_record,
    elected,
    elected_unclean,
    encode_record,
    first_record,
    given_back,
    with_set,
)

RECORD = Record(epoch=3, master=2, sync_set=(1, 2, 3), set_epoch=9, lease="a")


@st.composite
def records(draw: st.DrawFn) -> Record:
    members = tuple(sorted(draw(st.sets(st.integers(1, 9), min_size=1))))
    epoch = draw(st.integers(1, 1_000))
    return Record(
        epoch=epoch,
        master=draw(st.sampled_from(members)),
        sync_set=members,
        set_epoch=epoch + draw(st.integers(0, 1_000)),
        lease=draw(st.sampled_from(["", "a"])),
        unclean_epoch=draw(st.integers(0, epoch)),
    )


def test_the_first_record_has_its_master_alone() -> None:
    assert encode_record(first_record(7, "12")) == (
        b'{"epoch":1,"master":7,"syncSet":[7],"setEpoch":1,"lease":"12","uncleanEpoch":0,"address":"","haAddress":"","heir":0}'
    )


@given(records())
def test_a_record_survives_the_decider(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(records(), st.data())
def test_every_change_is_a_legal_record_and_counts_on(record: Record, data: st.DataObject) -> None:
    master = data.draw(st.sampled_from(record.sync_set))
    changes = [
        elected(record, master, "b", 2),
        elected_unclean(record, 99, "b"),
        with_set(record, [record.master, 4]),
        given_back(record),
    ]
    for change in changes:
        assert change.set_epoch == record.set_epoch + 1
        assert change.epoch - record.epoch == (
            change.master != record.master or change.lease == "b"
        )


def test_a_master_whose_lease_ran_out_leaves_the_set() -> None:
    assert elected(RECORD, 3, "b", 2).sync_set == (1, 3)


def test_it_stays_where_too_few_would_remain_to_acknowledge() -> None:
    assert elected(RECORD, 3, "b", 3).sync_set == (1, 2, 3)


def test_a_master_that_gave_its_lease_back_stays_in_the_set_if_it_has_an_heir() -> None:
    assert elected(given_back(RECORD, 3), 3, "b", 2).sync_set == (1, 2, 3)
    assert elected(given_back(RECORD), 3, "b", 2).sync_set == (1, 3)


def test_a_master_that_is_elected_again_stays_in_the_set() -> None:
    assert elected(RECORD, 2, "b", 2).sync_set == (1, 2, 3)


def test_an_unclean_election_is_kept_in_the_record() -> None:
    record = elected_unclean(RECORD, 5, "b")
    assert (record.sync_set, record.unclean_epoch) == ((5,), 4)
    assert elected(record, 5, "c", 1).unclean_epoch == 4


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("epoch", 0, "epoch is 0"),
        ("epoch", 1 << 31, "epoch is 2147483648"),
        ("epoch", "3", "Expected `int`"),
        ("master", 4, "not in its sync set"),
        ("syncSet", [], "has 0 members"),
        ("syncSet", list(range(1, 66)), "has 65 members"),
        ("syncSet", [0, 2], "not positive"),
        ("syncSet", [2, 2], "not in order"),
        ("syncSet", [3, 2], "not in order"),
        ("setEpoch", 2, "below epoch"),
        ("uncleanEpoch", 4, "not one of its epochs"),
    ],
)
def test_a_record_that_no_member_wrote_is_refused(field: str, value: Any, said: str) -> None:
    fields = msgspec.json.decode(encode_record(RECORD)) | {field: value}
    with pytest.raises(RecordIllegal, match=said):
        decode_record(msgspec.json.encode(fields))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    with pytest.raises(RecordIllegal):
        decode_record(data)


def test_a_record_is_bounded() -> None:
    with pytest.raises(RecordIllegal, match=str(RECORD_BYTES_MAX)):
        decode_record(b" " * (RECORD_BYTES_MAX + 1))


def test_a_record_that_is_nested_without_end_is_refused() -> None:
    # Python 3.14 has room for it, and misses the ends.
    with pytest.raises(RecordIllegal, match=r"recursion|truncated"):
        decode_record(b'{"x":' + b"[" * 12_000)
