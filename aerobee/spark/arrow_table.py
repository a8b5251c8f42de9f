"""Messages as an Arrow table, for pandas, Polars and DuckDB: no Spark, no JVM, no consumer group.

The messages come from the brokers of a cluster (`namesrv`), or from the files of a store directory
(`store`) without a running broker. The columns are those of the Spark source, decoded by the same
code. pyarrow and numpy are loaded when something is read, and not before.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from aerobee.spark.options import ReadOptions, StoreOptions

Instant: TypeAlias = datetime | timedelta | int
"""A point in time: a datetime (local time if it has no zone), how long ago, or ms since 1970."""
STRATEGY = "startingOffsetsByTimestampStrategy"
NEEDED = ("pyarrow", "numpy")


def arrow(
    topic: str | Sequence[str],
    *,
    namesrv: str | None = None,
    store: str | os.PathLike[str] | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    columns: str | Sequence[str] | None = None,
    tags: str | None = None,
    options: Mapping[str, str | bool | float] | None = None,
) -> pa.Table:
    """All messages of one topic or several, as one table in memory.

    `namesrv` is `host:port;host:port` (or NAMESRV_ADDR in the environment); `store` a directory,
    read without a broker. From `since` on and before `until`, by the time of storing; without them
    from the oldest message to the newest at the time of the call. `tags` is `TagA||TagB`, of a
    cluster only. `options` are further options of the Spark source, such as failOnDataLoss.
    Rows come queue by queue, from a store in the order of its log.

    Raises: ConfigurationError for what cannot work (a missing package, too), RouteNotFoundError for
    a missing topic, DataLossError, RecordDamagedError, CompressionError, TransportError.
    """
    reader = arrow_reader(
        topic,
        namesrv=namesrv,
        store=store,
        since=since,
        until=until,
        columns=columns,
        tags=tags,
        options=options,
    )
    return reader.read_all()


def arrow_reader(
    topic: str | Sequence[str],
    *,
    namesrv: str | None = None,
    store: str | os.PathLike[str] | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    columns: str | Sequence[str] | None = None,
    tags: str | None = None,
    options: Mapping[str, str | bool | float] | None = None,
) -> pa.RecordBatchReader:
    """Read messages as `arrow` does, but batch by batch: for more than fit into memory.

    The range is fixed before it returns; messages stored later are not part of it.
    """
    _check_installed()
    if store is not None and namesrv is not None:
        raise ConfigurationError("aerobee.arrow: either namesrv or store says where to read")
    arguments = {
        **_texts("columns", columns),
        **_texts("topics" if store is not None else "subscribe", topic),
        **_times(since, until),
    }
    if store is not None:
        if tags is not None:
            raise ConfigurationError("aerobee.arrow: tags is for a cluster; filter the table")
        return _reader_of_store(_with({**arguments, "path": os.fspath(store)}, options))
    if tags is not None:
        arguments["subExpression"] = tags
    if namesrv is not None:
        arguments["nameServer"] = namesrv
    raw = _with(arguments, options)
    if since is not None and STRATEGY.lower() not in map(str.lower, raw):
        # A queue without messages that new is empty here, not an error.
        raw[STRATEGY] = "latest"
    return _reader_of_cluster(raw)


def _with(
    arguments: Mapping[str, str], options: Mapping[str, str | bool | float] | None
) -> dict[str, str]:
    """The options that the arguments stand for, and the further ones.

    Raises: ConfigurationError for an option that an argument gives already.
    """
    names = {name.lower() for name in arguments}
    for name in options or {}:
        if name.lower() in names:
            raise ConfigurationError(f"aerobee.arrow: option {name}: an argument says that already")
    return {**arguments, **{name: _text(value) for name, value in (options or {}).items()}}


def _text(value: str | bool | float) -> str:
    """Format an option as Spark would pass it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_installed() -> None:
    """Check that the packages for Arrow tables are installed. Raises: ConfigurationError."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise ConfigurationError(
                f"aerobee.arrow needs {package}, which is not installed: "
                "pip install 'aerobee[spark]'"
            )


def _reader_of_cluster(raw: dict[str, str]) -> pa.RecordBatchReader:
    from aerobee.spark.brokers import cluster_of
    from aerobee.spark.options import read_options
    from aerobee.spark.rows.columns import chosen
    from aerobee.spark.source.plan import ranges_of
    from aerobee.spark.source.positions import bounds, queues_of
    from aerobee.spark.source.task import record_batches

    options: ReadOptions = read_options(raw, stream=False)
    names = chosen(options.columns, options.schema_preset)
    cluster = cluster_of(options.name_servers, options.access)
    addresses = queues_of(cluster, options)
    start, end = bounds(cluster, list(addresses), options)
    ranges = ranges_of(start, end, addresses)
    return _reader(names, options.schema_preset, record_batches(ranges, options, names))


def _reader_of_store(raw: dict[str, str]) -> pa.RecordBatchReader:
    from aerobee.spark.options import store_options
    from aerobee.spark.rows.columns import AEROBEE, chosen
    from aerobee.spark.storefiles.read import plan, read

    options: StoreOptions = store_options(raw)
    if options.mode != "read":
        raise ConfigurationError(f"aerobee.arrow: option mode: {options.mode!r} needs Spark")
    names = chosen(options.columns)
    pieces = plan(options)
    batches = (batch for piece in pieces for batch in read(piece, options, names))
    return _reader(names, AEROBEE, batches)


def _reader(
    names: tuple[str, ...], preset: str, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatchReader:
    import pyarrow as pa

    from aerobee.spark.rows.columns import arrow_schema

    return pa.RecordBatchReader.from_batches(arrow_schema(names, preset), batches)


def _texts(name: str, value: str | Sequence[str] | None) -> dict[str, str]:
    """Format an option for the Spark source: names separated by commas."""
    if value is None:
        return {}
    text = value if isinstance(value, str) else ",".join(value)
    if not text.strip(", "):
        raise ConfigurationError(f"aerobee.arrow: {name} names nothing")
    return {name: text}


def _times(since: Instant | None, until: Instant | None) -> dict[str, str]:
    now_ms = time.time_ns() // 1_000_000
    bounds = {"startingTimestamp": ("since", since), "endingTimestamp": ("until", until)}
    times = {
        option: _ms(name, value, now_ms)
        for option, (name, value) in bounds.items()
        if value is not None
    }
    if len(times) == 2 and times["startingTimestamp"] > times["endingTimestamp"]:
        raise ConfigurationError(f"aerobee.arrow: since {since} is after until {until}; swap them")
    return {option: str(ms) for option, ms in times.items()}


def _ms(name: str, value: Any, now_ms: int) -> int:
    """Convert to milliseconds since 1970. Raises: ConfigurationError."""
    if isinstance(value, datetime):
        ms = round(value.timestamp() * 1000)
    elif isinstance(value, timedelta):
        ms = now_ms - round(value.total_seconds() * 1000)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = value
    else:
        raise ConfigurationError(
            f"aerobee.arrow: {name} is a datetime, a timedelta (how long ago) or an int "
            f"(milliseconds since 1970), not {value!r}"
        )
    if ms < 0:
        raise ConfigurationError(f"aerobee.arrow: {name} {value!r} lies before 1970")
    return ms
