"""Conditions as Spark hands them over, and what they leave to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from aerobee.spark.columns import COLUMNS, PRESETS
from aerobee.spark.offsets import Queue
from aerobee.spark.pushdown import CLOCK_SLACK_MS, EVERYTHING, Narrowed, narrowed

SAME = {name: name for name in COLUMNS}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def left_by(*filters: Filter, with_tags: bool = True) -> tuple[Narrowed, list[Filter]]:
    return narrowed(list(filters), SAME, with_tags=with_tags)


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (EqualTo(("topic",), "t"), Narrowed(topics=frozenset(["t"]))),
        (In(("topic",), ("t", "u")), Narrowed(topics=frozenset(["t", "u"]))),
        (EqualNullSafe(("brokerName",), "b"), Narrowed(brokers=frozenset(["b"]))),
        (In(("queueId",), (1, 2)), Narrowed(queue_ids=frozenset([1, 2]))),
        (EqualTo(("queueOffset",), 7), Narrowed(least=7, below=8)),
        (GreaterThan(("queueOffset",), 7), Narrowed(least=8)),
        (GreaterThanOrEqual(("queueOffset",), 7), Narrowed(least=7)),
        (LessThan(("queueOffset",), 7), Narrowed(below=7)),
        (LessThanOrEqual(("queueOffset",), 7), Narrowed(below=8)),
    ],
)
def test_these_need_not_be_checked_again(one: Filter, left: Narrowed) -> None:
    assert left_by(one) == (left, [])


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (In(("queueOffset",), (9, 3)), Narrowed(least=3, below=10)),
        (EqualTo(("tags",), "a"), Narrowed(tags=frozenset(["a"]))),
        (In(("tags",), ("a", "b")), Narrowed(tags=frozenset(["a", "b"]))),
        (GreaterThan(("storeTimestamp",), NOON), Narrowed(since_ms=NOON_MS - CLOCK_SLACK_MS)),
        (LessThan(("storeTimestamp",), NOON), Narrowed(until_ms=NOON_MS + CLOCK_SLACK_MS)),
    ],
)
def test_these_shorten_the_read_and_are_checked_again(one: Filter, left: Narrowed) -> None:
    assert left_by(one) == (left, [one])


@pytest.mark.parametrize(
    "one",
    [
        IsNotNull(("topic",)),
        Not(EqualTo(("topic",), "t")),
        StringStartsWith(("topic",), "t"),
        GreaterThan(("topic",), "t"),
        GreaterThan(("queueId",), 3),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "k"), "x"),
        EqualTo(("bornTimestamp",), NOON),
        EqualNullSafe(("topic",), None),
        In(("storeTimestamp",), (NOON,)),
        In(("queueId",), (1, None)),
        LessThan(("tags",), "x"),
        EqualTo(("tags",), ""),
        EqualTo(("tags",), "a||b"),
        EqualTo(("tags",), "*"),
        EqualTo(("tags",), " a"),
    ],
)
def test_these_are_left_to_spark(one: Filter) -> None:
    assert left_by(one) == (EVERYTHING, [one])


def test_several_narrow_each_other() -> None:
    left, rest = left_by(
        In(("topic",), ("t", "u")),
        EqualTo(("topic",), "u"),
        GreaterThan(("queueOffset",), 5),
        GreaterThan(("queueOffset",), 3),
        LessThan(("queueOffset",), 9),
        LessThanOrEqual(("queueOffset",), 20),
    )
    assert left == Narrowed(topics=frozenset(["u"]), least=6, below=9)
    assert rest == []


def test_an_instant_has_a_zone_and_its_millisecond_is_rounded_down() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=8))) + timedelta(microseconds=999)
    left, _ = left_by(EqualTo(("storeTimestamp",), elsewhere))
    assert left.since_ms == NOON_MS - CLOCK_SLACK_MS
    assert left.until_ms == NOON_MS + CLOCK_SLACK_MS


def test_tags_are_not_asked_for_beside_another_expression() -> None:
    one = EqualTo(("tags",), "a")
    assert left_by(one, with_tags=False) == (EVERYTHING, [one])


def test_columns_go_by_the_names_of_the_preset() -> None:
    filters = [EqualTo(("partition",), 2), EqualTo(("timestampType",), 1), EqualTo(("key",), b"k")]
    left, rest = narrowed(filters, PRESETS["kafka"], with_tags=True)
    assert left == Narrowed(queue_ids=frozenset([2]))
    assert rest == filters[1:]


def test_which_queues_are_wanted() -> None:
    queue = Queue("t", "b", 1)
    assert EVERYTHING.wants(queue)
    assert Narrowed(topics=frozenset(["t"]), brokers=frozenset(["b"])).wants(queue)
    assert not Narrowed(topics=frozenset(["u"])).wants(queue)
    assert not Narrowed(brokers=frozenset()).wants(queue)
    assert not Narrowed(queue_ids=frozenset([0, 2])).wants(queue)
    assert not Narrowed(tags=frozenset()).wants(queue)
