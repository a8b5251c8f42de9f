"""A batch read: fixed ranges of offsets when it is planned, each task reads its own.

The driver plans (`partitions`), tasks read (`read`); between them go names and numbers only. What
is planned is read exactly, or the read fails, or the log says what is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from aerobee.spark.columns import sources_of
from aerobee.spark.pushdown import EVERYTHING, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.offsets import Offsets
    from aerobee.spark.options import ReadOptions

__all__ = ["BatchReader", "PushingReader"]


class BatchReader(DataSourceReader):
    """Plain data only: Spark pickles it into every task."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names
        """The columns, as the schema preset calls them."""
        self.narrowed = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """The ranges to read; each partition's value is a tuple of `plan.Range`.

        Raises: ConfigurationError, RouteNotFoundError for a missing topic, DataLossError, and the
        errors of brokers and connections.
        """
        from aerobee.spark.bounds import bounds
        from aerobee.spark.brokers import cluster_of
        from aerobee.spark.plan import partitions_of, ranges_of
        from aerobee.spark.positions import queues_of

        options = self.options
        cluster = cluster_of(options.name_servers)
        addresses = queues_of(cluster, options)
        start, end = self._shortened(cluster, *bounds(cluster, list(addresses), options))
        planned = partitions_of(
            ranges_of(start, end, addresses),
            options.min_partitions,
            options.max_records_per_partition,
        )
        return [InputPartition(ranges) for ranges in planned]

    def _shortened(self, cluster: Cluster, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The part of it that the conditions of the query leave."""
        left = self.narrowed
        queues = [queue for queue in start if left.wants(queue)]
        start = {queue: max(start[queue], left.least) for queue in queues}
        end = {queue: min(end[queue], left.below) for queue in queues}
        if left.since_ms is not None:
            since = cluster.offsets_at(queues, left.since_ms)
            start = {queue: max(start[queue], since[queue]) for queue in queues}
        if left.until_ms is not None:
            until = cluster.offsets_at(queues, left.until_ms)
            end = {queue: min(end[queue], until[queue]) for queue in queues}
        return start, end

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one partition."""
        from aerobee.spark.task import record_batches

        # An empty plan comes as one partition without a value.
        if partition is not None and partition.value is not None:
            options, tags = self.options, self.narrowed.tags
            if tags:
                options = replace(options, sub_expression="||".join(sorted(tags)))
            yield from record_batches(partition.value, options, self.names)


class PushingReader(BatchReader):
    """Takes conditions of the query over. A class of its own: Spark refuses every read of a reader
    that has `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep what shortens the read; the filters that Spark must apply itself."""
        options = self.options
        columns = dict(zip(self.names, sources_of(self.names, options.schema_preset), strict=True))
        with_tags = options.sub_expression == "*" and options.expression_type == "TAG"
        self.narrowed, rest = narrowed(filters, columns, with_tags=with_tags)
        return rest
