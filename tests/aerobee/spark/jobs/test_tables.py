"""Tables by segment: writing some replaces these and no others; what is not installed is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.tables import KINDS, SEGMENT, check_kind

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
GiB = 1 << 30


def test_writing_segments_replaces_just_these(spark: SparkSession, tmp_path: Path) -> None:
    kind, path = KINDS["parquet"], str(tmp_path / "t")

    def write(rows: list[tuple[int, str]], starts: list[int]) -> None:
        kind.write(spark.createDataFrame(rows, f"{SEGMENT} bigint, topic string"), path, starts)

    def read(*starts: int) -> list[tuple[int, str]]:
        rows = kind.read(spark, path, starts)
        assert rows.schema[SEGMENT].dataType.simpleString() == "bigint"
        return sorted((row[SEGMENT], row["topic"]) for row in rows.collect())

    check_kind(spark, "parquet")
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    write([(0, "a"), (GiB, "b"), (9 * GiB, "c")], [0, GiB, 9 * GiB])
    write([(GiB, "b2"), (GiB, "b3")], [GiB])
    assert read(0, GiB, 9 * GiB) == [(0, "a"), (GiB, "b2"), (GiB, "b3"), (9 * GiB, "c")]
    assert read(0) == [(0, "a")], "a small number is as wide as a large one"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_kind_that_this_spark_does_not_know_is_refused_with_what_it_needs(
    spark: SparkSession, kind: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"--format {kind}: .* --packages .*{kind}"):
        check_kind(spark, kind)
