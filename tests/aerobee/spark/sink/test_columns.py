"""A table that cannot be sent is refused before anything is, with words that say what to change."""

from typing import Any

import pyarrow as pa
import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.rows.columns import arrow_schema, chosen
from aerobee.spark.sink.columns import WRITABLE, places
from aerobee.spark.sink.columns import arrow_schema as sent_schema

BODY = {"body": pa.binary()}


def test_names_are_found_in_any_case_and_under_their_alias() -> None:
    schema = pa.schema({"VALUE": pa.string(), "Topic": pa.string(), "SHARDINGKEY": pa.string()})
    assert places(schema, topic=None) == {"body": 0, "topic": 1, "shardingKey": 2}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"topic": pa.string()}, "needs a column body .*; there are: topic"),
        (BODY | {"tag": pa.string()}, r"column tag cannot be sent \(is tags meant\?\)"),
        (BODY | {"proprties": pa.string()}, r"is properties meant\?"),
        (BODY | {"storeTimestamp": pa.timestamp("us", "UTC")}, r"\.drop\('storeTimestamp'\)"),
        (BODY | {"queueOffset": pa.int64()}, "brokers give it.* the option columns=topic,queueId"),
        (BODY | {"value": pa.string()}, "columns body and value both say the body"),
        (BODY | {"deliverTime": pa.timestamp("us")}, "deliverTime is timestamp.* time zone"),
        (BODY | {"queueId": pa.string()}, "column queueId is string, but queueId is int: cast it"),
        (BODY | {"keys": pa.list_(pa.int32())}, r"string or array<string>"),
        (BODY | {"properties": pa.string()}, "map<string,string>"),
        ({"body": pa.int32()}, "column body is int32, but body is binary or string"),
        ({"body": pa.null()}, "column body is null"),
    ],
)
def test_what_cannot_be_sent_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        places(pa.schema(columns), topic="T")


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigurationError, match="option topic or a column topic"):
        places(pa.schema(BODY), topic=None)


def test_order_by_may_name_a_column_of_its_own_or_one_of_the_sink() -> None:
    schema = pa.schema(BODY | {"customer": pa.int64(), "keys": pa.string()})
    assert places(schema, topic="T", order_by="Customer")["shardingKey"] == 1
    schema = pa.schema(BODY | {"keys": pa.string()})
    assert places(schema, topic="T", order_by="keys") == {"body": 0, "keys": 1, "shardingKey": 1}


def test_order_by_needs_a_column_that_is_a_text_or_a_number() -> None:
    with pytest.raises(ConfigurationError, match="orderBy: there is no column customer"):
        places(pa.schema(BODY), topic="T", order_by="customer")
    with pytest.raises(ConfigurationError, match="orderBy: column at is timestamp"):
        places(pa.schema(BODY | {"at": pa.timestamp("us", "UTC")}), topic="T", order_by="at")


def test_the_columns_that_an_error_names_are_those_of_a_read_that_a_write_takes() -> None:
    schema = arrow_schema(chosen(WRITABLE))
    assert sorted(places(schema, topic=None)) == sorted(WRITABLE.split(","))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("keys", r"column keys is array<int>, but keys is string or array<string>: cast it"),
        ("Value", r"column Value is array<int>, but body is binary or string: cast it"),
        ("other", r"column other is array<int>: no column of a message is"),
    ],
)
def test_a_type_that_no_column_has_is_refused_with_the_one_to_cast_to(
    name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        sent_schema([(name, "array<int>")])
