"""The kinds of tables an archive can be: Parquet files, a Delta table, an Iceberg table.

Each is partitioned by `segment`, and writing some segments replaces just these. What a kind needs
besides PySpark is asked for before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import ConfigurationError
from aerobee.spark.rows.columns import COLUMNS, ddl_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KINDS", "SEGMENT", "Kind", "check_kind"]

SEGMENT = "segment"
"""The column of the partitions: the first byte of the log that the segment holds."""
NOT_THERE = "DATA_SOURCE_NOT_FOUND"
MICROSECONDS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""Times as numbers that have statistics and that other readers know; Spark's own way is INT96."""


class Kind(NamedTuple):
    """How one kind is written and read; `write` gets the starts of the segments it replaces."""

    write: Callable[[DataFrame, str, Sequence[int]], None]
    read: Callable[[SparkSession, str, Sequence[int]], DataFrame]
    folder: Callable[[SparkSession, str], str]
    """Where the files of the table are."""
    parts: Callable[[Sequence[int]], list[str]]
    """What of that holds these segments; a table is as durable as these parts are."""
    is_path: bool
    """Whether the archive is named by a directory; else by the name of a table in a catalog."""
    needs: str = ""
    """What to start Spark with."""


def _write_parquet(rows: DataFrame, path: str, starts: Sequence[int]) -> None:
    settings = rows.sparkSession.conf
    before = settings.get(MICROSECONDS[0])
    settings.set(*MICROSECONDS)
    try:
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(SEGMENT).parquet(path)
    finally:
        settings.set(MICROSECONDS[0], str(before))


def _read_parquet(spark: SparkSession, path: str, starts: Sequence[int]) -> DataFrame:
    folders = [f"{path.rstrip('/')}/{name}" for name in _folders(starts)]
    # Said beforehand, so that no file is opened for it; the numbers of small logs would be `int`.
    schema = f"{ddl_of(COLUMNS)}, {SEGMENT} bigint"
    return spark.read.schema(schema).option("basePath", path).parquet(*folders)


def _write_delta(rows: DataFrame, path: str, starts: Sequence[int]) -> None:
    writer = rows.write.format("delta").mode("overwrite").partitionBy(SEGMENT)
    writer.option("replaceWhere", _chosen(starts)).save(path)


def _read_delta(spark: SparkSession, path: str, starts: Sequence[int]) -> DataFrame:
    return spark.read.format("delta").load(path).where(_chosen(starts))


def _write_iceberg(rows: DataFrame, table: str, starts: Sequence[int]) -> None:
    writer = rows.sortWithinPartitions(SEGMENT).writeTo(table)
    if rows.sparkSession.catalog.tableExists(table):
        writer.overwritePartitions()
    else:
        writer.using("iceberg").partitionedBy(rows[SEGMENT]).create()


def _read_iceberg(spark: SparkSession, table: str, starts: Sequence[int]) -> DataFrame:
    return spark.table(table).where(_chosen(starts))


def _location(spark: SparkSession, table: str) -> str:
    told = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where("col_name = 'Location'")
    return str(told.first()["data_type"])  # type: ignore[index]  # every table of Iceberg has one


def _folders(starts: Sequence[int]) -> list[str]:
    return [f"{SEGMENT}={start}" for start in starts]


def _itself(spark: SparkSession, path: str) -> str:
    return path


def _chosen(starts: Sequence[int]) -> str:
    return f"{SEGMENT} IN ({', '.join(map(str, starts))})"


KINDS = {
    "parquet": Kind(_write_parquet, _read_parquet, _itself, _folders, is_path=True),
    "delta": Kind(
        _write_delta,
        _read_delta,
        _itself,
        lambda starts: [*_folders(starts), "_delta_log"],
        is_path=True,
        needs="--packages io.delta:delta-spark_SPARK_2.13:VERSION (SPARK is its version, such as "
        "4.1) and the two settings of Delta (spark.sql.extensions, "
        "spark.sql.catalog.spark_catalog)",
    ),
    "iceberg": Kind(
        _write_iceberg,
        _read_iceberg,
        _location,
        lambda starts: [*(f"data/{name}" for name in _folders(starts)), "metadata"],
        is_path=False,
        needs="--packages org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION (SPARK is "
        "its version, such as 4.1) and a catalog (spark.sql.catalog.NAME)",
    ),
}
"""By what `--format` says."""


def check_kind(spark: SparkSession, kind: str) -> None:
    """See that this Spark knows that kind of table. Raises: ConfigurationError."""
    if not KINDS[kind].needs:
        return
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        spark.read.format(kind).load("/nowhere/at/all")
    except (PySparkException, Py4JJavaError) as error:
        # That the path is not there comes after the format is known.
        if NOT_THERE in str(error):
            raise ConfigurationError(
                f"--format {kind}: this Spark has no such tables; start it with {KINDS[kind].needs}"
            ) from error
