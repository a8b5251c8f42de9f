"""The data source `format("aerobee.lag")`: the lag of consumer groups as a table, batch reads only.

A row is a queue of a group, with the offsets of its broker. One task queries all brokers, so that
all rows of an action have the same `snapshotTime`, and queries them when it runs: Spark keeps the
plan of a DataFrame for its later actions, so the plan has no offsets. The import loads nothing
heavier than Spark's own module.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aerobee.errors import ConfigurationError
from aerobee.spark.catalog_table import given, read_later, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from aerobee.spark.options import LagOptions

REQUIRED = frozenset({"nameserver", "bootstrap", "groups", "topics"})
"""A read of its own has one of these among its options."""


class LagSource(DataSource):
    """The data source; docs/spark/options.md describes its options and columns."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "aerobee.lag"

    def schema(self) -> str | StructType:
        """The schema with every column. Raises: ConfigurationError for a wrong option."""
        from aerobee.spark.lag.read import COLUMNS, arrow_schema
        from aerobee.spark.options import lag_options
        from aerobee.spark.rows.columns import ddl

        lag_options(given(self.options))
        columns = ddl({f"`{name}`": kind for name, kind in COLUMNS.items()})
        return with_options(columns, partial(arrow_schema, tuple(COLUMNS)), self.options)

    def reader(self, schema: StructType) -> LagReader:
        """The reader of these columns. Raises: ConfigurationError for a wrong option or column."""
        from aerobee.spark.lag.read import COLUMNS
        from aerobee.spark.options import lag_options
        from aerobee.spark.rows.columns import fields_of

        kinds = fields_of(schema)
        for name, kind in kinds.items():
            if COLUMNS.get(name) != kind:
                known = ", ".join(f"{column} {COLUMNS[column]}" for column in COLUMNS)
                raise ConfigurationError(f"schema: no column {name} {kind} here; known: {known}")
        options = lag_options(read_later(self.options, schema, REQUIRED))
        return LagReader(options, tuple(kinds))


class LagReader(DataSourceReader):
    """The reader of a batch. It holds plain data only: Spark pickles it into every task."""

    def __init__(self, options: LagOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for all brokers. Raises: AerobeeError, also for unknown names."""
        from aerobee.spark.lag.read import check

        check(self.options)
        return [InputPartition(0)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the current rows of all brokers. Raises: AerobeeError."""
        from aerobee.spark.lag.read import read

        yield read(self.options, self.names)
