"""Options of tables in Spark's catalog: CREATE TABLE … USING aerobee OPTIONS (…).

Spark asks such a table for its schema once, when it is made, and keeps schema and options; a later
read gets the schema alone (seen in 4.3). So the schema of a table carries the options along, as
metadata of its first column, and a read without options of its own takes them from there. Writes do
not: the first column of what is inserted may come from another table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["given", "read_later", "with_options"]

KEY: Final = "aerobee.options"
TABLE_MARK: Final = "option."
"""Spark gives the options of a table twice, once with this before their names."""


def given(options: Mapping[str, str]) -> dict[str, str]:
    """The options that the user gave, without what the catalog knows besides of a table."""
    if any(name.startswith(TABLE_MARK) for name in options):
        return {name: text for name, text in options.items() if TABLE_MARK + name in options}
    return dict(options)


def with_options(
    ddl: str, columns: Callable[[], pa.Schema], options: Mapping[str, str]
) -> str | StructType:
    """The schema for these options: `ddl`, or, of a table in the catalog, with them in it.

    `columns` gives the same schema as Arrow has it.
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
    """The options of a read: those of its table, if it brings none of the `required` (lower case).

    What the query adds by WITH counts more than what the table has.
    """
    own = given(options)
    if not schema.fields or not own.keys().isdisjoint(required):
        return own
    kept: dict[str, str] = (schema.fields[0].metadata or {}).get(KEY, {})
    return {**kept, **own}
