"""What Spark's Kafka source reads, and our preset of its name, can be written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.rows.columns import PRESETS
from aerobee.spark.rows.decode import Decoder
from aerobee.spark.sink.columns import arrow_schema, places
from aerobee.spark.sink.kafka import KafkaConversion
from tests.aerobee.spark.rows.test_decode import log_of

KAFKA = arrow_schema(
    [
        *(("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int")),
        *(("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int")),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
)


def written(rows: list[dict[str, Any]], schema: Any = KAFKA) -> list[dict[str, Any]]:
    made = KafkaConversion(schema)
    batch = made.batch(pa.RecordBatch.from_pylist(rows, schema))
    assert batch.schema == made.schema
    places(made.schema, topic=None)
    found: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return found


def header(name: str, value: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": value}


def test_a_row_of_kafka_becomes_a_message() -> None:
    row: dict[str, Any] = {
        "key": b"k1 k2",
        "value": b"body",
        "topic": "orders",
        "partition": 3,
        "offset": 9,
    }
    headers = [
        *(header("colour", b"blue"), header("TAGS", b"EU"), header("UNIQ_KEY", b"0A")),
        *(header("AB_SINK", b"s:1:2:3"), header("nothing", None), header("DELAY", b"3")),
    ]
    rows = [row | {"headers": headers}, {"value": b"", "topic": "t"}, row | {"headers": []}]
    assert written(rows) == [
        {
            "keys": "k1 k2",
            "body": b"body",
            "topic": "orders",
            "queueId": 3,
            "properties": {"colour": "blue"},
            "tags": "EU",
        },
        {"keys": None, "body": b"", "topic": "t", "queueId": None, "properties": {}, "tags": None},
        {
            "keys": "k1 k2",
            "body": b"body",
            "topic": "orders",
            "queueId": 3,
            "properties": {},
            "tags": None,
        },
    ]


def test_what_the_preset_reads_is_taken() -> None:
    log = log_of({"named": b"TAGS\x01t\x02KEYS\x01k\x02colour\x01blue\x02", "body": b"x"})
    names = tuple(PRESETS["kafka"])
    [batch] = Decoder(names, preset="kafka").batches(log)
    [row] = KafkaConversion(batch.schema).batch(batch).to_pylist(maps_as_pydicts="strict")
    assert (row["keys"], row["tags"], row["properties"]) == ("k", "t", {"colour": "blue"})


def test_other_tables_stay_as_they_are() -> None:
    for kinds in (
        {"body": "binary", "key": "string"},
        {"value": "string", "keys": "array<string>"},
    ):
        schema = arrow_schema(kinds.items())
        batch = pa.RecordBatch.from_pylist([], schema)
        made = KafkaConversion(schema)
        assert made.schema is schema
        assert made.batch(batch) is batch
        assert made.name_of("key") == "key"


def test_the_column_that_orders_is_found_under_its_new_name() -> None:
    assert KafkaConversion(KAFKA).name_of("Key") == "keys"
    assert KafkaConversion(KAFKA).name_of(None) is None


@pytest.mark.parametrize("row", [{"key": b"\xff"}, {"headers": [header("a", b"\xff")]}])
def test_bytes_that_are_no_text_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        written([row])
