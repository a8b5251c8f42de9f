import pytest

from broker.errors import FilterInvalid
from broker.filters.sql_filter import SqlFilter
from broker.filters.subscription import filter_of
from store.format.tags import ALL, TagFilter, java_hash


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
