"""Queries the lag of groups at all brokers: the rows of `format("aerobee.lag")`, without pyspark.

The queries change nothing at a broker, and create neither groups nor topics.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.headers.admin import GetConsumeStats
from aerobee.remoting.wire.headers.group import GetAllGroupConfig
from aerobee.spark.brokers import cluster_of
from aerobee.spark.lag.progress import groups_in, is_system_group, lags, progress_in
from aerobee.spark.topics import is_system
from aerobee.store.format.system_names import SYSTEM_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from aerobee.remoting.wire.command import Command
    from aerobee.spark.brokers import Cluster
    from aerobee.spark.lag.progress import Lag, Progress
    from aerobee.spark.options import LagOptions

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
"""The most existing names that an error about an unknown one lists."""
AT_ONCE = 8
"""The brokers that are queried in parallel."""


def check(options: LagOptions) -> None:
    """Check that the groups and topics exist: a typing error would look like no lag.

    Raises: ConfigurationError for a group or a topic that no broker has, AerobeeError if a name
    server or a broker does not answer.
    """
    cluster = cluster_of(options.name_servers, options.access)
    if options.topics:
        known = cluster.topics()
        for topic in options.topics:
            if topic not in known:
                users = [name for name in known if not is_system(name)]
                raise ConfigurationError(
                    f"option topics: no broker knows a topic {topic}; {_some(users)}"
                )
    if options.groups:
        _check_groups(cluster, _masters(cluster), options.groups)


def read(options: LagOptions, names: Sequence[str]) -> pa.RecordBatch:
    """Read these columns of the current rows of all brokers. Raises: AerobeeError."""
    from aerobee.spark.source.positions import check_brokers

    cluster = cluster_of(options.name_servers, options.access)
    snapshot_ms = time.time_ns() // 1_000_000
    check_brokers(options.brokers, cluster.brokers())
    # Masters store the offsets, so these are queried.
    masters = _masters(cluster)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        per_broker = list(
            threads.map(lambda address: _rows(cluster, address, options, snapshot_ms), masters)
        )
    return _batch([row for rows in per_broker for row in rows], names)


def _masters(cluster: Cluster) -> list[str]:
    return [addresses[0] for addresses in cluster.brokers().values()]


def _rows(cluster: Cluster, address: str, options: LagOptions, snapshot_ms: int) -> list[Lag]:
    """The rows of one broker. Raises: AerobeeError."""
    groups: Sequence[str] = options.groups
    if not groups:
        groups = [group for group in _groups(cluster, address) if not is_system_group(group)]
    topics = frozenset(options.topics)
    return [
        row
        for group in sorted(set(groups))
        for row in lags(group, _progress(cluster, address, group), topics, snapshot_ms)
    ]


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of the columns, equal to Spark's types."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, types[COLUMNS[name]]) for name in names])


def _check_groups(cluster: Cluster, masters: Sequence[str], groups: Sequence[str]) -> None:
    known = sorted({group for address in masters for group in _groups(cluster, address)})
    for group in groups:
        if group in known or any(_progress(cluster, address, group) for address in masters):
            continue
        users = [name for name in known if not name.startswith(SYSTEM_GROUPS)]
        raise ConfigurationError(
            f"option groups: no broker knows a consumer group {group}; {_some(users)}"
        )


def _some(known: Sequence[str]) -> str:
    return f"there are {', '.join(known[:NAMED]) or 'none'}"


def _groups(cluster: Cluster, address: str) -> list[str]:
    """The groups of a broker. Raises: AerobeeError."""
    return _told(address, groups_in, cluster.call(address, GetAllGroupConfig()))


def _progress(cluster: Cluster, address: str, group: str) -> list[Progress]:
    """The offsets of a group in the queues of a broker. Raises: AerobeeError."""
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
