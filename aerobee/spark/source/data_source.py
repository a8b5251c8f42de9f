"""The data source `format("aerobee")`: topics of a running broker as a table, a stream and a sink.

Spark builds one object per `load()` and per query, pickles it, and asks it for the reader or writer
that the query needs. Everything is checked here, so that a wrong option fails in `load()` and not
in a task. The import loads nothing heavier than Spark's own module, because Spark imports this
module in every session that uses any data source in Python.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from aerobee.errors import ConfigurationError
from aerobee.spark.catalog_table import given, read_later, with_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
    )
    from pyspark.sql.types import StructType

    from aerobee.spark.options import ReadOptions

SUBSCRIPTIONS = frozenset({"subscribe", "topic", "subscribepattern", "assign"})
"""A read of its own has one of these among its options."""
TABLE_WRITE = (
    "options: Spark hands the options of a table in its catalog to reads only. Write with "
    'df.write.format("aerobee").option(…), INSERT INTO a temporary view, or name them in the '
    "statement: INSERT INTO t WITH (nameServer '…', topic '…') SELECT …"
)
TABLE_WITH_COLUMNS = (
    "options: there are none. Of a table that was made with a list of columns Spark keeps the "
    "columns only: DROP it and say CREATE TABLE t USING aerobee OPTIONS (nameServer '…', topic "
    "'…', columns 'body,keys') without one, or name the options in the query: SELECT … FROM t "
    "WITH (nameServer '…', topic '…')"
)


class AerobeeSource(DataSource):
    """The data source; docs/spark/options.md describes its options and columns."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "aerobee"

    def schema(self) -> str | StructType:
        """The columns that the options choose. Raises: ConfigurationError for any wrong option."""
        from aerobee.spark.rows.columns import arrow_schema, chosen, ddl_of

        options = self._read_options()
        names, preset = chosen(options.columns, options.schema_preset), options.schema_preset
        columns = partial(arrow_schema, names, preset)
        return with_options(ddl_of(names, preset), columns, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises: ConfigurationError for a wrong option or column."""
        from aerobee.spark.options import read_options
        from aerobee.spark.source.batch_reader import BatchReader

        options = read_options(self._of_table(schema), stream=False)
        return BatchReader(options, _names(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        """The reader of a stream. Raises: ConfigurationError for a wrong option or column."""
        from aerobee.spark.options import read_options
        from aerobee.spark.source.stream_reader import StreamReader

        options = read_options(self._of_table(schema), stream=True)
        return StreamReader(options, _names(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a batch. Raises: ConfigurationError for a wrong option, column or mode."""
        from aerobee.spark.sink.writer import batch_writer

        if not self.options:
            raise ConfigurationError(TABLE_WRITE)
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802  (Spark's)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The sink of a stream. Raises: ConfigurationError for a wrong option, column or mode."""
        from aerobee.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _of_table(self, schema: StructType) -> dict[str, str]:
        """The options of a read. Raises: ConfigurationError for a table that has lost them."""
        parsed = read_later(self.options, schema, SUBSCRIPTIONS)
        if not parsed:
            raise ConfigurationError(TABLE_WITH_COLUMNS)
        return parsed

    def _read_options(self) -> ReadOptions:
        """Parse the options of either kind of read: Spark does not say yet which one it will be."""
        from aerobee.spark.options import read_options

        own = given(self.options)
        try:
            return read_options(own, stream=False)
        except ConfigurationError as error:
            try:
                return read_options(own, stream=True)
            except ConfigurationError:
                raise error from None


def _names(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The names of the columns in a schema from Spark or from the user."""
    from aerobee.spark.rows.columns import accepted, fields_of

    return accepted(fields_of(schema), options.schema_preset)
