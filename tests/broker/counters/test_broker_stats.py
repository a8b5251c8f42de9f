"""Counters: one object per series, bounded, gone with their topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from aerobee.broker.counters.broker_stats import BrokerStats, KnownNames
from aerobee.broker.metrics import metrics
from aerobee.broker.metrics.metric_table import METRICS
from tests.broker.metrics.test_metrics import FakeTimers, make_sources

LABEL_MAX = 255
FORGED = "forged-" + "x" * 31_000
FROM_TABLES = {"topic", "consumer_group"}
"""Labels with names of the tables of topics and groups, which have a limit each."""
OF_THE_BROKER = {
    "message_type": "three words of stats.py",
    "is_system": "true or false",
    "is_retry": "true or false",
    "is_long_polling": "true or false",
    "storage_type": "one word",
    "storage_medium": "one word",
    "timer_bound_s": "bounds of timers.py",
    "python": "one version, that of the interpreter",
    "language": "languages that RocketMQ knows, or other",
    "version": "names of versions, numbers before 4.0.0, or HIGHER_VERSION",
    "protocol_type": "one word",
    "consume_mode": "three words of sources.py, or other",
    "processor": "the pools",
    "stage": "stages of send_stages.py",
    "invocation_status": "success or failure",
    "revive_message_type": "CK or ACK",
    "put_status": "statuses of the store",
    "queue_id": "revive queues of the broker",
    "service": "services of the store",
    "request_code": "codes of RequestCode, and 20 kinds of others",
    "response_code": "codes that the broker answers",
    "result": "three words of latency.py",
    "reason": "words of access and of the store",
    "limit": "keys of settings",
    "slave": "addresses of connected slaves, at most SLAVES_MAX",
    "state": "five words of following.py",
}
"""Label → the bounded set that its values are from."""


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


def test_each_label_of_the_table_has_a_source_with_a_bound() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels == FROM_TABLES | OF_THE_BROKER.keys()


def known() -> KnownNames:
    """A broker with one topic, one group, and offsets of one in the other."""
    here = {"orders", "billing"}
    return KnownNames(
        here.__contains__, here.__contains__, lambda group, topic: {group, topic} == here
    )


def fill(stats: BrokerStats, topic: str, group: str) -> None:
    """Count once with all counters that have the name of a topic or group."""
    stats.topic_in(topic).put(1, 100)
    out = stats.group_out(group, topic)
    out.messages_out += 1
    out.bytes_out += 1
    out.unread_deleted += 1
    given_up = stats.given_up(group, topic)
    given_up.dead_letters += 1
    given_up.sent_back += 1
    stats.transaction(topic).commits += 1
    stats.timer(topic).enqueued += 1
    pop = stats.pop
    pop.add(pop.revive_in, (topic, group, "CK", "PUT_OK"))
    pop.add(pop.revive_out, (topic, group, "1", "CK"))
    pop.add(pop.retried, (topic, group, "PUT_OK"))
    pop.handed_out(group, topic, 0, 1)


def tables(stats: BrokerStats) -> Counter[str]:
    """How many names each table of counters has."""
    pop = stats.pop
    return Counter(
        topics=len(stats.topics_in),
        groups=len(stats.groups_out),
        transactions=len(stats.transactions),
        timers=len(stats.timers),
        revive_in=len(pop.revive_in),
        revive_out=len(pop.revive_out),
        retried=len(pop.retried),
        in_flight=len(pop.in_flight),
    )


def test_names_that_are_not_here_are_counted_together_in_every_metric() -> None:
    sources = make_sources()
    stats = sources.broker
    stats.known = known()
    fill(stats, "orders", "billing")
    before = tables(stats)
    assert set(before.values()) == {1}
    for topic, group in ((FORGED, FORGED), (FORGED, "billing"), ("orders", FORGED)):
        fill(stats, topic, group)
    assert tables(stats) == before, "a made-up name costs no memory"
    timers = FakeTimers()
    timers.waiting = {FORGED: 2, "orders": 1}  # type: ignore[misc]  # of this one
    sources = replace(sources, timers=timers, half_messages=lambda: [(FORGED, 3), ("orders", 1)])
    text = b"".join(metrics.pages(sources)).decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    together = {s.name: s.value for s in samples if "otel_metric_overflow" in s.labels}
    assert max(len(label) for s in samples for label in s.labels.values()) <= LABEL_MAX
    assert FORGED not in text
    assert together["rocketmq_send_to_dlq_messages_total"] == 3
    assert together["rocketmq_pop_revive_retry_messages_total"] == 3
    assert together["rocketmq_half_messages"] == 3
    assert together["rocketmq_timing_messages"] == 2


def test_a_group_cannot_count_for_a_topic_that_it_does_not_read() -> None:
    stats = BrokerStats()
    stats.known = known()
    stats.known = stats.known._replace(topic=lambda topic: topic in {"orders", "of-others"})
    stats.given_up("billing", "of-others").dead_letters += 1
    assert stats.groups_out == {}
    stats.given_up("billing", "orders").dead_letters += 1
    assert list(stats.groups_out) == [("billing", "orders")]
    assert stats.overflow_out.dead_letters == 1


def test_after_its_deletion_no_table_has_a_topic_and_late_counts_bring_none_back() -> None:
    stats = BrokerStats()
    stats.known = known()
    fill(stats, "orders", "billing")
    stats.known = KnownNames(lambda _: False, lambda _: True)
    stats.forget_topic("orders")
    fill(stats, "orders", "billing")
    assert not +tables(stats)


def test_after_its_deletion_no_table_has_a_group() -> None:
    stats = BrokerStats()
    fill(stats, "orders", "billing")
    stats.forget_group("billing")
    assert +tables(stats) == Counter(topics=1, transactions=1, timers=1)
