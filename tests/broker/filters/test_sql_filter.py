"""An SQL filter as a whole: what it takes, what it matches, how long that may last."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.sql_filter import CACHE_ENTRIES, SqlFilter, sql_filter
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.properties import encode
from aerobee.store.format.sql_parser import EXPRESSION_BYTES_MAX, parse
from tests.broker.filters import oracle
from tests.broker.filters.expressions import expressions, properties, texts
from tests.kit.health import slowness

JAVA_ANSWERS = Path(__file__).with_name("java_answers.jsonl")
"""Expression, properties, and what RocketMQ 5.4.0 makes of them: true, false, null, raised (an
exception at evaluation) or refused (one at compilation)."""


def wanted(expression: str, values: Mapping[str, str]) -> bool:
    return SqlFilter(expression).matches(encode(values).encode())


@pytest.mark.parametrize(
    ("expression", "values", "matches"),
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a > 5", {"a": "6.0"}, False),
        ("a > 5.0", {"a": "6"}, True),
        ("a > 5.5", {"a": "6"}, True),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("NOT a = 1", {"a": "2"}, False),
        ("NOT (a = 1)", {"a": "2"}, True),
        ("NOT (a = 1)", {}, False),
        ("a <> 1", {}, False),
        ("1 <> a", {}, True),
        ("a = b", {}, True),
        ("a <> b", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": "x"}, True),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x')", {}, False),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
        ("a NOT BETWEEN 1 AND 3", {}, False),
        ("a CONTAINS 'b'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'b'", {}, False),
        ("a STARTSWITH 'ab'", {"a": "abc"}, True),
        ("a NOT ENDSWITH 'c'", {"a": "abc"}, False),
        ("a = TRUE", {"a": "True"}, True),
        ("a <> TRUE", {"a": "yes"}, True),
        ("a", {"a": "true"}, False),
        ("TRUE", {}, True),
        ("NULL", {}, False),
        ("a = 1 OR b = 2", {"a": "x", "b": "2"}, False),
        ("b = 2 OR a = 1", {"a": "x", "b": "2"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a > b", {"a": "x", "b": "9"}, False),
        ("a LIKE 'x'", {"a": "x"}, False),
        ("a = 0x10", {"a": "0"}, True),
        ("a = 1)", {"a": "1"}, True),
        ("a = 9223372036854775807", {"a": "9223372036854775807"}, True),
    ],
)  # fmt: skip
def test_a_message_is_wanted_as_sql_says_and_as_java_does(
    expression: str, values: dict[str, str], matches: bool
) -> None:
    assert wanted(expression, values) is matches


@pytest.mark.parametrize(
    "expression",
    [
        *("", " ", "1", "'x'", "-a", "a =", "a NOT", "a = 1 AND 1", "a IS 1", "(a = 1"),
        *("a != 1", "a = 1;", "a.b = 1", "a @", "a = 'x", 'a = "x"', "a /* x", "é = 1"),
        *("a = 0.0", "a = 0e0", "a = 1e999", "a = 1e-400", "a = 9223372036854775808"),
        *("a > 'x'", "a > TRUE", "a > NULL", "a >= 1 >= 0", "a > 1 > 2", "a BETWEEN 2 AND 1"),
        *("a BETWEEN NULL AND 1", "a = NULL", "NULL <> a", "TRUE = 'x'", "TRUE = 1"),
        *("1 IN ('1')", "a IN (1)", "a IN ()", "a CONTAINS b", "NOT a IN ('x')"),
    ],
)
def test_what_java_refuses_is_refused_with_a_reason(expression: str) -> None:
    with pytest.raises(FilterInvalid) as refused:
        SqlFilter(expression)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.value.remark


def test_answers_of_the_java_broker_are_ours() -> None:
    differing = []
    for line in JAVA_ANSWERS.read_text().splitlines():
        expression, values, answer = json.loads(line)
        try:
            ours = "true" if wanted(expression, values) else "no match"
        except FilterInvalid:
            ours = "refused"
        if ours != (answer if answer in ("true", "refused") else "no match"):
            differing.append((expression, values, answer, ours))
    assert not differing


@settings(max_examples=300)
@given(expressions(), properties)
@example("-(a = 1) = 1 OR TRUE", {"a": "x"})
@example("a NOT BETWEEN -1 AND b CONTAINS '' IS NOT NULL", {"a": "1.0"})
def test_the_compiled_filter_agrees_with_the_walk_through_its_tree(
    expression: str, values: dict[str, str]
) -> None:
    try:
        compiled = SqlFilter(expression)
    except FilterInvalid:
        return
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()
    expected = oracle.matches(parse(expression).root, values)
    assert compiled.matches(encoded) is expected
    assert compiled.matches(memoryview(encoded)) is expected
    assert compiled.matches(encoded.removesuffix(b"\x02")) is expected


@given(texts)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with suppress(FilterInvalid):
        assert SqlFilter(text).matches(b"") in (True, False)


@settings(max_examples=100)
@given(expressions(), properties)
def test_no_message_takes_longer_than_a_millisecond(
    expression: str, values: dict[str, str]
) -> None:
    try:
        matches = SqlFilter(expression).matches
    except FilterInvalid:
        return
    encoded = encode(values).encode() + b"".join(b"k%d\x01%d\x02" % (n, n) for n in range(300))
    assert takes_no_millisecond(matches, encoded)


@pytest.mark.parametrize(
    "expression",
    [
        " OR ".join(f"a{number} = {number}" for number in range(125)),
        " OR ".join(f"a > {number}.5" for number in range(125)),
        " OR ".join("a CONTAINS 'zz'" for _ in range(125)),
        "(" * 31 + "a" + " <> b)" * 31 + " = TRUE",
        "NOT (" * 16 + "a OR b" + ")" * 16,
    ],
    ids=["many names", "many doubles", "many searches", "deep comparisons", "deep logic"],
)
def test_the_worst_filters_within_the_limits_take_no_millisecond(expression: str) -> None:
    matches = SqlFilter(expression).matches
    for value in ("1" * 4_000, "1" * 1_000, "z" * 4_000, "0x" + "1" * 900 + "p9"):
        assert takes_no_millisecond(matches, encode({"a": value, "b": value}).encode())


def takes_no_millisecond(matches: object, encoded: bytes) -> bool:
    """By the CPU of a machine that is no slower than usual."""
    took_s = quickest(matches, encoded)
    return took_s < 0.001 or took_s < 0.001 * slowness()


def quickest(matches: object, encoded: bytes) -> float:
    """Seconds of CPU: the least of a few runs, because others use this machine too."""
    assert callable(matches)
    taken = []
    for _ in range(5):
        begin = time.thread_time()
        matches(encoded)
        taken.append(time.thread_time() - begin)
    return min(taken)


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("a = '" + "x" * EXPRESSION_BYTES_MAX + "'", "8192 bytes"),
        ("a OR " * 300 + "a", "500 tokens"),
        ("(" * 33 + "a" + ")" * 33, "deeper than 32"),
        ("(" * 3_000, "deeper than 32"),
        ("NOT " * 400 + "a", "deeper than 32"),
        ("a" + " = b" * 33, "deeper than 32"),
        ("a" + " IS NULL" * 33, "deeper than 32"),
    ],
    ids=["bytes", "tokens", "parentheses", "only parentheses", "NOT", "equals", "IS NULL"],
)
def test_a_limit_is_named_when_it_is_passed(expression: str, limit: str) -> None:
    with pytest.raises(FilterInvalid, match=limit):
        SqlFilter(expression)


@pytest.mark.parametrize(
    "expression",
    ["(" * 32 + "a" + ")" * 32, "NOT " * 32 + "a", "a" + " <> TRUE" * 32, "a OR " * 249 + "a"],
)
def test_a_filter_at_a_limit_is_compiled(expression: str) -> None:
    assert SqlFilter(expression).matches(b"a\x01x\x02") in (True, False)


def test_text_behind_an_expression_has_no_effect_and_is_known() -> None:
    assert SqlFilter("a = 1 LIKE 'x'").ignored == "LIKE 'x'"
    assert SqlFilter("a = 1 -- said\n").ignored == ""


def test_the_last_value_that_is_not_empty_counts() -> None:
    matches = SqlFilter("a = 'x'").matches
    assert matches(b"a\x01y\x02a\x01x\x02")
    assert not matches(b"a\x01x\x02a\x01y\x02")
    assert matches(b"a\x01x\x02a\x01\x02"), "an empty value is none"
    assert not matches(b"ba\x01x\x02")
    assert not matches(b"b\x01a\x01x\x02")
    assert SqlFilter("a IS NULL").matches(b"a\x01\x02")


def test_a_filter_of_many_properties_reads_as_one_of_few() -> None:
    names = [f"p{number}" for number in range(40)]
    matches = SqlFilter(" AND ".join(f"{name} = '{name}'" for name in names)).matches
    whole = {name: name for name in names}
    assert matches(encode(whole).encode())
    assert not matches(encode(whole | {"p7": "x"}).encode())


def test_nothing_of_the_text_becomes_python() -> None:
    values = {"CLOSE": "1", "data": "1", "properties": "1", "c9": "1", "None": "1", "lambda": "x"}
    for name in values:
        assert wanted(f"{name} IS NOT NULL AND {name} IN ('1', 'x')", values)
    assert wanted("a = '\" or __import__(''os'')\\n'", {"a": "\" or __import__('os')\\n"})


def test_a_filter_is_compiled_once_and_the_last_ones_are_kept() -> None:
    sql_filter.cache_clear()
    first = sql_filter("a = 0")
    assert sql_filter("a = 0") is first
    for number in range(1, CACHE_ENTRIES + 1):
        sql_filter(f"a = {number}")
    assert sql_filter("a = 0") is not first
    assert sql_filter.cache_info().currsize == CACHE_ENTRIES
