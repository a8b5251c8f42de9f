"""What a subscription may say: tags, conditions, and nothing that is neither."""

from typing import Any

import pytest

from aerobee import Filter
from aerobee.errors import ConfigurationError


@pytest.mark.parametrize("text", ["*", "", "  "])
def test_a_star_or_nothing_wants_all(text: str) -> None:
    assert Filter.of(text) == Filter("*")
    assert Filter.of(text).wants(None)


def test_tags_are_read_as_brokers_read_them() -> None:
    found = Filter.of("A || B||C ")
    assert (found.expression, found.kind) == ("A || B||C ", "TAG")
    assert found.wanted == {"A", "B", "C"}
    assert found.wants("B")
    assert not found.wants("D")
    assert not found.wants(None)
    assert Filter.of(found) is found
    assert Filter.tags("A", "B").expression == "A || B"


@pytest.mark.parametrize(
    "text", [" || ", "a > 5", "a=1", "a IS NULL", "A|B", "A,B", "* || A", "A || b = 'x'", "A B"]
)
def test_what_is_neither_tags_nor_sql_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"names no tag|looks like no tag"):
        Filter.of(text)


@pytest.mark.parametrize("wrong", [None, 5, b"A", ["A"], print])
def test_what_is_no_text_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a text or a Filter"):
        Filter.of(wrong)


def test_an_odd_tag_may_be_named_as_one() -> None:
    assert Filter.tags("a > 5").wants("a > 5")
    for wrong in ((), ("",), ("A || B",), ("*",)):
        with pytest.raises(ConfigurationError):
            Filter.tags(*wrong)


def test_a_condition_goes_to_the_broker_as_it_stands() -> None:
    found = Filter.sql("a > 5 AND b IS NOT NULL")
    assert (found.expression, found.kind) == ("a > 5 AND b IS NOT NULL", "SQL92")
    assert found.wants("any tag")


@pytest.mark.parametrize("text", ["", "a >", "a != 1", "'x'", "a LIKE 'x%'", "a = 1; b = 2"])
def test_a_condition_that_no_broker_takes_is_refused_here(text: str) -> None:
    with pytest.raises(ConfigurationError, match="SQL filter"):
        Filter.sql(text)
