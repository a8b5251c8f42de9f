"""The text of a scrape, read back with Prometheus' own parser."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.metrics import metric_table, metrics
from aerobee.broker.metrics.figures import Backlog, ClientKind, GroupLag, Sources
from aerobee.broker.process.host import Build
from aerobee.broker.replication.following import State
from aerobee.remoting.latency import SUCCESS_RESULT
from aerobee.remoting.stats import RemotingStats
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.statistics import GroupRecord
from aerobee.store.files.machine import Space
from aerobee.store.stats import Durations, StoreStats
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from collections.abc import Mapping


Series = tuple[str, frozenset[tuple[str, str]]]

COMMON = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}
SCOPE = {"otel_scope_name": "broker-meter"}
RECORD = GroupRecord(epoch=2, master=1, sync_set=[1, 2], set_epoch=3, held=True, member=1)
DISK = {"storage_type": "local", "storage_medium": "disk"}


@dataclass
class FakePool:
    name: str
    depth: int
    capacity: int = 100
    refused: int = 2
    timed_out: int = 1

    def head_wait_s(self, now: float) -> float:
        return now - 9.5


class FakeTimers:
    """Timers that are late."""

    unread = 3
    unread_ms = 200
    late = 2
    late_ms = 1_500
    waiting: ClassVar = {"orders": 5}

    def due_within(self) -> list[tuple[int, int]]:
        return [(5, 2), (60, 4)]


class OneSlave:
    lag_bytes, lag_s, in_sync = 70, 1.5, True


async def nothing_stored() -> Backlog:
    """Nobody produces or consumes."""
    return Backlog()


def make_sources() -> Sources:
    """The counters of a broker that did nothing yet."""
    broker = BrokerStats()
    return Sources(
        metrics=metric_table.METRICS,
        cluster="DefaultCluster",
        node_id="broker-a",
        build=Build("1.2.3", "3.11.9"),
        began_ms=4_500,
        loop=broker.loop,
        access=broker.access,
        broker=broker,
        store=StoreStats(),
        remoting=RemotingStats(),
        pools=[],
        is_system_topic=lambda topic: topic == "TBW102",
        producers=list,
        consumers=list,
        topic_number=lambda: 7,
        consumer_group_number=lambda: 3,
        broker_permission=lambda: 6,
        flush_behind_bytes=lambda: 4096,
        dispatch_behind_bytes=lambda: 128,
        half_messages=list,
        slaves=dict,
        slave_state=str,
        group_record=lambda: None,
        space=lambda: Space(2**41, 2**40, 2**39),
        refuses_puts=lambda: True,
        read_backlog=nothing_stored,
        now=lambda: 10.0,
        now_ms=lambda: 5_000,
        limits=[("maxTopics", 7, 10_000)],
    )


@pytest.fixture
def sources() -> Sources:
    return make_sources()


def text_of(sources: Sources) -> str:
    return b"".join(metrics.pages(sources)).decode()


def scrape(sources: Sources) -> dict[Series, float]:
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(text_of(sources)):
        for sample in family.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in found, f"twice: {series}"
            found[series] = sample.value
    return found


def value(found: Mapping[Series, float], name: str, **labels: str) -> float:
    scope = SCOPE if name.startswith("rocketmq_") else {}
    return found[name, frozenset((COMMON | scope | labels).items())]


def test_the_version_and_the_start_are_told(sources: Sources) -> None:
    found = scrape(sources)
    assert value(found, "aerobee_build_info", version="1.2.3", python="3.11.9") == 1
    assert value(found, "aerobee_start_time_seconds") == 4.5


def test_messages_and_bytes_in_are_counted_per_topic_and_type(sources: Sources) -> None:
    orders = sources.broker.topic_in("orders")
    orders.messages_in, orders.bytes_in = 3, 900
    sources.broker.topic_in("orders", "fifo").messages_in = 1
    sources.broker.topic_in("TBW102").messages_in = 2
    found = scrape(sources)
    plain = {"topic": "orders", "message_type": "normal", "is_system": "false"}
    assert value(found, "rocketmq_messages_in_total", **plain) == 3
    assert value(found, "rocketmq_throughput_in_total", **plain) == 900
    assert value(found, "rocketmq_messages_in_total", **plain | {"message_type": "fifo"}) == 1
    system = plain | {"topic": "TBW102", "is_system": "true"}
    assert value(found, "rocketmq_messages_in_total", **system) == 2


def test_messages_and_bytes_out_are_counted_per_group(sources: Sources) -> None:
    out = sources.broker.group_out("billing", "orders")
    out.messages_out, out.bytes_out = 32, 9600
    sources.broker.group_out("cid_rmq_sys_x", "orders").messages_out = 1
    found = scrape(sources)
    labels = {"topic": "orders", "consumer_group": "billing", "is_system": "false"}
    assert value(found, "rocketmq_messages_out_total", **labels) == 32
    assert value(found, "rocketmq_throughput_out_total", **labels) == 9600
    system = labels | {"consumer_group": "cid_rmq_sys_x", "is_system": "true"}
    assert value(found, "rocketmq_messages_out_total", **system) == 1


def test_what_was_deleted_unread_is_counted_where_there_is_something(sources: Sources) -> None:
    sources.broker.group_out("fast", "orders").messages_out = 1
    sources.broker.group_out("slow", "orders").unread_deleted = 70
    sources.broker.group_out("slow", "orders").dead_letters = 3
    sources.store.segments_deleted, sources.store.segments_forced = 5, 2
    sources.store.segments_unarchived, sources.store.segments_waiting = 1, 7
    found = scrape(sources)
    labels = {"topic": "orders", "consumer_group": "slow", "is_system": "false"}
    assert value(found, "aerobee_unread_deleted_messages_total", **labels) == 70
    assert value(found, "rocketmq_send_to_dlq_messages_total", **labels) == 3
    assert len([name for name, _ in found if name == "aerobee_unread_deleted_messages_total"]) == 1
    assert value(found, "aerobee_log_segments_deleted_total", reason="expired") == 3
    assert value(found, "aerobee_log_segments_deleted_total", reason="disk_full") == 2
    assert value(found, "aerobee_log_segments_unarchived_total") == 1
    assert value(found, "aerobee_log_segments_waiting_for_archive") == 7


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_retry_and_dead_letter_topics_are_left_out_of_in_and_out(
    sources: Sources, topic: str
) -> None:
    sources.broker.topic_in(topic).messages_in = 1
    sources.broker.group_out("g", topic).messages_out = 1
    assert topic not in text_of(sources)


def test_series_of_a_deleted_topic_are_gone(sources: Sources) -> None:
    sources.broker.topic_in("orders").messages_in = 1
    sources.broker.group_out("g", "orders").messages_out = 1
    assert "orders" in text_of(sources)
    sources.broker.forget_topic("orders")
    assert "orders" not in text_of(sources)


def test_too_many_series_are_counted_together(sources: Sources) -> None:
    small = replace(sources, broker=BrokerStats(series_limit=1))
    for topic in ("a", "b", "c"):
        small.broker.topic_in(topic).messages_in += 1
    found = scrape(small)
    assert value(found, "rocketmq_messages_in_total", otel_metric_overflow="true") == 2
    names = [name for name, _ in found if name == "rocketmq_messages_in_total"]
    assert len(names) == 2


def test_client_connections_are_grouped_by_language_and_version(sources: Sources) -> None:
    java = ClientKind("JAVA", 479)
    consumer = ClientKind("GO", 409, "billing", "push")
    found = scrape(
        replace(sources, producers=lambda: [(java, 2)], consumers=lambda: [(consumer, 1)])
    )
    labels = {"language": "java", "version": "v5_3_3", "protocol_type": "remoting"}
    assert value(found, "rocketmq_producer_connections", **labels) == 2
    labels = {
        "language": "go",
        "version": "v4_9_8",
        "protocol_type": "remoting",
        "consumer_group": "billing",
        "consume_mode": "push",
        "is_system": "false",
    }
    assert value(found, "rocketmq_consumer_connections", **labels) == 1


def test_pools_are_named_as_in_rocketmq(sources: Sources) -> None:
    found = scrape(replace(sources, pools=[FakePool("send", 4), FakePool("query", 1)]))
    assert value(found, "rocketmq_processor_watermark", processor="send") == 4
    assert value(found, "rocketmq_processor_watermark", processor="query_message") == 1


def test_the_gauges_of_store_and_tables_are_what_the_sources_say(sources: Sources) -> None:
    sources.remoting.connections_opened, sources.remoting.connections_closed = 5, 2
    found = scrape(sources)
    assert value(found, "rocketmq_topic_number") == 7
    assert value(found, "rocketmq_consumer_group_number") == 3
    assert value(found, "rocketmq_broker_permission") == 6
    assert value(found, "rocketmq_storage_flush_behind_bytes", **DISK) == 4096
    assert value(found, "rocketmq_storage_dispatch_behind_bytes", **DISK) == 128
    assert value(found, "rocketmq_storage_size_bytes", **DISK) == 2**40
    assert value(found, "aerobee_storage_capacity_bytes") == 2**41
    assert value(found, "aerobee_storage_available_bytes") == 2**39
    assert value(found, "aerobee_store_refuses_puts") == 1
    assert value(found, "aerobee_connections") == 3


def test_a_histogram_counts_upwards_and_ends_with_all(sources: Sources) -> None:
    for seconds in (0.0001, 0.003, 0.004, 9.0):
        sources.store.sync_seconds.add(seconds)
    found = scrape(sources)
    counts = [
        count for (name, _), count in found.items() if name == "aerobee_fdatasync_seconds_bucket"
    ]
    assert counts == sorted(counts)
    assert value(found, "aerobee_fdatasync_seconds_bucket", le="0.002") == 1
    assert value(found, "aerobee_fdatasync_seconds_bucket", le="0.005") == 3
    assert value(found, "aerobee_fdatasync_seconds_bucket", le="+Inf") == 4
    assert value(found, "aerobee_fdatasync_seconds_count") == 4
    assert value(found, "aerobee_fdatasync_seconds_sum") == pytest.approx(9.0071)


def test_the_operators_labels_are_on_every_series_but_cannot_lie_about_ours(
    sources: Sources,
) -> None:
    labelled = replace(sources, labels={"zone": "eu", "node_id": "another"})
    text = text_of(labelled)
    ours = [line for line in text.splitlines() if line.startswith(("rocketmq_", "aerobee_"))]
    assert ours
    assert all('zone="eu"' in line and 'node_id="broker-a"' in line for line in ours)


def test_label_values_of_any_kind_are_escaped(sources: Sources) -> None:
    sources.broker.group_out('a"b\\c\nd', "orders").messages_out = 1
    groups = {dict(labels).get("consumer_group") for _, labels in scrape(sources)}
    assert 'a"b\\c\nd' in groups


def test_a_family_cut_into_pages_has_one_head(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        sources.broker.topic_in(f"t{number}").messages_in = number
    whole = [line for line in text_of(sources).splitlines() if not line.startswith("process_")]
    monkeypatch.setattr(metrics, "PAGE_SAMPLES", 10)
    cut = list(metrics.pages(sources))
    assert max(page.count(b"\n") for page in cut) <= 12
    lines = [x for x in b"".join(cut).decode().splitlines() if not x.startswith("process_")]
    assert lines == whole


def test_a_topic_made_or_deleted_between_two_pages_disturbs_nothing(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PAGE_SAMPLES", 1)
    for name in ("a", "b", "c"):
        sources.broker.topic_in(name).messages_in = 1
    for number, _ in enumerate(metrics.pages(sources)):
        sources.broker.forget_topic("b")
        sources.broker.topic_in(f"new{number}").messages_in = 1


def test_timers_show_what_waits_and_how_late_they_are(sources: Sources) -> None:
    sources.broker.timer("orders").dequeued = 7
    text = b"".join(metrics.pages(replace(sources, timers=FakeTimers()))).decode()
    figures = {
        "rocketmq_timing_messages": (',topic="orders"', "5.0"),
        "rocketmq_timer_dequeue_total": (',topic="orders"', "7.0"),
        "rocketmq_timer_enqueue_lag": ("", "3.0"),
        "rocketmq_timer_dequeue_lag": ("", "2.0"),
        "rocketmq_timer_enqueue_latency_milliseconds": ("", "200.0"),
        "rocketmq_timer_dequeue_latency_milliseconds": ("", "1.5"),
    }
    for name, (topic, value) in figures.items():
        lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        assert len(lines) == 1, name
        assert 'storage_medium="disk",storage_type="local"' in lines[0]
        assert topic in lines[0]
        assert lines[0].endswith(f" {value}")
    assert 'timer_bound_s="60"' in text
    without = b"".join(metrics.pages(sources)).decode()
    assert "\nrocketmq_timing_messages{" not in without


def test_every_sample_has_the_labels_that_the_table_declares(sources: Sources) -> None:
    sources.broker.topic_in("orders").messages_in = 1
    sources.broker.group_out("g", "orders").messages_out = 1
    sources.broker.group_out("g", "orders").unread_deleted = 1
    sources.broker.group_out("g", "orders").dead_letters = 1
    ended = sources.broker.transaction("orders")
    ended.commits = ended.rollbacks = 1
    ended.latency.add(7)
    sources.broker.repeated["orders"] = 1
    sources.broker.topics_too_fast["orders"] = 1
    sources.broker.groups_too_fast["g"] = 1
    sources.broker.send_stages["queued"] = Durations()
    for times in (sources.broker.topic_creations, sources.broker.group_creations):
        times.measured(Answer, HandClock())
    requested(sources, 310, 0)
    sources.store.set_aside["timers"] = sources.store.unreadable["pull"] = 1
    sources.remoting.tls_expires_s = 2e9
    timer = sources.broker.timer("orders")
    timer.enqueued = timer.dequeued = 1
    timer.latency.add(7)
    full = replace(
        sources,
        timers=FakeTimers(),
        pools=[FakePool("pull", 0)],
        half_messages=lambda: [("orders", 3)],
        producers=lambda: [(ClientKind("JAVA", 479), 1)],
        consumers=lambda: [(ClientKind("JAVA", 479, "g", "push"), 1)],
        backlog=Backlog([GroupLag("g", "orders", is_retry=False)], earliest_ms=2_000),
        slaves=lambda: {"10.0.0.2": OneSlave()},
        slave_state=lambda: "stuck",
        group_record=lambda: RECORD,
    )
    pop = sources.broker.pop
    pop.add(pop.revive_in, ("orders", "g", "CK", "PUT_OK"))
    pop.add(pop.revive_out, ("orders", "g", "3", "ACK"))
    pop.add(pop.retried, ("orders", "g", "PUT_OK"))
    pop.behind["3"], pop.late_ms["3"] = 2, 1_500
    labels: dict[str, set[str]] = defaultdict(set)
    for name, pairs in scrape(full):
        labels[name].update(key for key, _ in pairs)
    for metric in metric_table.METRICS:
        name = metric.name + ("_count" if metric.kind == "histogram" else "")
        scope = SCOPE if name.startswith("rocketmq_") else {}
        assert labels[name] == {*COMMON, *scope, *metric.labels}


def requested(sources: Sources, request: int, response: int, *, held: bool = False) -> None:
    """A request that took 2 ms."""
    latencies = sources.remoting.latencies
    latencies.ended[request, response, held, SUCCESS_RESULT].append(0.998)
    latencies.sent(1.0)


def test_requests_are_timed_under_the_words_of_rocketmq(sources: Sources) -> None:
    requested(sources, 310, 0)
    requested(sources, 11, 19, held=True)
    requested(sources, 9_999, 77)
    name = "rocketmq_rpc_latency_milliseconds"
    found = scrape(sources)
    labels = {"protocol_type": "remoting", "result": "success", "is_long_polling": "false"}
    sent = labels | {"request_code": "send_message_v2", "response_code": "success"}
    assert value(found, f"{name}_bucket", le="1.0", **sent) == 0
    assert value(found, f"{name}_bucket", le="3.0", **sent) == 1
    assert value(found, f"{name}_sum", **sent) == pytest.approx(2)
    pulled = {"request_code": "pull_message", "response_code": "pull_not_found"}
    assert value(found, f"{name}_count", **labels | pulled | {"is_long_polling": "true"}) == 1
    unknown = {"request_code": "9999", "response_code": "77"}
    assert value(found, f"{name}_count", **labels | unknown) == 1


def test_what_creates_topics_and_groups_is_timed_whether_it_works_or_not(
    sources: Sources,
) -> None:
    def refused() -> Answer:
        raise ValueError("no such perm")

    topics = sources.broker.topic_creations
    topics.measured(Answer, HandClock(), system=True)
    with pytest.raises(ValueError, match="perm"):
        topics.measured(refused, HandClock())
    name = "rocketmq_topic_create_execution_time_milliseconds_count"
    found = scrape(sources)
    assert value(found, name, invocation_status="success", is_system="true") == 1
    assert value(found, name, invocation_status="failure", is_system="false") == 1


def test_the_names_of_5_1_0_are_served_too_where_that_is_asked_for(sources: Sources) -> None:
    requested(sources, 310, 0)
    without = {name for name, _ in scrape(sources)}
    both = {name for name, _ in scrape(replace(sources, short_names=True))}
    added = both - without
    assert {
        "rocketmq_rpc_latency_bucket",
        "rocketmq_rpc_latency_count",
        "rocketmq_rpc_latency_sum",
        "rocketmq_storage_size",
    } == added
    assert set(metrics.SHORT_NAMES.values()) == {
        "rocketmq_topic_create_execution_time",
        "rocketmq_consumer_group_create_execution_time",
        "rocketmq_consumer_lag_latency",
        "rocketmq_consumer_queueing_latency",
        "rocketmq_finish_message_latency",
        "rocketmq_rpc_latency",
        "rocketmq_storage_size",
        "rocketmq_storage_message_reserve_time",
        "rocketmq_timer_enqueue_latency",
        "rocketmq_timer_dequeue_latency",
        "rocketmq_delay_message_latency",
        "rocketmq_pop_revive_lag",
        "rocketmq_pop_revive_latency",
    }


def test_messages_fall_into_the_buckets_of_their_size(sources: Sources) -> None:
    put = sources.broker.topic_in("orders").put
    put(1, 1_024)
    put(1, 1_025)
    put(10, 8_000)
    put(2, 2 * 4_194_305)
    found = {
        dict(pairs)["le"]: value
        for (name, pairs), value in scrape(sources).items()
        if name == "rocketmq_message_size_bucket"
    }
    of_small, of_all = 11, 14
    assert found == {
        "1024.0": of_small,
        "4096.0": of_small + 1,
        "524288.0": of_small + 1,
        "1048576.0": of_small + 1,
        "2097152.0": of_small + 1,
        "4194304.0": of_small + 1,
        "+Inf": of_all,
    }


def test_pools_say_how_full_they_are_and_what_they_refused(sources: Sources) -> None:
    text = text_of(replace(sources, pools=[FakePool("send", 4)]))
    for line in (
        r'aerobee_pool_capacity\{.*processor="send"\} 100.0',
        r'aerobee_pool_head_wait_seconds\{.*processor="send"\} 0.5',
        r'aerobee_pool_refused_total\{.*processor="send"\} 3.0',
    ):
        assert re.search(line, text), line


def test_the_age_of_the_log_is_there_once_it_holds_something(sources: Sources) -> None:
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    assert f"\n{name}{{" not in text_of(sources)
    text = text_of(replace(sources, backlog=Backlog(earliest_ms=2_000)))
    assert re.search(rf"{name}\{{.*\}} 3000.0", text)


def test_pops_are_counted_under_the_names_of_rocketmq(sources: Sources) -> None:
    pop = sources.broker.pop
    for _ in range(2):
        pop.add(pop.revive_in, ("orders", "g", "CK", "PUT_OK"))
    pop.behind["3"] = 5
    text = text_of(sources)
    assert re.search(
        r'rocketmq_pop_revive_in_message_total\{[^}]*consumer_group="g"[^}]*'
        r'put_status="PUT_OK"[^}]*revive_message_type="CK"[^}]*topic="orders"\} 2.0',
        text,
    )
    assert re.search(r'rocketmq_pop_revive_lag_milliseconds\{[^}]*queue_id="3"\} 5.0', text)


def test_series_of_pops_have_a_limit() -> None:
    pop = BrokerStats(series_limit=2).pop
    for topic in ("a", "b", "c", "a"):
        pop.add(pop.retried, (topic, "g", "PUT_OK"))
    assert pop.retried == {("a", "g", "PUT_OK"): 2, ("b", "g", "PUT_OK"): 1}


def test_names_follow_the_rules_of_prometheus() -> None:
    names = [metric.name for metric in metric_table.METRICS]
    assert len(set(names)) == len(names)
    for metric in metric_table.METRICS:
        assert metric.name.startswith(("rocketmq_", "aerobee_"))
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")


def test_the_constant_series_of_opentelemetry_are_there(sources: Sources) -> None:
    text = text_of(sources)
    assert 'otel_scope_info{otel_scope_name="broker-meter"} 1.0' in text
    assert "target_info{" in text


def test_each_slave_has_a_series_while_it_is_connected(sources: Sources) -> None:
    sources.store.replicated_out_bytes = 900
    shown = scrape(replace(sources, slaves=lambda: {"10.0.0.2": OneSlave()}))
    by_name = {
        (name, dict(labels).get("slave")): value
        for (name, labels), value in shown.items()
        if name.startswith("aerobee_replication_")
    }
    assert by_name == {
        ("aerobee_replication_slaves", None): 1,
        ("aerobee_replication_slaves_in_sync", None): 1,
        ("aerobee_replication_slave_lag_bytes", "10.0.0.2"): 70,
        ("aerobee_replication_slave_lag_seconds", "10.0.0.2"): 1.5,
        ("aerobee_replication_sent_bytes_total", None): 900,
        ("aerobee_replication_received_bytes_total", None): 0,
    }
    assert not any("slave_lag" in name for name, _ in scrape(sources))


def test_a_slave_shows_its_state_and_a_master_has_none(sources: Sources) -> None:
    shown = {
        dict(labels)["state"]: value
        for (name, labels), value in scrape(replace(sources, slave_state=lambda: "stuck")).items()
        if name == "aerobee_replication_state"
    }
    assert shown == {str(state): float(state is State.STUCK) for state in State}
    assert not any(name == "aerobee_replication_state" for name, _ in scrape(sources))


def test_a_member_shows_its_group_and_others_show_none(sources: Sources) -> None:
    def shown(record: GroupRecord | None) -> dict[str, float]:
        figures = scrape(replace(sources, group_record=lambda: record))
        return {
            name.removeprefix("aerobee_failover_"): value
            for (name, _), value in figures.items()
            if name.startswith("aerobee_failover_")
        }

    assert shown(None) == {}
    assert shown(RECORD) == {"epoch": 2, "leads": 1, "master_known": 1, "sync_set_members": 2}
    away = GroupRecord(
        epoch=2, master=1, sync_set=[1], set_epoch=3, held=True, member=2, problem="no answer"
    )
    assert shown(away) == {"epoch": 2, "leads": 0, "master_known": 0, "sync_set_members": 1}
