"""Deleted topics: which messages they take along, and what a start makes of them."""

from __future__ import annotations

import msgspec
import pytest

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.topics.deleted_topics import DeletedTopics
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.wire.bodies.topic import TopicConfig


def test_a_deletion_covers_what_lay_before_it() -> None:
    existing: set[str] = set()
    deleted = DeletedTopics(10, existing)
    deleted.add("T", 100)
    assert deleted.covers("T", 99)
    assert not deleted.covers("T", 100)
    assert not deleted.covers("other", 0)
    deleted.add("T", 200)
    assert deleted.covers("T", 150)
    existing.add("T")
    assert not deleted.covers("T", 0), "what waits comes to the topic made anew"
    assert deleted.removed("T", 199), "what was stored stays deleted"
    assert not deleted.removed("T", 200)


def test_the_oldest_deletion_is_forgotten_first() -> None:
    deleted = DeletedTopics(2, ())
    for topic in ("a", "b", "a", "c"):
        deleted.add(topic, 1)
    assert list(deleted.log_ends) == ["a", "c"]


def test_only_what_concerns_the_log_is_kept() -> None:
    deleted = DeletedTopics(10, ())
    for topic, log_end in {"before": 100, "inside": 101, "cut": 900}.items():
        deleted.add(topic, log_end)
    assert deleted.fit(range(100, 500))
    assert deleted.log_ends == {"inside": 101, "cut": 500}
    assert not deleted.fit(range(100, 500))


def table() -> TopicTable:
    return TopicTable(BrokerOptions(broker_name="broker-a", max_topics=2))


def test_the_file_of_topics_keeps_deletions() -> None:
    topics = table()
    assert "deletedTopics" not in topics.document()
    for name in ("T", "U"):
        topics.put(TopicConfig(topic_name=name))
        topics.delete(name, 0, 7)
    assert topics.document()["deletedTopics"] == {"T": 7, "U": 7}
    topics.put(TopicConfig(topic_name="T"))
    again = table()
    again.load(msgspec.to_builtins(topics.document()))
    assert again.deleted.log_ends == {"T": 7, "U": 7}
    assert [again.deleted.covers(name, 6) for name in "TU"] == [False, True]
    assert "deletedTopics" not in again.extra


@pytest.mark.parametrize("malformed", [7, [], {"T": "soon"}, {"T": None}, {"T": {}}])
def test_malformed_deletions_change_nothing(malformed: object) -> None:
    topics = table()
    before = topics.document()
    with pytest.raises(ValueError, match=r"deletedTopics|Expected"):
        topics.load({"topicConfigTable": {"T": {"perm": 6}}, "deletedTopics": malformed})
    assert topics.document() == before
