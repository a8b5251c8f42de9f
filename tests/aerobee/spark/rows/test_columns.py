"""Names and types of the columns, in both schemas, and what a user may choose."""

import subprocess
import sys
from inspect import signature

import pyarrow as pa
import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.rows import columns
from aerobee.spark.rows.columns import (
    COLUMNS,
    DEFAULT,
    PRESETS,
    accepted,
    arrow_schema,
    chosen,
    ddl_of,
    fields_of,
)


def test_the_default_set_is_the_first_ten_columns() -> None:
    assert chosen(None) == DEFAULT == tuple(COLUMNS)[:10]
    assert chosen(" ") == DEFAULT
    assert DEFAULT[-1] == "properties"


def test_a_choice_keeps_its_order() -> None:
    assert chosen("body, topic ,queueId") == ("body", "topic", "queueId")
    assert ddl_of(("body", "topic")) == "body binary, topic string"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("topc", "no column 'topc'; did you mean 'topic'"),
        ("queueid", "did you mean 'queueId'"),
        ("topic,,body", "no column ''"),
        ("body,body", "'body' is named twice"),
        ("zzz", "no column 'zzz' Known: topic, brokerName"),
    ],
)
def test_a_wrong_choice_is_named(option: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option columns: ") as caught:
        chosen(option)
    assert message in str(caught.value)


def test_times_are_microseconds_utc_and_everything_may_be_null() -> None:
    schema = arrow_schema(COLUMNS)
    assert schema.field("storeTimestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert schema.field("bodyCRC").type == pa.int32()
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("preset", ["aerobee", *PRESETS])
def test_spark_derives_the_same_arrow_schema(preset: str) -> None:
    sql = pytest.importorskip("pyspark.sql.types")
    arrow = pytest.importorskip("pyspark.sql.pandas.types")
    names = tuple(COLUMNS) if preset == "aerobee" else chosen(None, preset)
    fields = []
    for field in arrow_schema(names, preset):
        spark_type = arrow.from_arrow_type(field.type)
        told = ddl_of([field.name], preset).partition(" ")[2]
        assert spark_type.simpleString() == told.removesuffix("_ltz")
        fields.append(sql.StructField(field.name, spark_type))
    zoned = "timezone" in signature(arrow.to_arrow_schema).parameters
    derived = arrow.to_arrow_schema(sql.StructType(fields), **{"timezone": "UTC"} if zoned else {})
    assert derived.equals(arrow_schema(names, preset))


def test_a_users_schema_may_be_any_part_in_any_order() -> None:
    given = {"properties": "map<string,string>", "topic": "string"}
    assert accepted(given) == ("properties", "topic")
    with pytest.raises(ConfigurationError, match="'body' is binary, not string"):
        accepted({"body": "string"})
    with pytest.raises(ConfigurationError, match=r"^schema: no column 'offset'"):
        accepted({"offset": "bigint"})
    assert accepted({"offset": "bigint"}, "kafka") == ("offset",)


def test_a_users_schema_names_each_column_once_and_asks_for_no_promise() -> None:
    sql = pytest.importorskip("pyspark.sql.types")
    body, topic = sql.StructField("body", sql.BinaryType()), sql.StructField("t", sql.StringType())
    assert fields_of(sql.StructType([body, topic])) == {"body": "binary", "t": "string"}
    with pytest.raises(ConfigurationError, match=r"^schema: 'body' is named twice"):
        fields_of(sql.StructType([body, topic, body]))
    with pytest.raises(ConfigurationError, match="'body' must not be NOT NULL"):
        fields_of(sql.StructType([sql.StructField("body", sql.BinaryType(), nullable=False)]))


def test_presets_name_columns_that_exist() -> None:
    for preset, names in PRESETS.items():
        assert set(names.values()) <= set(COLUMNS)
        assert columns.sources_of(chosen(None, preset), preset) == tuple(names.values())
    with pytest.raises(ConfigurationError, match="schemaPreset: 'kafca' is not one of aerobee"):
        chosen(None, "kafca")


def test_naming_columns_loads_neither_pyarrow_nor_pyspark() -> None:
    code = (
        "import sys, aerobee.spark.rows.columns as c; c.ddl_of(c.chosen(None));"
        "print([m for m in ('pyarrow', 'pyspark', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
