"""Batch reads: the driver plans fixed ranges of offsets, and each task reads its own.

The driver plans (`partitions`), tasks read (`read`); partitions hold names and numbers only. Ranges
are read completely, or the read fails, or the log names what is missing. Spark keeps the plan while
the DataFrame or view of `load()` exists, so that all its actions see the same data.

There is no `pushFilters`: Spark would keep the filters of the first query with that plan and not
apply them in the others (docs/spark/options.md, Filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aerobee.spark.options import ReadOptions


class BatchReader(DataSourceReader):
    """The reader of a batch. It holds plain data only: Spark pickles it into every task."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names
        """The columns, by the names of the schema preset."""

    def partitions(self) -> list[InputPartition]:
        """Plan the ranges to read; each partition's value is a tuple of `plan.Range`.

        Raises: ConfigurationError, RouteNotFoundError for a missing topic, DataLossError, and the
        errors of brokers and connections.
        """
        from aerobee.spark.brokers import cluster_of
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.plan import partitions_of, ranges_of
        from aerobee.spark.source.positions import bounds, queues_of

        set_up()
        options = self.options
        cluster = cluster_of(options.name_servers, options.access)
        addresses = queues_of(cluster, options)
        planned = partitions_of(
            ranges_of(*bounds(cluster, list(addresses), options), addresses),
            options.min_partitions,
            options.max_records_per_partition,
        )
        return [InputPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition."""
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.task import record_batches

        set_up()
        # Spark passes an empty plan as one partition without a value.
        if partition is not None and partition.value is not None:
            yield from record_batches(partition.value, self.options, self.names)
