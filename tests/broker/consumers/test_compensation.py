import pytest

from aerobee.broker.consumers import compensation as module
from aerobee.broker.consumers.compensation import CompensationTable

TIMEOUT_MS = 1_000


def test_requests_of_a_group_say_what_it_consumes() -> None:
    table = CompensationTable()
    table.note("g", "T", 0)
    table.note("g", "U", 0)
    table.note("h", "T", 0)
    table.note("g", "T", 5)
    assert table.topics("g") == {"T": 5, "U": 0}
    assert table.topics("nobody") == {}


def test_what_is_not_renewed_in_time_is_gone() -> None:
    table = CompensationTable()
    table.note("g", "T", 0)
    table.note("g", "U", 400)
    table.note("h", "T", 0)
    list(table.expire(TIMEOUT_MS, TIMEOUT_MS))
    assert table.count == 3
    list(table.expire(TIMEOUT_MS + 1, TIMEOUT_MS))
    assert (set(table.topics("g")), table.topics("h"), table.count) == ({"U"}, {}, 1)


def test_no_more_is_noted_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPENSATIONS_MAX", 2)
    table = CompensationTable()
    for topic in ("T", "U", "V"):
        table.note("g", topic, 0)
    table.note("g", "U", 9)
    assert set(table.topics("g")) == {"T", "U"}
    assert table.topics("g")["U"] == 9
    list(table.expire(TIMEOUT_MS + 5, TIMEOUT_MS))
    table.note("h", "V", 0)
    assert table.topics("h")


def test_a_few_groups_do_not_take_the_room_of_all() -> None:
    table = CompensationTable()
    for group in range(110):
        for topic in range(module.OF_GROUP_MAX):
            table.note(f"greedy {group}", f"T{topic}", 0)
    assert len(table.topics("greedy 0")) == module.OF_GROUP_MAX
    for topic in range(module.OF_GROUP_LEAST):
        table.note("modest", f"T{topic}", 0)
    assert len(table.topics("modest")) == module.OF_GROUP_LEAST
