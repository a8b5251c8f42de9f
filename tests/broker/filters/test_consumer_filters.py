import json
from typing import Any

import pytest

from aerobee.broker.filters import consumer_filters as module
from aerobee.broker.filters.consumer_filters import (
    DEAD_BEFORE_START_MS,
    DEAD_KEPT_MS,
    ConsumerFilter,
    ConsumerFilterTable,
)
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.bodies.client import SubscriptionData

NOW_MS = 1_700_000_000_000

JAVA_FILE = b"""{ "filterDataByTopic":{ "TopicTest":{ "groupFilterData":{ "GID_SQL":{
\t"bloomFilterData":{ "bitNum":216, "bitPos":[77,43,206] }, "bornTime":1700000000000,
\t"clientVersion":1700000000000, "consumerGroup":"GID_SQL", "dead":false, "deadTime":0,
\t"expression":"a > 5", "expressionType":"SQL92", "topic":"TopicTest" } },
\t"topic":"TopicTest" } } }"""


def wish(
    text: str, version: int = 1, topic: str = "T", kind: str | None = "SQL92"
) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)


def register(
    table: ConsumerFilterTable, group: str, data: list[SubscriptionData], now_ms: int
) -> list[str]:
    return table.register(group, data, now_ms, finished(table.compiled(group, data)))


def known(table: ConsumerFilterTable, topic: str = "T", group: str = "g") -> ConsumerFilter:
    entry = table.get(topic, group)
    assert entry is not None
    return entry


def test_a_newer_version_replaces_and_an_older_one_does_not() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a > 1", 5)], NOW_MS)
    register(table, "g", [wish("a > 2", 5)], NOW_MS + 1)
    register(table, "g", [wish("a > 3", 4)], NOW_MS + 2)
    assert (known(table).expression, known(table).born_ms) == ("a > 1", NOW_MS)
    register(table, "g", [wish("a > 1", 6)], NOW_MS + 3)
    assert (known(table).client_version, known(table).born_ms) == (6, NOW_MS)
    register(table, "g", [wish("a > 4", 7)], NOW_MS + 4)
    entry = known(table)
    assert (entry.expression, entry.client_version, entry.born_ms) == ("a > 4", 7, NOW_MS + 4)
    assert entry.sql is not None
    assert entry.sql.matches(b"a\x015\x02")


def test_what_does_not_compile_leaves_the_filter_of_before() -> None:
    table = ConsumerFilterTable()
    assert register(table, "g", [wish("a >")], NOW_MS) == [
        "T: the end at character 4",
    ]
    assert table.get("T", "g") is None
    register(table, "g", [wish("a > 1", 2)], NOW_MS)
    [reason] = register(table, "g", [wish("a > 'x'", 3), wish("x", 1, "U", "XPATH")], NOW_MS)[:1]
    assert reason.startswith("T: ")
    assert (known(table).client_version, known(table).dead_ms) == (2, 0)


def test_a_text_that_the_group_has_had_is_not_compiled_again() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a > 1"), wish("b > 1", topic="U")], NOW_MS)
    first = known(table).sql
    table.group_gone("g", NOW_MS)
    news = [wish("a > 1", 2), wish("b > 2", 2, "U"), wish("c", 2, "V"), wish("a > 1", 2, "T", "X")]
    compiling = table.compiled("g", news)
    assert sum(1 for _ in compiling) == 3
    register(table, "g", news[:3], NOW_MS)
    assert (known(table).sql is first, table.count) == (True, 3)


def test_tags_are_no_filter_and_end_one() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a", kind="TAG"), wish("*", kind=None)], NOW_MS)
    assert (table.by_topic, table.changes) == ({}, 0)
    register(table, "g", [wish("a > 1")], NOW_MS)
    register(table, "g", [wish("a", kind="TAG")], NOW_MS + 9)
    assert known(table).dead_ms == NOW_MS + 9


def test_a_dead_filter_is_revived_by_whatever_version_comes_back() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a > 1", 5)], NOW_MS)
    table.group_gone("g", NOW_MS + 1)
    table.group_gone("g", NOW_MS + 2)
    assert known(table).dead_ms == NOW_MS + 1
    register(table, "g", [wish("a > 2", 4)], NOW_MS + 3)
    assert (known(table).expression, known(table).dead_ms) == ("a > 2", 0)


def test_a_day_after_its_death_a_filter_is_forgotten() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a > 1"), wish("a > 1", topic="U")], NOW_MS)
    register(table, "h", [wish("a > 1")], NOW_MS)
    table.group_gone("g", NOW_MS)
    table.forget_dead(NOW_MS + DEAD_KEPT_MS - 1)
    assert table.get("T", "g")
    table.forget_dead(NOW_MS + DEAD_KEPT_MS)
    assert table.get("T", "g") is None
    assert table.get("T", "h")
    assert (set(table.by_topic), set(table.topics_of)) == ({"T"}, {"h"})


def test_no_more_are_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILTERS_MAX", 2)
    table = ConsumerFilterTable()
    [reason] = register(table, "g", [wish("a", topic=topic) for topic in "TUV"], NOW_MS)
    assert "2 is the limit" in reason
    assert register(table, "g", [wish("b", 2, "U")], NOW_MS) == []


def test_a_file_of_the_java_broker_is_read_and_its_filters_are_dead() -> None:
    table = ConsumerFilterTable()
    document: Any = relaxed_json.decode(JAVA_FILE)
    table.load(document, NOW_MS)
    entry = known(table, "TopicTest", "GID_SQL")
    assert (entry.expression, entry.client_version) == ("a > 5", 1_700_000_000_000)
    assert entry.dead_ms == NOW_MS - DEAD_BEFORE_START_MS
    register(table, "GID_SQL", [wish("a > 5", 1_700_000_000_000, "TopicTest")], NOW_MS)
    entry = known(table, "TopicTest", "GID_SQL")
    assert (entry.dead_ms, entry.born_ms, entry.sql is None) == (0, 1_700_000_000_000, False)


def test_what_is_saved_is_read_back() -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a = 'ü'", 3), wish("b IS NULL", 4, "U")], NOW_MS)
    register(table, "h", [wish("c")], NOW_MS)
    table.group_gone("h", NOW_MS + 1)
    document = json.loads(json.dumps(table.document()))
    again = ConsumerFilterTable()
    again.load(document, NOW_MS + 100_000)
    assert known(again, "T", "h").dead_ms == NOW_MS + 1, "the day counts from its death"
    assert known(again, "U").dead_ms == NOW_MS + 100_000 - DEAD_BEFORE_START_MS
    for entry in (known(again), known(again, "U")):
        entry.dead_ms = 0
    assert again.document() == document


@pytest.mark.parametrize(
    "document",
    [
        {"filterDataByTopic": []},
        {"filterDataByTopic": {"T": []}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"expression": 1}}}}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {}}}}},
        {
            "filterDataByTopic": {
                "T": {
                    "groupFilterData": {
                        "g": {"expression": "a", "expressionType": "SQL92", "bornTime": "x"}
                    }
                }
            }
        },
    ],
)
def test_a_file_of_another_shape_changes_nothing(document: dict[str, Any]) -> None:
    table = ConsumerFilterTable()
    register(table, "g", [wish("a > 1")], NOW_MS)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        table.load(document, NOW_MS)
    assert known(table).expression == "a > 1"
