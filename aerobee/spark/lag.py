"""`format("aerobee.lag")`: how far consumer groups are behind, as a table. Batch reads only.

A row is a queue of a group, as the broker of the queue sees it; one partition asks one broker, and
all rows of a query have the same `snapshotTime`. The brokers are asked when an action runs, anew
each time. Nothing is changed there, and groups and topics are not made by asking.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.options import lag_options
from aerobee.spark.progress import groups_in, is_system_group, lags, progress_in
from remoting.errors import BodyError
from remoting.wire.headers.admin import GetConsumeStats
from remoting.wire.headers.group import GetAllGroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.options import LagOptions
    from aerobee.spark.progress import Lag, Progress
    from remoting.wire.command import Command

__all__ = ["COLUMNS", "LagReader", "LagSource"]

T = TypeVar("T")
Buffer: TypeAlias = bytes | memoryview

COLUMNS = {
    "group": "string",
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "brokerOffset": "bigint",
    "consumerOffset": "bigint",
    "lag": "bigint",
    "lastTimestamp": "timestamp",
    "timeLagMs": "bigint",
    "snapshotTime": "timestamp",
}
"""Name → Spark type; the order is that of `progress.Lag`."""
NAMED = 10


class LagSource(DataSource):
    """The data source; all it keeps is the options."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "aerobee.lag"

    def schema(self) -> str:
        """Every column. Raises: ConfigurationError for a wrong option."""
        lag_options(self.options)
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> LagReader:
        """Raises: ConfigurationError for a wrong option or a column that there is not."""
        given = {field.name: field.dataType.simpleString() for field in schema.fields}
        for name, kind in given.items():
            if COLUMNS.get(name) != kind:
                known = ", ".join(f"{one} {COLUMNS[one]}" for one in COLUMNS)
                raise ConfigurationError(f"schema: no column {name} {kind} here; known: {known}")
        return LagReader(lag_options(self.options), tuple(given))


class Ask(NamedTuple):
    """What one partition asks of one broker."""

    broker: str
    address: str
    snapshot_ms: int


class LagReader(DataSourceReader):
    """The groups' progress, broker by broker."""

    def __init__(self, options: LagOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names

    def partitions(self) -> Sequence[InputPartition]:
        """One for each broker; progress is kept by masters, so these are asked.

        Raises: ConfigurationError for a group that no broker knows, AerobeeError when a name server
        or a broker does not answer.
        """
        cluster = self._cluster()
        snapshot_ms = time.time_ns() // 1_000_000
        asks = [
            Ask(name, addresses[0], snapshot_ms) for name, addresses in cluster.brokers().items()
        ]
        if self.options.groups:
            self._check_groups(cluster, asks)
        return [InputPartition(ask) for ask in asks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one broker. Raises: AerobeeError."""
        if partition is None or partition.value is None:
            return
        yield batch_of(self._rows(partition.value), self.names)

    def _rows(self, ask: Ask) -> list[Lag]:
        cluster = self._cluster()
        groups: Iterable[str] = self.options.groups
        if not groups:
            groups = [
                group for group in _groups(cluster, ask.address) if not is_system_group(group)
            ]
        topics = frozenset(self.options.topics)
        return [
            row
            for group in sorted(set(groups))
            for row in lags(group, _progress(cluster, ask.address, group), topics, ask.snapshot_ms)
        ]

    def _cluster(self) -> Cluster:
        from aerobee.spark.brokers import cluster_of

        return cluster_of(self.options.name_servers)

    def _check_groups(self, cluster: Cluster, asks: Sequence[Ask]) -> None:
        """A group with a typing error would look like one without lag."""
        known = {group for ask in asks for group in _groups(cluster, ask.address)}
        for group in self.options.groups:
            if group in known or any(_progress(cluster, ask.address, group) for ask in asks):
                continue
            some = ", ".join(sorted(known)[:NAMED]) or "none"
            raise ConfigurationError(
                f"option groups: no broker knows a consumer group {group}; there are {some}"
            )


def _groups(cluster: Cluster, address: str) -> list[str]:
    """The groups of a broker. Raises: AerobeeError."""
    return _told(address, groups_in, cluster.call(address, GetAllGroupConfig()))


def _progress(cluster: Cluster, address: str, group: str) -> list[Progress]:
    """How far a group is in the queues of a broker. Raises: AerobeeError."""
    header = GetConsumeStats(consumer_group=group)
    return _told(address, progress_in, cluster.call(address, header))


def _told(address: str, read: Callable[[Buffer], list[T]], answer: Command) -> list[T]:
    try:
        return read(answer.body)
    except BodyError as error:
        raise AerobeeError(f"{address}: {error}") from error


def batch_of(rows: Sequence[Lag], names: Sequence[str]) -> pa.RecordBatch:
    """Some columns of the rows, as Arrow has Spark's types."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    arrays = []
    places = {name: place for place, name in enumerate(COLUMNS)}
    for name in names:
        kind = COLUMNS[name]
        values: list[Any] = [row[places[name]] for row in rows]
        if kind == "timestamp":
            values = [None if value is None else value * 1_000 for value in values]
        arrays.append(pa.array(values, types[kind]))
    schema = pa.schema([(name, types[COLUMNS[name]]) for name in names])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
