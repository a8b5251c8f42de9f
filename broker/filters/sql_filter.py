"""An SQL92 filter, compiled once for each text; the last ones are cached.

In: the text. Out: whether a message's encoded properties pass. Source: semantics §14.2
(ConsumerFilterData, FilterFactory).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.compiler import compiled
from aerobee.store.format.sql_parser import parse
from aerobee.store.format.sql_tokens import SqlInvalid

if TYPE_CHECKING:
    from aerobee.broker.filters.compiler import Matches

SQL92: Final = "SQL92"
"""The expression type, as clients write it."""
CACHE_ENTRIES: Final = 100


class SqlFilter:
    """`matches(properties)` says whether a message passes; it never raises."""

    __slots__ = ("expression", "ignored", "matches")

    def __init__(self, expression: str) -> None:
        try:
            parsed = parse(expression)
        except SqlInvalid as error:
            raise FilterInvalid(str(error)) from error
        self.expression = expression
        self.ignored = parsed.ignored
        """Text after the expression, which has no effect; usually empty."""
        self.matches: Matches = compiled(parsed)


@lru_cache(maxsize=CACHE_ENTRIES)
def sql_filter(expression: str) -> SqlFilter:
    """The filter of an expression. Raises: FilterInvalid."""
    return SqlFilter(expression)
