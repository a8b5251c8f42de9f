"""The kinds of tables that an archive can be: Parquet files, a Delta table, an Iceberg table.

Each is partitioned by `segment`, and writing some segments replaces only these. The packages that a
kind needs besides PySpark are checked before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.places import literal
from aerobee.spark.rows.columns import COLUMNS, ddl_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

SEGMENT = "segment"
"""The partition column: the physical offset at which a segment begins."""
NOT_THERE = "DATA_SOURCE_NOT_FOUND"
MICROSECONDS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""Timestamps with statistics, in a form that other readers know; Spark's default is INT96."""


class Kind(NamedTuple):
    """How one kind is written and read; `write` gets the starts of the replaced segments."""

    write: Callable[[DataFrame, str, Sequence[int]], None]
    read: Callable[[SparkSession, str, Sequence[int]], DataFrame]
    folder: Callable[[SparkSession, str], str]
    """The directory of the table's files."""
    parts: Callable[[Sequence[int]], list[str]]
    """The subdirectories of these segments; syncing them makes the rows durable."""
    is_path: bool
    """Whether a directory names the archive; otherwise the name of a table in a catalog does."""
    needs: str = ""
    """The packages that Spark must be started with."""


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
    folders = [literal(f"{path.rstrip('/')}/{name}") for name in _folders(starts)]
    # Given explicitly, so that no file is opened for it, and small logs do not get `int` columns.
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
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where("col_name = 'Location'")
    return str(rows.first()["data_type"])  # type: ignore[index]  # every table of Iceberg has one


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
"""The kinds by their names in `--format`."""


def check_kind(spark: SparkSession, kind: str) -> None:
    """Check that this Spark supports a kind of table. Raises: ConfigurationError."""
    if not KINDS[kind].needs:
        return
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        spark.read.format(kind).load("/nowhere/at/all")
    except (PySparkException, Py4JJavaError) as error:
        # Spark checks the format first, then that the path exists.
        if NOT_THERE in str(error):
            raise ConfigurationError(
                f"--format {kind}: this Spark has no such tables; start it with {KINDS[kind].needs}"
            ) from error
