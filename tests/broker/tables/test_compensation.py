import pytest

from broker.tables import compensation as module
from broker.tables.compensation import CompensationTable

TIMEOUT_MS = 1_000


def test_the_last_request_of_a_group_says_what_it_consumes() -> None:
    table = CompensationTable()
    table.note("g", "T", None, "*", 0)
    table.note("g", "U", "TAG", "a", 0)
    table.note("g", "T", "SQL92", "a > 1", 5)
    known = table.topics("g")
    assert set(known) == {"T", "U"}
    assert (known["T"].expression_type, known["T"].expression) == ("SQL92", "a > 1")
    assert table.topics("nobody") == {}


def test_what_is_not_renewed_in_time_is_gone() -> None:
    table = CompensationTable()
    table.note("g", "T", None, "*", 0)
    table.note("g", "U", None, "*", 400)
    table.note("h", "T", None, "*", 0)
    table.expire(TIMEOUT_MS, TIMEOUT_MS)
    assert table.count == 3
    table.expire(TIMEOUT_MS + 1, TIMEOUT_MS)
    assert (set(table.topics("g")), table.topics("h"), table.count) == ({"U"}, {}, 1)


def test_no_more_is_noted_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPENSATIONS_MAX", 2)
    table = CompensationTable()
    for topic in ("T", "U", "V"):
        table.note("g", topic, None, "*", 0)
    table.note("g", "U", None, "b", 9)
    assert set(table.topics("g")) == {"T", "U"}
    assert table.topics("g")["U"].last_update_ms == 9
    table.expire(TIMEOUT_MS + 5, TIMEOUT_MS)
    table.note("h", "V", None, "*", 0)
    assert table.topics("h")
