"""Rows as Spark's Kafka source has them → the columns of this sink, so that they can be written.

`key` are the keys, `value` is the body, `partition` the queue, `headers` the properties. Where and
when a message was stored (`offset`, `timestamp`, `timestampType`) does not travel, as in Kafka's
own sink; nor do properties that brokers and clients set, but for the tag. Pure.
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

__all__ = ["FromKafka"]

LEFT_OUT = frozenset({"offset", "timestamp", "timestamptype"})
NAMES = {"key": "keys", "value": "body", "partition": "queueId", "headers": "properties"}
OWN_PREFIXES = "^(AB_|INNER_|TIMER_|__)"
"""Beside the reserved ones: what was noted on an earlier way of the message."""


class FromKafka:
    """The conversion of one table: `schema` as it is afterwards, and `batch` by batch.

    Applies to tables with a column `value`; others stay as they are. Raises: ConfigurationError.
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
        """The same rows. Raises: ConfigurationError."""
        return self._converted(batch.columns) if self.applies else batch

    def name_of(self, column: str | None) -> str | None:
        """What a column of the table is called afterwards."""
        return NAMES.get((column or "").lower(), column) if self.applies else column

    def _converted(self, columns: Sequence[Any]) -> pa.RecordBatch:
        found = {}
        for place, name in self._plan:
            found[name] = _as_column(name, columns[place])
        if self._tags_of is not None:
            found["tags"] = _tags_in(columns[self._tags_of])
        return pa.record_batch(found)


def _as_column(name: str, column: Any) -> Any:
    if name == "keys":
        return _text("key", column)
    if name == "properties" and pa.types.is_list(column.type):
        return _properties_in(column)
    return column


def _text(name: str, column: Any) -> Any:
    """Bytes as UTF-8. Raises: ConfigurationError where they are none."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            f"column {name} has bytes that are not UTF-8, which keys and properties are: {error}"
        ) from None


def _entries(column: Any) -> tuple[Any, Any, Any]:
    """Names, values, and the row of each header."""
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
