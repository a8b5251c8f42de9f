"""Which lines a message finds, and that it asks only a few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import passes
from aerobee.broker.holds.held_request import HeldRequest
from aerobee.broker.holds.waiting_lines import (
    ASKED_BYTES,
    ASKED_LINES,
    CODES_INDEXED,
    WaitingLine,
    WaitingLines,
)
from aerobee.store.format.tags import EXT_ADDRESS_MAX, TagFilter, tags_code

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    import pytest

    from aerobee.broker.filters.subscription import Filter

SHARING = 20
Lines: TypeAlias = "WaitingLines[HeldRequest]"


class Peer:
    held = 0
    closed = False

    @property
    def lane(self) -> Peer:
        return self


def request(matches: Filter | None) -> HeldRequest:
    return HeldRequest(connection=Peer(), group="g", matches=matches, deadline=0.0)


def tags(*names: str) -> TagFilter:
    return TagFilter.parse("||".join(names))


def held(lines: Sequence[WaitingLine[HeldRequest]]) -> list[HeldRequest]:
    return [one for line in lines for one in line.held]


CODES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**32 + 2, EXT_ADDRESS_MAX, EXT_ADDRESS_MAX + 1]),
)
FILTERS = st.one_of(
    st.none(),
    st.builds(TagFilter, st.frozensets(st.integers(-3, 3), min_size=1, max_size=4)),
    st.builds(TagFilter, st.just(range(-3, CODES_INDEXED))),
    st.builds(SqlFilter, st.sampled_from(["n > 5", "n = 1"])),
)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), FILTERS), max_size=12),
    CODES,
    st.sampled_from([b"", b"n\x011\x02", b"n\x017\x02"]),
    st.randoms(use_true_random=False),
)
def test_a_message_finds_those_whose_filter_passes_it_and_nobody_else(
    waiting: list[tuple[str, Filter | None]], code: int, properties: bytes, chance: Random
) -> None:
    lines: Lines = WaitingLines(SHARING)
    added = [(owner, one := request(matches), lines.add(one, owner)) for owner, matches in waiting]
    chance.shuffle(added)
    while True:
        left = {one for _, one, _ in added if passes(one.matches, code, properties)}
        assert set(held(lines.passing(code, properties))) == left
        of_a = {one for owner, one, _ in added if owner == "a"} & left
        assert set(held(lines.passing_of("a", code, properties))) == of_a
        if not added:
            break
        _, one, line = added.pop()
        assert lines.remove(one, line) == bool(added)
    assert not lines


def test_thousands_of_tags_are_not_looked_at_for_a_message_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "aerobee.broker.holds.waiting_lines.passes", lambda *message: asked.append(message)
    )
    lines: Lines = WaitingLines(SHARING)
    one = [lines.add(request(tags(f"t{number}"))) for number in range(20_000)]
    assert lines.passing(tags_code("other"), b"") == []
    assert lines.passing(tags_code("t7"), b"") == [one[7]]
    assert not asked


def test_few_are_asked_and_others_wait_as_if_they_had_no_filter() -> None:
    lines: Lines = WaitingLines(SHARING)
    sql = [lines.add(request(SqlFilter(f"n > {number}"))) for number in range(ASKED_LINES)]
    beyond = [request(SqlFilter(f"n > {100 + number}")) for number in range(3)]
    [line] = {lines.add(one) for one in beyond}
    assert lines.passing(0, b"n\x010\x02") == [line]
    assert held([line]) == beyond
    assert lines.passing(0, b"n\x012\x02") == [line, *sql[:2]]
    lines.close(sql[0])
    assert lines.add(request(SqlFilter("n > 100"))) is not line, "there is room again"
    assert lines.add(request(None)) is line


def test_a_message_with_long_properties_wakes_who_would_be_asked() -> None:
    lines: Lines = WaitingLines(SHARING)
    line = lines.add(request(SqlFilter("n > 5")))
    assert lines.passing(0, b"n\x011\x02" + b"m" * ASKED_BYTES) == [line]


def test_a_filter_with_many_tags_is_asked() -> None:
    lines: Lines = WaitingLines(SHARING)
    many = [str(number) for number in range(CODES_INDEXED + 1)]
    line = lines.add(request(tags(*many)))
    assert lines.passing(tags_code("3"), b"") == [line]
    assert lines.passing(tags_code("other"), b"") == []


def test_filters_that_want_one_tag_are_found_by_it_up_to_a_limit() -> None:
    lines: Lines = WaitingLines(SHARING)
    for number in range(SHARING + ASKED_LINES):
        lines.add(request(tags("same", str(number))))
    assert lines.passing(tags_code("other"), b"") == []
    assert len(lines.passing(tags_code("same"), b"")) == SHARING + ASKED_LINES
    assert lines.add(request(tags("same", "x")), "other") in lines.passing(tags_code("x"), b"")
    beyond = lines.add(request(tags("same", "beyond")))
    assert lines.passing(tags_code("other"), b"") == [beyond]


def test_filters_that_pass_the_same_are_one_line_of_each_owner() -> None:
    lines: Lines = WaitingLines(SHARING)
    line = lines.add(request(tags("a", "b")), "one")
    assert lines.add(request(tags("b", "a")), "one") is line
    assert lines.add(request(tags("a", "b")), "other") is not line
    sql = lines.add(request(SqlFilter("n > 5")))
    assert lines.add(request(SqlFilter("n > 5"))) is sql
    assert len(list(lines)) == len(lines) == 3
