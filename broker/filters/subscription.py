"""Expression type and text of a subscription → its filter. Source: semantics §1.1, §14."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.sql_filter import SQL92, SqlFilter, sql_filter
from aerobee.store.format.tags import TagFilter

TAG: Final = "TAG"
TAG_FILTERS: Final = 1_024
"""Tag expressions that are cached."""
KEPT_CHARS: Final = 1_024
"""Longer ones are not cached: their codes take thirty times the memory of the shortest tags."""
TAGS_CHARS_MAX: Final = 16_384
"""Longer ones are refused."""

Filter: TypeAlias = TagFilter | SqlFilter
"""The first filters by the tags code of a queue's unit, the second by the properties of a
message."""


def is_tag_type(expression_type: str | None) -> bool:
    """Tags are the expression type where none is named. Source: ExpressionType.isTagType."""
    return not expression_type or expression_type == TAG


def tag_filter(expression: str | None) -> TagFilter:
    """The filter of a TAG expression. Raises: FilterInvalid when it has no tag, or too many."""
    if expression is None or len(expression) <= KEPT_CHARS:
        return _kept(expression)
    if len(expression) > TAGS_CHARS_MAX:
        reason = f"tags of {len(expression)} characters, at most {TAGS_CHARS_MAX} are read"
        raise FilterInvalid(reason)
    return _parsed(expression)


def _parsed(expression: str | None) -> TagFilter:
    try:
        return TagFilter.parse(expression)
    except ValueError as error:
        raise FilterInvalid(str(error)) from error


_kept = lru_cache(maxsize=TAG_FILTERS)(_parsed)


def filter_of(expression_type: str | None, text: str | None) -> Filter:
    """The filter of a subscription. Raises: FilterInvalid, also for an unknown language."""
    if is_tag_type(expression_type):
        return tag_filter(text)
    if expression_type != SQL92:
        raise FilterInvalid(f"the expression type {expression_type} is unknown")
    if not text:
        raise FilterInvalid("the expression is empty")
    return sql_filter(text)


def passes(matches: Filter | None, tags_code: int, properties: bytes) -> bool:
    """Whether a message with these properties passes a filter; None passes all."""
    if matches is None:
        return True
    if isinstance(matches, SqlFilter):
        return matches.matches(properties)
    return matches.matches(tags_code)
