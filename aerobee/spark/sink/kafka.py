"""Converts rows in the schema of Spark's Kafka source to the columns of this sink.

`key` becomes the keys, `value` the body, `partition` the queue, `headers` the properties. The old
storage location and time (`offset`, `timestamp`, `timestampType`) are dropped, as in Kafka's own
sink; so are properties that brokers and clients set, except the tag. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.client.message import RESERVED_PROPERTIES
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

LEFT_OUT = frozenset({"offset", "timestamp", "timestamptype"})
NAMES = {"key": "keys", "value": "body", "partition": "queueId", "headers": "properties"}
OWN_PREFIXES = "^(AB_|INNER_|TIMER_|__)"
"""Properties of an earlier delivery of the message, in addition to the reserved ones."""


class KafkaConversion:
    """The conversion of one table: `schema` is the resulting schema, `batch` converts the rows.

    Applies to tables with a column `value`; others stay unchanged. Raises: ConfigurationError.
    """

    def __init__(self, schema: Any) -> None:
        names = [field.name.lower() for field in schema]
        self.applies = "value" in names and not {"body", "keys", "properties"} & set(names)
        self.schema = schema
        self._plan: list[tuple[int, str]] = []
        self._tags_of: int | None = None
        if not self.applies:
            return
        for place, name in enumerate(names):
            if name not in LEFT_OUT:
                self._plan.append((place, NAMES.get(name, schema[place].name)))
                if name == "headers" and "tags" not in names:
                    self._tags_of = place
        self.schema = self._converted([pa.array([], field.type) for field in schema]).schema

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a record batch; the rows stay the same. Raises: ConfigurationError."""
        return self._converted(batch.columns) if self.applies else batch

    def name_of(self, column: str | None) -> str | None:
        """The name of a table's column after the conversion."""
        return NAMES.get((column or "").lower(), column) if self.applies else column

    def _converted(self, columns: Sequence[Any]) -> pa.RecordBatch:
        columns_by_name = {}
        for place, name in self._plan:
            columns_by_name[name] = _as_column(name, columns[place])
        if self._tags_of is not None:
            columns_by_name["tags"] = _tags_in(columns[self._tags_of])
        return pa.record_batch(columns_by_name)


def _as_column(name: str, column: Any) -> Any:
    if name == "keys":
        return _text("key", column)
    if name == "properties" and pa.types.is_list(column.type):
        return _properties_in(column)
    return column


def _text(name: str, column: Any) -> Any:
    """Decode bytes as UTF-8. Raises: ConfigurationError for other bytes."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            f"column {name} has bytes that are not UTF-8, which keys and properties are: {error}"
        ) from None


def _entries(column: Any) -> tuple[Any, Any, Any]:
    """The names, the values, and the row of each header."""
    entries = column.flatten()
    rows = np.asarray(pc.list_parent_indices(column), np.int64)
    return entries.field("key"), entries.field("value"), rows


def _properties_in(column: Any) -> Any:
    names, values, rows = _entries(column)
    reserved = pc.is_in(names, value_set=pa.array(sorted(RESERVED_PROPERTIES)))
    ours = pc.or_(reserved, pc.match_substring_regex(names, OWN_PREFIXES))
    keep = pc.and_(pc.invert(pc.fill_null(ours, True)), values.is_valid())
    counts = np.bincount(rows[np.asarray(keep)], minlength=len(column))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    kept = _text("headers", values.filter(keep))
    return pa.MapArray.from_arrays(pa.array(offsets), names.filter(keep), kept)


def _tags_in(column: Any) -> Any:
    names, values, rows = _entries(column)
    is_tag = np.asarray(pc.fill_null(pc.equal(names, "TAGS"), False))
    tags = np.full(len(column), None, object)
    tags[rows[is_tag]] = _text("headers", values.filter(pa.array(is_tag))).to_pylist()
    return pa.array(tags, pa.string())
