"""The columns of a message: their names, their types in Spark and in Arrow, and their selection.

Tables and pure functions; pyarrow is loaded when an Arrow type is needed, not before. A preset has
the same columns under the names (and, where they differ, the types) of another source.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """One column: `ddl` is its Spark type, `default` whether a read has it by default."""

    name: str
    ddl: str
    default: bool = False


SPELLED = {"timestamp": "timestamp_ltz"}
"""Types whose usual name in DDL means another type with a setting (spark.sql.timestampType)."""
MAP = "map<string,string>"
HEADERS = "array<struct<key:string,value:binary>>"

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("topic", "string", True),
        Column("brokerName", "string", True),
        Column("queueId", "int", True),
        Column("queueOffset", "bigint", True),
        Column("keys", "string", True),
        Column("tags", "string", True),
        Column("body", "binary", True),
        Column("bornTimestamp", "timestamp", True),
        Column("storeTimestamp", "timestamp", True),
        Column("properties", MAP, True),
        Column("msgId", "string"),
        Column("offsetMsgId", "string"),
        Column("commitLogOffset", "bigint"),
        Column("flag", "int"),
        Column("sysFlag", "int"),
        Column("reconsumeTimes", "int"),
        Column("bodyCRC", "int"),
        Column("preparedTransactionOffset", "bigint"),
        Column("bornHost", "string"),
        Column("storeHost", "string"),
        Column("storeSize", "int"),
    )
}
DEFAULT: tuple[str, ...] = tuple(column.name for column in COLUMNS.values() if column.default)

AEROBEE = "aerobee"
"""The preset with the names of this source."""
KAFKA_TIMESTAMP_TYPE = 1
"""The value of `timestampType` in the kafka preset: the time of the log append."""
PRESETS: dict[str, dict[str, str]] = {
    "rocketmq-spark": {
        name: name
        for name in (
            *("topic", "flag", "body", "properties", "brokerName"),
            *("queueId", "queueOffset", "bornTimestamp", "storeTimestamp"),
        )
    },
    "kafka": {
        "key": "keys",
        "value": "body",
        "topic": "topic",
        "partition": "queueId",
        "offset": "queueOffset",
        "timestamp": "storeTimestamp",
        "timestampType": "storeTimestamp",
        "headers": "properties",
    },
}
"""By preset: the source column of each of its columns."""
PRESET_DDL: dict[tuple[str, str], str] = {
    ("rocketmq-spark", "properties"): "string",
    ("kafka", "key"): "binary",
    ("kafka", "timestampType"): "int",
    ("kafka", "headers"): HEADERS,
}
"""By preset and column: the type, if it differs from that of the source column."""


_OWN = {name: name for name in COLUMNS}


def _table(preset: str) -> dict[str, str]:
    """The source column of each name. Raises: ConfigurationError for an unknown preset."""
    if preset == AEROBEE:
        return _OWN
    if preset not in PRESETS:
        known = ", ".join((AEROBEE, *PRESETS))
        raise ConfigurationError(f"option schemaPreset: {preset!r} is not one of {known}")
    return PRESETS[preset]


def sources_of(names: Iterable[str], preset: str = AEROBEE) -> tuple[str, ...]:
    """The column of COLUMNS that each name is derived from. Raises: ConfigurationError."""
    table = _table(preset)
    return tuple(table[name] for name in _checked(tuple(names), preset))


def _ddl(name: str, preset: str) -> str:
    return PRESET_DDL.get((preset, name)) or COLUMNS[_table(preset)[name]].ddl


def ddl(columns: Mapping[str, str]) -> str:
    """A schema in Spark's DDL from names and types, the same whatever the session's settings."""
    return ", ".join(f"{name} {SPELLED.get(kind, kind)}" for name, kind in columns.items())


def ddl_of(names: Iterable[str], preset: str = AEROBEE) -> str:
    """The schema in Spark's DDL: `topic string, body binary`."""
    known = _checked(tuple(names), preset)
    return ddl({name: _ddl(name, preset) for name in known})


def arrow_schema(names: Iterable[str], preset: str = AEROBEE) -> pa.Schema:
    """The schema of every batch with these columns: all nullable, times in µs UTC.

    Equal to what Spark derives from `ddl_of`; Spark compares the first batch with that.
    """
    import pyarrow as pa

    known = _checked(tuple(names), preset)
    return pa.schema([pa.field(name, _arrow_type(_ddl(name, preset))) for name in known])


def _arrow_type(ddl: str) -> Any:
    import pyarrow as pa

    if ddl == MAP:
        return pa.map_(pa.string(), pa.string())
    if ddl == HEADERS:
        entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.list_(pa.field("element", entry))
    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }[ddl]


def chosen(columns_option: str | None, preset: str = AEROBEE) -> tuple[str, ...]:
    """The columns that the option `columns` names, in its order; the default set without it.

    The default of a preset is all its columns. Raises: ConfigurationError for an unknown or
    duplicate name.
    """
    if columns_option is None or not columns_option.strip():
        return DEFAULT if preset == AEROBEE else tuple(_table(preset))
    return _checked(tuple(name.strip() for name in columns_option.split(",")), preset)


def fields_of(schema: StructType) -> dict[str, str]:
    """The columns of the user's schema, with Spark's simple names of their types.

    Raises: ConfigurationError for a name that is there twice and for NOT NULL.
    """
    fields: dict[str, str] = {}
    for field in schema.fields:
        if not field.nullable:
            raise ConfigurationError(f"schema: column {field.name!r} must not be NOT NULL")
        if field.name in fields:
            raise ConfigurationError(f"schema: {field.name!r} is named twice")
        fields[field.name] = field.dataType.simpleString()
    return fields


def accepted(fields: Mapping[str, str], preset: str = AEROBEE) -> tuple[str, ...]:
    """The columns of the user's schema, given with Spark's simple names of their types.

    Any subset in any order, each with its own type. Raises: ConfigurationError.
    """
    for name in _checked(tuple(fields), preset, "schema"):
        wanted = _ddl(name, preset)
        if fields[name].replace(" ", "") != wanted:
            raise ConfigurationError(
                f"schema: column {name!r} is {SPELLED.get(wanted, wanted)}, not {fields[name]}; "
                "read it as it is and cast it in the query"
            )
    return tuple(fields)


def _checked(names: tuple[str, ...], preset: str, what: str = "option columns") -> tuple[str, ...]:
    table = _table(preset)
    for at, name in enumerate(names):
        if name not in table:
            by_lower = {known.lower(): known for known in table}
            near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
            hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
            raise ConfigurationError(f"{what}: no column {name!r}{hint} Known: {', '.join(table)}")
        if name in names[:at]:
            raise ConfigurationError(f"{what}: {name!r} is named twice")
    return names
