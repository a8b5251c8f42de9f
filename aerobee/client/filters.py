"""Filters of a subscription: all messages, those with certain tags, or an SQL condition.

Brokers compare hashes of tags, so tags are compared again here; only brokers evaluate SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from aerobee.errors import ConfigurationError

NO_TAG = frozenset("<>=()'\"|&,;")
"""Characters of conditions or malformed tag lists, which are refused in tags."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a subscription; created by `Filter.tags`, `Filter.sql` or from a text.

    `expression` and `kind` are sent to the broker; `wanted` are the tags, empty for no check.
    """

    expression: str
    kind: Literal["TAG", "SQL92"] = "TAG"
    wanted: frozenset[str] = frozenset()

    @classmethod
    def tags(cls, *tags: str) -> Filter:
        """Messages with one of these tags. Raises: ConfigurationError for an invalid tag."""
        wanted = [tag.strip() for tag in tags]
        if not wanted or not all(wanted) or any("||" in tag or tag == "*" for tag in wanted):
            raise ConfigurationError(f"{' || '.join(tags)!r}: give one tag or several, none empty")
        return cls(" || ".join(wanted), "TAG", frozenset(wanted))

    @classmethod
    def sql(cls, condition: str) -> Filter:
        """Messages whose properties satisfy a condition, such as `region = 'north' AND a > 5`.

        Raises: ConfigurationError with the position of a syntax error.
        """
        # Few programs need the parser, and its import takes as long as that of all options.
        from aerobee.store.format.sql_parser import parse
        from aerobee.store.format.sql_tokens import SqlInvalid

        try:
            ignored = parse(condition).ignored
        except SqlInvalid as error:
            raise ConfigurationError(f"SQL filter {condition!r}: {error}") from error
        if ignored:
            raise ConfigurationError(
                f"SQL filter {condition!r}: {ignored!r} stands behind the condition and would be "
                "ignored; there is no LIKE, no arithmetic and no comparison of more than two"
            )
        return cls(condition, "SQL92")

    @classmethod
    def of(cls, expression: Expression) -> Filter:
        """The filter of a text: `*` or empty for all messages, or tags as `A || B`.

        Raises: ConfigurationError for a text that is neither, and for what is no text.
        """
        if isinstance(expression, Filter):
            return expression
        if not isinstance(expression, str):
            raise ConfigurationError(
                f"a subscription's expression is a text or a Filter, not {expression!r}"
            )
        if expression.strip() in ("", "*"):
            return ALL
        tags = [tag for piece in expression.split("||") if (tag := piece.strip())]
        if not tags:
            raise ConfigurationError(f"subscription expression {expression!r} names no tag")
        for tag in tags:
            if tag == "*" or NO_TAG.intersection(tag) or len(tag.split()) > 1:
                raise ConfigurationError(
                    f"subscription expression {expression!r}: {tag!r} looks like no tag. Write "
                    "Filter.sql(...) for a condition, Filter.tags(...) if it is a tag"
                )
        return cls(expression, "TAG", frozenset(tags))

    def wants(self, tag: str | None) -> bool:
        """Whether a message with this tag passes; true for SQL filters."""
        return not self.wanted or tag in self.wanted

    def __str__(self) -> str:
        return self.expression


Expression: TypeAlias = str | Filter
ALL = Filter("*")
