"""The lag of a stream, out of what Spark tells of its progress."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from aerobee.spark.stream_lag import lag_of

START = {"orders": {"b": {"0": 5, "1": 0}}}
END = {"orders": {"b": {"0": 10, "1": 20}}}
LATEST = {"orders": {"b": {"0": 10, "1": 25}}, "new": {"b": {"0": 3}}}


def test_what_waits_is_counted_by_topic() -> None:
    told = {"sources": [{"startOffset": START, "endOffset": END, "latestOffset": LATEST}]}
    assert lag_of(told) == {"orders": 5, "new": 3}
    assert lag_of(SimpleNamespace(json=json.dumps(told))) == {"orders": 5, "new": 3}


def test_the_first_batch_and_texts_are_understood() -> None:
    end = json.dumps(END | {"@start": START})
    told = {
        "sources": [{"startOffset": None, "endOffset": end, "latestOffset": json.dumps(LATEST)}]
    }
    assert lag_of(told) == {"orders": 5, "new": 3}


def test_nothing_is_known_where_spark_does_not_ask() -> None:
    assert lag_of({"sources": [{"endOffset": END, "latestOffset": None}]}) == {}
    assert lag_of({}) == {}
    for absent in ("", "null", "None", "-", "[]"):
        assert lag_of({"sources": [{"endOffset": END, "latestOffset": absent}]}) == {}


@pytest.mark.parametrize(
    "other",
    [{"topic": {"0": 3}}, {"sourceVersion": 1, "index": -1}, {"logOffset": 2}, 7],
    ids=["kafka", "delta", "files", "rate"],
)
def test_other_sources_of_the_query_do_not_count(other: object) -> None:
    ours = {"startOffset": START, "endOffset": END, "latestOffset": LATEST}
    theirs = {"startOffset": other, "endOffset": other, "latestOffset": other}
    assert lag_of({"sources": [theirs, ours]}) == {"orders": 5, "new": 3}
