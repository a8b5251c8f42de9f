"""The columns of the sink: their names, Spark types and Arrow types, and how a table's columns map.

A table of names and types; rows are not read here. Column names are case-insensitive, as in SQL.
Source: spark §5.6.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from aerobee.errors import ConfigurationError
from aerobee.spark.rows.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class SinkColumn(NamedTuple):
    """One column of the sink: `kinds` names its Spark types, `fits` tests an Arrow type."""

    name: str
    kinds: str
    fits: Callable[[Any], bool]


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is a string."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_body(kind: Any) -> bool:
    """Whether an Arrow type is binary, or a string that is sent as UTF-8."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) or is_text(kind)


def is_texts(kind: Any) -> bool:
    """Whether an Arrow type is a string or a list of strings."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_text(kind) or (bool(listed) and is_text(kind.value_type))


def is_text_map(kind: Any) -> bool:
    """Whether an Arrow type maps strings to strings."""
    return bool(pa.types.is_map(kind)) and is_text(kind.key_type) and is_text(kind.item_type)


def is_instant(kind: Any) -> bool:
    """Whether an Arrow type is a timestamp with a time zone."""
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is an integer."""
    return bool(pa.types.is_integer(kind))


SINK_COLUMNS: Mapping[str, SinkColumn] = {
    column.name: column
    for column in (
        SinkColumn("body", "binary or string", is_body),
        SinkColumn("topic", "string", is_text),
        SinkColumn("tags", "string", is_text),
        SinkColumn("keys", "string or array<string>", is_texts),
        SinkColumn("properties", "map<string,string>", is_text_map),
        SinkColumn("shardingKey", "string", is_text),
        SinkColumn("queueId", "int", is_number),
        SinkColumn("brokerName", "string", is_text),
        SinkColumn("flag", "int", is_number),
        SinkColumn("delayLevel", "int", is_number),
        SinkColumn("deliverTime", "timestamp (with a time zone: timestamp_ltz)", is_instant),
        SinkColumn("delayMs", "bigint", is_number),
        SinkColumn("msgId", "string", is_text),
        SinkColumn("bornTimestamp", "timestamp (with a time zone: timestamp_ltz)", is_instant),
    )
}
ALIASES = {"value": "body"}
"""Names of the same columns in other sinks."""
WRITABLE = "topic,queueId,keys,tags,body,bornTimestamp,msgId,flag"
"""Columns of a read that a write takes as they are. Properties have names that are reserved."""
GIVEN_BY_BROKERS = frozenset(map(str.lower, COLUMNS)) - frozenset(map(str.lower, SINK_COLUMNS))
"""The columns of a read that no write takes, in lower case."""
_BY_NAME = {name.lower(): name for name in SINK_COLUMNS} | ALIASES


def places(schema: Any, *, topic: str | None, order_by: str | None = None) -> dict[str, int]:
    """The index of each sink column in an Arrow schema.

    `topic` and `order_by` are the options: with the first the table needs no topic column, the
    second names the column whose text stands for `shardingKey`. Raises: ConfigurationError.
    """
    places: dict[str, int] = {}
    ordering = -1
    for place, field in enumerate(schema):
        name = _BY_NAME.get(field.name.lower())
        if order_by is not None and field.name.lower() == order_by.lower():
            ordering = place
            if not (is_text(field.type) or is_number(field.type)):
                raise ConfigurationError(
                    f"option orderBy: column {field.name} is {field.type}, not a string or a number"
                )
            if name is None:
                continue
        if name is None:
            raise ConfigurationError(_unknown(field.name))
        if name in places:
            first = schema[places[name]].name
            raise ConfigurationError(f"columns {first} and {field.name} both say the {name}")
        _check_type(field, SINK_COLUMNS[name])
        places[name] = place
    if "body" not in places:
        raise ConfigurationError(
            "a write needs a column body (binary or string); there are: "
            + (", ".join(schema.names) or "none")
        )
    if topic is None and "topic" not in places:
        raise ConfigurationError("where to? Give the option topic or a column topic")
    if order_by is not None:
        if ordering < 0:
            raise ConfigurationError(f"option orderBy: there is no column {order_by}")
        places["shardingKey"] = ordering
    return places


def _check_type(field: Any, column: SinkColumn) -> None:
    """Check that a column has a supported type; a column of nulls only counts as absent.

    Raises: ConfigurationError.
    """
    if not column.fits(field.type) and (column.name == "body" or not pa.types.is_null(field.type)):
        raise ConfigurationError(_unfit(field.name, field.type, column))


def _unfit(name: str, kind: object, column: SinkColumn) -> str:
    return f"column {name} is {kind}, but {column.name} is {column.kinds}: cast it"


def _unknown(name: str) -> str:
    if name.lower() in GIVEN_BY_BROKERS:
        return (
            f"column {name} cannot be sent, brokers give it. To write what was read, read it with "
            f"the option columns={WRITABLE}, or .drop({name!r})"
        )
    close = get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.5)
    meant = f" (is {_BY_NAME[close[0]]} meant?)" if close else ""
    return (
        f"column {name} cannot be sent{meant}: a message has {', '.join(SINK_COLUMNS)}; "
        f"leave it out with .drop({name!r}) or put it into properties"
    )


ARROW_TYPES = {
    "binary": pa.binary(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    ),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "void": pa.null(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
}
"""The Arrow type of each Spark type in SQL that the sink supports or that users often try."""


def arrow_schema(fields: Iterable[tuple[str, str]]) -> Any:
    """Convert names and Spark types in SQL to the Arrow schema in which the rows arrive.

    Raises: ConfigurationError for a type that no column of a message has.
    """
    columns = []
    for name, kind in fields:
        text = kind.startswith(("string", "char", "varchar"))
        arrow = pa.string() if text else ARROW_TYPES.get(kind)
        if arrow is None:
            known = _BY_NAME.get(name.lower())
            raise ConfigurationError(
                f"column {name} is {kind}: no column of a message is"
                if known is None
                else _unfit(name, kind, SINK_COLUMNS[known])
            )
        columns.append(pa.field(name, arrow))
    return pa.schema(columns)
