"""How far groups are, asked of brokers: partitions and rows of `format("aerobee.lag")`, no pyspark.

Nothing is changed at a broker, and groups and topics are not made by asking.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.brokers import cluster_of
from aerobee.spark.progress import groups_in, is_system_group, lags, progress_in
from remoting.errors import BodyError
from remoting.wire.headers.admin import GetConsumeStats
from remoting.wire.headers.group import GetAllGroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.options import LagOptions
    from aerobee.spark.progress import Lag, Progress
    from remoting.wire.command import Command

__all__ = ["COLUMNS", "Ask", "arrow_schema", "plan", "read"]

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


class Ask(NamedTuple):
    """What one partition asks of one broker; all of a query have the same time."""

    broker: str
    address: str
    snapshot_ms: int


def plan(options: LagOptions) -> list[Ask]:
    """One for each broker; progress is kept by masters, so these are asked.

    Raises: ConfigurationError for a group that no broker knows, AerobeeError when a name server or
    a broker does not answer.
    """
    cluster = cluster_of(options.name_servers)
    snapshot_ms = time.time_ns() // 1_000_000
    asks = [Ask(name, addresses[0], snapshot_ms) for name, addresses in cluster.brokers().items()]
    if options.groups:
        _check_groups(cluster, asks, options.groups)
    return asks


def read(ask: Ask, options: LagOptions, names: Sequence[str]) -> pa.RecordBatch:
    """These columns of the rows of one broker. Raises: AerobeeError."""
    cluster = cluster_of(options.name_servers)
    groups: Sequence[str] = options.groups
    if not groups:
        groups = [one for one in _groups(cluster, ask.address) if not is_system_group(one)]
    topics = frozenset(options.topics)
    rows = [
        row
        for group in sorted(set(groups))
        for row in lags(group, _progress(cluster, ask.address, group), topics, ask.snapshot_ms)
    ]
    return _batch(rows, names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """The columns as Arrow has Spark's types."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, types[COLUMNS[name]]) for name in names])


def _check_groups(cluster: Cluster, asks: Sequence[Ask], groups: Sequence[str]) -> None:
    """A group with a typing error would look like one without lag."""
    known = {group for ask in asks for group in _groups(cluster, ask.address)}
    for group in groups:
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


def _told(address: str, read_body: Callable[[Buffer], list[T]], answer: Command) -> list[T]:
    try:
        return read_body(answer.body)
    except BodyError as error:
        raise AerobeeError(f"{address}: {error}") from error


def _batch(rows: Sequence[Lag], names: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    places = {name: place for place, name in enumerate(COLUMNS)}
    schema = arrow_schema(names)
    arrays = []
    for field in schema:
        values: list[Any] = [row[places[field.name]] for row in rows]
        if COLUMNS[field.name] == "timestamp":
            values = [None if value is None else value * 1_000 for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
