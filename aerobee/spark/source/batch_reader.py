"""A batch read: fixed ranges of offsets when it is planned, each task reads its own.

The driver plans (`partitions`), tasks read (`read`); between them go names and numbers only. What
is planned is read exactly, or the read fails, or the log says what is missing. Spark keeps the plan
for as long as the DataFrame or view that `load()` gave, so that its actions all see the same.

There is no `pushFilters`: Spark keeps the filters of the first query with that plan and leaves them
out of the others (docs/spark/options.md, Filters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aerobee.spark.options import ReadOptions

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """Plain data only: Spark pickles it into every task."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names
        """The columns, as the schema preset calls them."""

    def partitions(self) -> list[InputPartition]:
        """The ranges to read; each partition's value is a tuple of `plan.Range`.

        Raises: ConfigurationError, RouteNotFoundError for a missing topic, DataLossError, and the
        errors of brokers and connections.
        """
        from aerobee.spark.brokers import cluster_of
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.bounds import bounds
        from aerobee.spark.source.plan import partitions_of, ranges_of
        from aerobee.spark.source.positions import queues_of

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
        """The messages of one partition."""
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.task import record_batches

        set_up()
        # An empty plan comes as one partition without a value.
        if partition is not None and partition.value is not None:
            yield from record_batches(partition.value, self.options, self.names)
