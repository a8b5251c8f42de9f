"""Counters: one object per series, bounded, gone with their topic."""

from __future__ import annotations

from aerobee.broker.metrics.stats import BrokerStats


def test_the_same_topic_and_type_is_counted_in_one_place() -> None:
    stats = BrokerStats()
    stats.topic_in("orders").messages_in += 1
    stats.topic_in("orders").messages_in += 2
    assert stats.topic_in("orders").messages_in == 3
    assert stats.topic_in("orders", "fifo").messages_in == 0


def test_a_group_is_counted_per_topic() -> None:
    stats = BrokerStats()
    stats.group_out("g", "a").bytes_out += 10
    assert stats.group_out("g", "b").bytes_out == 0
    assert stats.group_out("g", "a").bytes_out == 10


def test_past_the_limit_new_names_share_one_counter_and_known_ones_go_on() -> None:
    stats = BrokerStats(series_limit=2)
    for name in ("a", "b", "c", "d"):
        stats.topic_in(name).messages_in += 1
        stats.group_out(name, "t").messages_out += 1
    assert sorted(topic for topic, _ in stats.topics_in) == ["a", "b"]
    assert stats.overflow_in.messages_in == 2
    assert stats.overflow_out.messages_out == 2
    stats.topic_in("a").messages_in += 1
    assert stats.topic_in("a").messages_in == 2


def test_a_deleted_topic_takes_its_series_along_and_makes_room() -> None:
    stats = BrokerStats(series_limit=1)
    stats.topic_in("a").messages_in += 1
    stats.group_out("g", "a").messages_out += 1
    stats.forget_topic("a")
    assert (stats.topics_in, stats.groups_out) == ({}, {})
    assert stats.topic_in("b") is not stats.overflow_in


def test_a_deleted_group_takes_only_its_own_series_along() -> None:
    stats = BrokerStats()
    stats.group_out("g", "a").messages_out += 1
    kept = stats.group_out("h", "a")
    stats.forget_group("g")
    assert stats.groups_out == {("h", "a"): kept}
