"""Options that travel with the schema of a table; the SQL of it is in test_source."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from aerobee.spark.catalog_table import given, read_later, with_options

DDL = "body string, time timestamp"
AS_TABLE = {
    "topic": "orders",
    "option.topic": "orders",
    "provider": "aerobee",
    "owner": "somebody",
}
REQUIRED = {"topic", "subscribe"}


def columns() -> pa.Schema:
    return pa.schema([("body", pa.string()), ("time", pa.timestamp("us", tz="UTC"))])


def table(options: dict[str, str]) -> StructType:
    made = with_options(DDL, columns, options)
    assert isinstance(made, StructType)
    return made


def test_only_tables_of_the_catalog_carry_options() -> None:
    assert with_options(DDL, columns, {"topic": "orders"}) == DDL
    made = table(AS_TABLE)
    assert [field.dataType for field in made.fields] == [StringType(), TimestampType()]
    assert all(field.nullable for field in made.fields)


def test_what_the_catalog_knows_besides_is_not_an_option() -> None:
    assert given(AS_TABLE) == {"topic": "orders"}
    assert given({"topic": "orders", "owner": "x"}) == {"topic": "orders", "owner": "x"}


@pytest.mark.parametrize(
    ("own", "read"),
    [
        ({}, {"topic": "orders"}),
        ({"group": "g"}, {"topic": "orders", "group": "g"}),
        ({"subscribe": "others"}, {"subscribe": "others"}),
        ({"topic": "others"}, {"topic": "others"}),
    ],
)
def test_a_read_of_a_table_has_its_options(own: dict[str, str], read: dict[str, str]) -> None:
    assert read_later(own, table(AS_TABLE), REQUIRED) == read


def test_other_schemas_bring_none() -> None:
    plain = StructType([StructField("a", IntegerType())])
    assert read_later({"group": "g"}, plain, REQUIRED) == {"group": "g"}
    assert read_later({}, StructType([]), REQUIRED) == {}
