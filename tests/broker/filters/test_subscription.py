import pytest

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import filter_of
from aerobee.store.format.tags import ALL, TagFilter, java_hash


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_no_type_means_tags(kind: str | None) -> None:
    found = filter_of(kind, "A || B")
    assert isinstance(found, TagFilter)
    assert found.codes == frozenset((java_hash("A"), java_hash("B")))
    assert filter_of(kind, "*") is ALL
    assert filter_of(kind, None) is ALL


def test_sql_is_compiled() -> None:
    found = filter_of("SQL92", "a > 1")
    assert isinstance(found, SqlFilter)
    assert found is filter_of("SQL92", "a > 1")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("TAG", "||"), ("SQL92", ""), ("SQL92", None), ("SQL92", "a >"), ("sql92", "a")],
)
def test_the_rest_is_refused(kind: str, text: str | None) -> None:
    with pytest.raises(FilterInvalid):
        filter_of(kind, text)


def test_tags_beyond_the_limit_are_refused_and_long_ones_not_kept() -> None:
    tags = "||".join(f"tag{number:05}" for number in range(1_600))
    found = filter_of("TAG", tags)
    assert isinstance(found, TagFilter)
    assert found.codes is not None
    assert len(found.codes) == 1_600
    assert filter_of("TAG", tags) is not found, "with some thousands of these no memory would do"
    assert filter_of("TAG", "A || B") is filter_of("TAG", "A || B")
    with pytest.raises(FilterInvalid, match="at most 16384 are read"):
        filter_of("TAG", "x" * 16_385)
