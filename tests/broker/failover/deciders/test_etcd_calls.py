"""Bodies for etcd, and what its answers mean; whatever else comes is an error of ours."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.failover.decider import Sight
from aerobee.broker.failover.deciders.etcd_calls import (
    AnswerIllegal,
    Keys,
    failure,
    granted,
    has_news,
    parsed,
    renewed,
)
from aerobee.broker.failover.record import RecordIllegal, encode_record, first_record

KEYS = Keys("/aerobee/", "a/b", "broker-a")
RECORD = first_record(1, "7")
HEADER = {"header": {"revision": "9"}}
PAIR = {
    "key": KEYS.record,
    "mod_revision": "8",
    "value": base64.b64encode(encode_record(RECORD)).decode(),
}


def test_groups_share_no_key() -> None:
    assert KEYS.place == "/aerobee/a%2Fb/broker-a/"
    assert base64.b64decode(KEYS.looking()["range_end"]) == b"/aerobee/a%2Fb/broker-a0"


def test_a_range_is_a_sight() -> None:
    assert KEYS.sight(HEADER) == Sight(None, 0, held=False, moment=9)
    assert KEYS.sight({**HEADER, "kvs": [PAIR]}) == Sight(RECORD, 8, held=False, moment=9)
    pairs = [{"key": KEYS.holder}, PAIR, {"key": "other"}]
    assert KEYS.sight({**HEADER, "kvs": pairs}).held


def test_a_change_that_was_refused_may_have_been_made_before() -> None:
    found = {**HEADER, "responses": [{"response_range": {"kvs": [PAIR]}}]}
    assert KEYS.exchanged(found, RECORD) == Sight(RECORD, 8, held=False, moment=9)
    assert KEYS.exchanged(found, first_record(2, "8")) is None
    assert KEYS.exchanged({**HEADER, "succeeded": True}, RECORD) == Sight(RECORD, 9, True, 9)


def test_a_record_of_somebody_else_is_refused() -> None:
    for value in ["e30=", "x", 7, None]:
        with pytest.raises(RecordIllegal):
            KEYS.sight({**HEADER, "kvs": [PAIR | {"value": value}]})


def test_a_lease_without_time_left_is_over() -> None:
    assert renewed({"result": {"ID": "7", "TTL": "10"}})
    assert not renewed({"result": {"ID": "7"}})


@pytest.mark.parametrize("number", [b"1e400", b"1e300", b"1.5", b"null", b'"1e400"', b"[]"])
def test_a_renewal_with_a_time_that_etcd_does_not_give_is_none(number: bytes) -> None:
    with pytest.raises(AnswerIllegal):
        renewed(parsed(b'{"result": {"TTL": %s}}' % number))


def test_only_events_are_news_and_a_watch_that_is_over_tells_none() -> None:
    assert not has_news({"result": {"created": True}})
    assert has_news({"result": {"events": [{}]}})
    lines: list[object] = [{"result": {"created": True, "canceled": True}}, {"error": {}}]
    for line in lines:
        with pytest.raises(AnswerIllegal, match="over"):
            has_news(line)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["header", "revision", "kvs", "responses", "response_range", "result"])
            | st.sampled_from(["ID", "TTL", "key", "value", "code", "message", "mod_revision"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_answer_is_read_or_refused(answer: Any) -> None:
    for read in (KEYS.sight, granted, renewed, has_news, failure):
        try:
            read(answer)
        except (AnswerIllegal, RecordIllegal):
            continue
    try:
        KEYS.exchanged(answer, RECORD)
    except (AnswerIllegal, RecordIllegal):
        return


@given(st.binary(max_size=50))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        parsed(data)
    except AnswerIllegal:
        return
