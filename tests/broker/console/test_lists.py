"""Lists of the console: filter, stable sort, pages, and hostile queries."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.console.lists import FILTER_MAX, Query, arranged, query_of
from aerobee.broker.console.looks.viewers import Failure

ROWS: list[dict[str, Any]] = [
    {"group": "b", "lag": 3, "topics": ["Orders"]},
    {"group": "a", "lag": None, "topics": []},
    {"group": "C", "lag": 10, "topics": ["Bills", "orders-2"]},
    {"group": "d", "lag": 3, "topics": []},
]


def groups(**query: Any) -> list[str]:
    return [row["group"] for row in arranged(ROWS, Query(**query)).rows]


def test_a_filter_looks_into_every_text_in_any_case() -> None:
    assert groups(filter="ORDERS") == ["b", "C"]
    assert arranged(ROWS, Query(filter="orders", limit=1)).total == 2


def test_unknown_values_are_last_and_equal_ones_keep_their_order() -> None:
    assert groups(sort="lag") == ["b", "d", "C", "a"]
    assert groups(sort="-lag") == ["C", "b", "d", "a"]
    assert groups(sort="group") == ["a", "b", "C", "d"]


def test_pages_follow_each_other() -> None:
    assert groups(offset=1, limit=2) == ["a", "C"]
    assert groups(offset=9) == []


def test_an_unknown_column_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Failure, match="group, lag, topics"):
        groups(sort="-size")


@pytest.mark.parametrize(
    "given",
    [
        {"offset": "-1"},
        {"offset": "1e3"},
        {"limit": "0"},
        {"limit": "9" * 5_000},
        {"limit": "٣"},
        {"filter": "x" * (FILTER_MAX + 1)},
    ],
)
def test_hostile_queries_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(Failure) as refused:
        query_of(given)
    assert refused.value.status == 400
