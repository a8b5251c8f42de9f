import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.tags import (
    ALL,
    EXT_ADDRESS_MAX,
    TagFilter,
    java_hash,
    tags_code,
    tags_code_of,
)


def hash_by_definition(text: str) -> int:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(
    ("text", "value"),
    [("TagA", 2598919), ("", 0), ("TopicA#k1", -1903240649), ("polygenelubricants", -(2**31))],
)
def test_known_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text())
def test_the_hash_runs_over_utf_16_units(text: str) -> None:
    assert java_hash(text) == hash_by_definition(text)


def test_astral_characters_count_as_two_units() -> None:
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00


def test_no_tags_give_no_code() -> None:
    assert tags_code(None) == tags_code("") == tags_code_of(b"KEYS\x01k\x02TAGS\x01\x02") == 0


def test_the_code_is_that_of_the_tags_property() -> None:
    assert tags_code_of(b"KEYS\x01k1\x02TAGS\x01TagA\x02") == 2598919
    assert tags_code_of(b"TAGS\x01TagA") == 2598919


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_passes_without_an_expression(expression: str | None) -> None:
    assert TagFilter.parse(expression) is ALL
    assert ALL.matches(0)
    assert ALL.matches(-5)


def test_an_expression_lets_its_tags_through() -> None:
    chosen = TagFilter.parse(" TagA || TagB||")
    assert chosen.matches(java_hash("TagA"))
    assert chosen.matches(java_hash("TagB"))
    assert not chosen.matches(java_hash("TagC"))
    assert not chosen.matches(0)


def test_separators_alone_are_no_expression() -> None:
    with pytest.raises(ValueError, match="names no tag"):
        TagFilter.parse("||")


def test_a_code_is_compared_by_its_lower_half() -> None:
    assert TagFilter([7]).matches((1 << 32) + 7)
    assert TagFilter([-7]).matches((1 << 33) - 7)
    assert not TagFilter([7]).matches((1 << 32) + 8)


def test_a_unit_whose_bits_lie_elsewhere_passes() -> None:
    assert TagFilter([7]).matches(EXT_ADDRESS_MAX)


def test_long_texts_are_hashed_and_not_kept() -> None:
    texts = [f"{number:04}" * 1_000 for number in range(100)]
    codes = [java_hash(text) for text in texts]
    tracemalloc.start()
    try:
        assert [tags_code_of(b"TAGS\x01" + text.encode()) for text in texts] == codes
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert codes[7] == hash_by_definition(texts[7])
    assert held_bytes < 1 << 17, "each has 4 KB"
