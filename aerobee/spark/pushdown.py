"""Conditions of a query that shorten the read: by queue, by offset, by time, by tag.

Pure; a condition is looked at by the name of its class and its fields, as Spark hands it over.
Law: what is narrowed holds at least every message that satisfies the conditions, so a condition may
always be checked again; `exact` ones need not be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aerobee.spark.plan import Queue

__all__ = ["EVERYTHING", "Narrowed", "narrowed"]

F = TypeVar("F")

OPERATORS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
LONGEST_OFFSET: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MS: Final = timedelta(milliseconds=1)
CLOCK_SLACK_MS: Final = 10_000
"""How far a broker's clock may have been set back between two messages of a queue."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left to read; None: all of them. Times in ms, `until_ms` and `below` exclusive."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    least: int = 0
    below: int = LONGEST_OFFSET
    since_ms: int | None = None
    until_ms: int | None = None

    def wants(self, queue: Queue) -> bool:
        """Whether any message of this queue can be wanted."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and self.tags != frozenset()
        )


EVERYTHING: Final = Narrowed()


def narrowed(
    filters: Iterable[F], columns: Mapping[str, str], *, with_tags: bool
) -> tuple[Narrowed, list[F]]:
    """What the filters leave, and the filters that must still be applied to every message.

    `columns`: the name of a column in the query → the column of ours that it is. `with_tags`:
    whether the broker may be asked for tags, that is, is not asked for anything else already.
    """
    left = EVERYTHING
    rest: list[F] = []
    for one in filters:
        after, exact = _after(left, one, columns, with_tags=with_tags)
        left = after
        if not exact:
            rest.append(one)
    return left, rest


def _after(
    left: Narrowed, one: object, columns: Mapping[str, str], *, with_tags: bool
) -> tuple[Narrowed, bool]:
    """What one more filter leaves, and whether nothing else is left by it."""
    operator = OPERATORS.get(type(one).__name__)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if operator is None or len(path) != 1:
        return left, False
    column, value = columns.get(path[0]), getattr(one, "value", None)
    if column in ("topic", "brokerName", "queueId"):
        return _queues(left, column, operator, value)
    if column == "queueOffset":
        return _offsets(left, operator, value)
    if column == "storeTimestamp" and isinstance(value, datetime):
        return _times(left, operator, value), False
    if column == "tags" and with_tags:
        return _tags(left, operator, value), False
    return left, False


def _values(operator: str, value: Any, kind: type) -> frozenset[Any] | None:
    """The values that `=` or `in` allow; None for other operators and odd values."""
    if operator not in ("=", "in"):
        return None
    values: Collection[Any] = value if operator == "in" else (value,)
    return frozenset(values) if all(isinstance(one, kind) for one in values) else None


def _both(one: frozenset[Any] | None, other: frozenset[Any]) -> frozenset[Any]:
    return other if one is None else one & other


def _queues(left: Narrowed, column: str, operator: str, value: Any) -> tuple[Narrowed, bool]:
    values = _values(operator, value, int if column == "queueId" else str)
    if values is None:
        return left, False
    if column == "topic":
        return replace(left, topics=_both(left.topics, values)), True
    if column == "brokerName":
        return replace(left, brokers=_both(left.brokers, values)), True
    return replace(left, queue_ids=_both(left.queue_ids, values)), True


def _offsets(left: Narrowed, operator: str, value: Any) -> tuple[Narrowed, bool]:
    values = list(value) if operator == "in" else [value]
    if not values or not all(isinstance(one, int) for one in values):
        return left, False
    least, below = left.least, left.below
    if operator in ("=", "in", ">="):
        least = max(least, min(values))
    if operator in ("=", "in", "<="):
        below = min(below, max(values) + 1)
    if operator == ">":
        least = max(least, value + 1)
    if operator == "<":
        below = min(below, value)
    return replace(left, least=least, below=below), operator != "in"


def _times(left: Narrowed, operator: str, value: datetime) -> Narrowed:
    if operator not in (">", ">=", "<", "<=", "="):
        return left
    at_ms = (value.astimezone(UTC) - EPOCH) // MS
    since, until = left.since_ms, left.until_ms
    if operator in (">", ">=", "="):
        after_ms = max(0, at_ms - CLOCK_SLACK_MS)
        since = after_ms if since is None else max(since, after_ms)
    if operator in ("<", "<=", "="):
        before_ms = max(0, at_ms + CLOCK_SLACK_MS)
        until = before_ms if until is None else min(until, before_ms)
    return replace(left, since_ms=since, until_ms=until)


def _tags(left: Narrowed, operator: str, value: Any) -> Narrowed:
    values = _values(operator, value, str)
    if values is None or not all(_can_be_asked_for(tag) for tag in values):
        return left
    return replace(left, tags=_both(left.tags, values))


def _can_be_asked_for(tag: str) -> bool:
    """Whether a subscription expression can name it."""
    return bool(tag) and tag == tag.strip() and "|" not in tag and tag != "*"
