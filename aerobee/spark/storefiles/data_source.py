"""The data source `format("aerobee.store")`: a store directory as a table, beside a broker or not.

`mode` selects the rows: messages, faults, or the files of the log. The driver plans parts of the
log, each task reads its own; both see the directory under the same path. Nothing is written. The
import loads nothing heavier than Spark's own module.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aerobee.errors import ConfigurationError
from aerobee.spark.catalog_table import TABLE_MARK, given, read_later, with_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from aerobee.spark.options import StoreOptions

AUDIT_DDL = (
    "segment string, physicalOffset bigint, kind string, topic string, queueId int, "
    "queueOffset bigint, detail string"
)
SEGMENTS_DDL = (
    "segment string, bytes bigint, firstPhysicalOffset bigint, lastPhysicalOffset bigint, "
    "records bigint, minStoreTimestamp timestamp, maxStoreTimestamp timestamp, sealed boolean, "
    "mtime timestamp"
)
DDL = {"audit": AUDIT_DDL, "segments": SEGMENTS_DDL}
"""The columns of the modes that have a fixed set."""
TABLE_KEYS = frozenset({"location", "owner", "provider"})
"""Options that Spark adds to those of a table in its catalog."""
ROWS_PER_BATCH = 10_000


class StoreSource(DataSource):
    """The data source; docs/spark/options.md describes its options and columns."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "aerobee.store"

    def schema(self) -> str | StructType:
        """The columns of the mode. Raises: ConfigurationError for a wrong option or directory."""
        from aerobee.spark.options import store_options
        from aerobee.spark.rows.columns import arrow_schema, chosen, ddl, ddl_of
        from aerobee.spark.storefiles.files import all_segments

        own = _own(self.options)
        options = store_options(own)
        # A directory that is not a store is an error here, not when the table is used.
        all_segments(options.path)
        if self.options.keys() >= TABLE_KEYS:
            # Marked as options of a table, including the path: a later read gets them back.
            own |= {TABLE_MARK + name: text for name, text in own.items()}
        fixed = DDL.get(options.mode)
        if fixed is not None:
            columns = _columns(fixed)
            return with_options(ddl(columns), partial(_arrow_schema, fixed, columns), own)
        names = chosen(options.columns)
        return with_options(ddl_of(names), partial(arrow_schema, names), own)

    def reader(self, schema: StructType) -> StoreReader:
        """The reader of a batch. Raises: ConfigurationError for a wrong option or column."""
        from aerobee.spark.options import store_options

        options = store_options(read_later(_own(self.options), schema, ()))
        return StoreReader(options, _names(schema, options))


class StoreReader(DataSourceReader):
    """The reader of a batch. It holds plain data only: Spark pickles it into every task."""

    def __init__(self, options: StoreOptions, names: tuple[str, ...]) -> None:
        self.options = options
        self.names = names

    def partitions(self) -> list[InputPartition]:
        """Plan parts of the log, or of queues, up to the current end of the data.

        Raises: ConfigurationError, DataLossError, RecordDamagedError, OSError.
        """
        planned: Sequence[Any]
        if self.options.mode == "audit":
            from aerobee.spark.storefiles.audit import plan_audit

            planned = plan_audit(self.options)
        elif self.options.mode == "segments":
            from aerobee.spark.storefiles.read import plan_segments

            planned = plan_segments(self.options)
        else:
            from aerobee.spark.storefiles.read import tasks

            planned = tasks(self.options)
        return [InputPartition(piece) for piece in planned]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of one partition."""
        # Spark passes an empty plan as one partition without a value.
        if partition is None or partition.value is None:
            return
        if self.options.mode == "audit":
            from aerobee.spark.storefiles.audit import audit

            yield from _batches(audit(partition.value, self.options), AUDIT_DDL, self.names)
        elif self.options.mode == "segments":
            from aerobee.spark.storefiles.read import segment_rows

            yield from _batches(
                segment_rows(partition.value, self.options), SEGMENTS_DDL, self.names
            )
        else:
            from aerobee.spark.storefiles.read import read

            for piece in partition.value:
                yield from read(piece, self.options, self.names)


def _own(options: Mapping[str, str]) -> dict[str, str]:
    """The user's options; the path of a table in the catalog is its location."""
    own = given(options)
    if options.keys() >= TABLE_KEYS:
        own = {name: text for name, text in own.items() if name not in TABLE_KEYS}
        own["path"] = options["path"]
    path = own.get("path", "")
    if path.startswith("file:"):
        own["path"] = unquote(urlsplit(path).path)
    return own


def _names(schema: StructType, options: StoreOptions) -> tuple[str, ...]:
    """The names of the columns in a schema from Spark or from the user."""
    from aerobee.spark.rows.columns import accepted, fields_of

    fields = fields_of(schema)
    if options.mode not in DDL:
        return accepted(fields)
    known = _columns(DDL[options.mode])
    for name, kind in fields.items():
        if known.get(name) != kind:
            raise ConfigurationError(
                f"schema: mode={options.mode} has no column {name!r} of type {kind}; it has "
                f"{DDL[options.mode]}"
            )
    return tuple(fields)


def _columns(ddl: str) -> dict[str, str]:
    """The type of each column name."""
    return dict(column.split() for column in ddl.split(", "))


def _batches(
    rows: Iterable[tuple[Any, ...]], ddl: str, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Convert rows with the columns of `ddl` to batches with those of `names`."""
    import pyarrow as pa

    known = list(_columns(ddl))
    at = [known.index(name) for name in names]
    schema = _arrow_schema(ddl, names)

    def batch(pending: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [
            pa.array([row[place] for row in pending], field.type)
            for place, field in zip(at, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    pending: list[tuple[Any, ...]] = []
    for row in rows:
        pending.append(row)
        if len(pending) == ROWS_PER_BATCH:
            yield batch(pending)
            pending = []
    if pending:
        yield batch(pending)


def _arrow_schema(ddl: str, names: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns of `ddl`."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    known = _columns(ddl)
    return pa.schema([pa.field(name, kinds[known[name]]) for name in names])
