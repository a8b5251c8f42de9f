"""Options of tables in Spark's catalog: CREATE TABLE … USING aerobee OPTIONS (…).

Spark asks such a table for its schema once, when it is created, and stores schema and options; a
later read gets the schema only (seen in 4.3). So the schema of a table carries the options, as
metadata of its first column, and a read without options of its own takes them from there. Writes do
not, because the first column of the inserted rows may come from another table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

KEY: Final = "aerobee.options"
TABLE_MARK: Final = "option."
"""Spark passes the options of a table twice, once with this prefix."""


def given(options: Mapping[str, str]) -> dict[str, str]:
    """The user's options, without those that the catalog adds to a table."""
    if any(name.startswith(TABLE_MARK) for name in options):
        return {name: text for name, text in options.items() if TABLE_MARK + name in options}
    return dict(options)


def with_options(
    ddl: str, columns: Callable[[], pa.Schema], options: Mapping[str, str]
) -> str | StructType:
    """The schema for these options: `ddl`, or for a table in the catalog one that carries them.

    `columns` gives the same schema in Arrow.
    """
    if not any(name.startswith(TABLE_MARK) for name in options):
        return ddl
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    first, *others = from_arrow_schema(columns(), prefer_timestamp_ntz=False).fields
    kept = {KEY: given(options)}
    return StructType([StructField(first.name, first.dataType, True, kept), *others])


def read_later(
    options: Mapping[str, str], schema: StructType, required: Collection[str]
) -> dict[str, str]:
    """The options of a read: those of its table, if none of its own are `required` (lower case).

    Options that the query adds by WITH override those of the table.
    """
    own = given(options)
    if not schema.fields or not own.keys().isdisjoint(required):
        return own
    kept: dict[str, str] = (schema.fields[0].metadata or {}).get(KEY, {})
    return {**kept, **own}
